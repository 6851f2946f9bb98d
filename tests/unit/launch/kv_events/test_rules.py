"""The check finds each mistake that is known to break a reader, and nothing in a stream of ours."""

from __future__ import annotations

import copy
from typing import Any

import msgpack
import pytest

from fourstroke.common.errors import TargetMissed
from fourstroke.ipc.event_codec import encode_batch
from fourstroke.ipc.events import Cleared
from fourstroke.ipc.replay import END, answer_frames, live_frames
from fourstroke.launch.kv_events import check as check_module
from fourstroke.launch.kv_events.check import check, judge
from fourstroke.launch.kv_events.listening import Heard
from fourstroke.launch.kv_events.rules import Rules
from fourstroke.launch.options import make_parser

from ...ipc.histories import Life

HASHES = [2075310216342196106, 17438879670614067321]
STORED = {
    "type": "BlockStored",
    "block_hashes": HASHES,
    "parent_block_hash": None,
    "token_ids": list(range(100, 108)),
    "block_size": 4,
    "lora_id": None,
    "medium": "GPU",
    "lora_name": None,
}
IN_ARRAY = [*STORED.values(), None]
GONE = {"type": "BlockRemoved", "block_hashes": HASHES[1:], "medium": "GPU"}
BATCH = [1.5, [{"type": "AllBlocksCleared"}, STORED, GONE], 0]


def wrong(*batches: Any) -> set[str]:
    """What is wrong with batches, one after the other, without the numbers in brackets."""
    rules = Rules(0)
    for batch in batches:
        rules.hear(batch if isinstance(batch, bytes) else msgpack.packb(batch))
    return set(rules.wrong)


def changed(event: dict[str, Any], **fields: Any) -> list[Any]:
    return [1.5, [{**event, **fields}], 0]


def without(name: str) -> list[Any]:
    return [1.5, [{key: value for key, value in STORED.items() if key != name}], 0]


@pytest.mark.parametrize("form", ["map", "array"])
@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_wrong_with_ours(form, seed):
    """Whatever the cache has lived through."""
    heard = Heard(ended=True)
    events = [Cleared(), *Life(seed).events(60)]
    payloads = [encode_batch(1.0, events[at : at + 3], 0, form) for at in range(0, len(events), 3)]
    heard.live = heard.replayed = dict(enumerate(payloads))
    rules = judge(heard, 0, replays=True, heartbeat_s=5, seed="vllm-none-hash")
    assert rules.wrong == {}
    assert (rules.batches, list(rules.forms)) == (len(payloads), [form])
    assert judge(heard, 0, replays=True, heartbeat_s=5, seed="another").wrong != {}


def test_the_usual_batch_is_right():
    assert (
        wrong(BATCH) == wrong([1.5, [["AllBlocksCleared"], IN_ARRAY, ["BlockRemoved", HASHES[1:], "GPU"]], 0]) == set()
    )


@pytest.mark.parametrize(
    "batch, row",
    [
        (b"\xc1", ""),
        ([1.5, []], "[2]"),
        ([1.5, [], 0, 0], "[2]"),
        ([1, [], 0], "[2]"),
        ([1.5, [], None], "[2]"),
        ([1.5, [], 1], "[2]"),
        (changed(STORED, block_hashes=[b"12345678", b"12345679"]), "[3]"),
        (changed(STORED, block_hashes=[-1, 5 << 40]), "[3]"),
        (changed(STORED, block_hashes=[1, 2]), "[3]"),
        (changed(STORED, block_hashes=[HASHES[0]] * 2), "[3]"),
        (changed(STORED, parent_block_hash=HASHES[0]), "[3]"),
        (changed(STORED, parent_block_hash=1 << 50), "[3]"),
        ([1.5, [{"type": "BlockMoved"}], 0], "[4]"),
        ([1.5, [7], 0], "[4]"),
        (changed(STORED, locality="x"), "[4]"),
        (changed({"type": "AllBlocksCleared"}, medium="GPU"), "[4]"),
        (without("lora_name"), "[5]"),
        (without("parent_block_hash"), "[5]"),
        (changed(STORED, lora_id=0), "[5]"),
        (changed(STORED, token_ids=[1] * 7), "[6]"),
        (changed(STORED, token_ids=[1 << 32] * 8), "[6]"),
        (changed(STORED, group_idx=0), "[7]"),
        (changed(STORED, kv_cache_spec_kind="full_attention"), "[7]"),
        ([1.5, [IN_ARRAY[:8]], 0], "[7]"),
        ([1.5, [["AllBlocksCleared", 0]], 0], "[7]"),
        (changed(STORED, medium="gpu"), "[8]"),
        (changed(STORED, extra_keys=[["a", 1, 2], None]), "[9]"),
        (changed(STORED, extra_keys=[None]), "[9]"),
        ([1.5, [GONE], 0], "[10]"),
        ([1.5, [STORED, STORED], 0], "[10]"),
    ],
)
def test_each_mistake_is_found(batch, row):
    """It is said in words, with the number of the row that tells which readers it breaks."""
    found = wrong(batch)
    assert found and all(row in line for line in found), found


def test_another_block_size_later():
    other = changed(copy.deepcopy(STORED), block_hashes=[1 << 40], block_size=8)
    assert any("[6]" in line for line in wrong(BATCH, other))


def heard_of(live: list[list[bytes]], answers: list[list[bytes]]) -> Heard:
    heard = Heard()
    for frames in live:
        heard.take_live(frames)
    for frames in answers:
        heard.take_answer(frames)
    return heard


FIRST, NEXT = (msgpack.packb([1.5, events, 0]) for events in ([["AllBlocksCleared"]], []))
ENDED = [b"", b"", END, b""]


@pytest.mark.parametrize(
    "live, answers, expected",
    [
        ([live_frames(b"", 0, FIRST)], [answer_frames("topic", b"", 0, FIRST), ENDED], ""),
        ([[b"", b"1", FIRST]], [ENDED], "[1]"),
        ([live_frames(b"", 0, FIRST), live_frames(b"", 2, NEXT)], [ENDED], "[1]"),
        ([], [answer_frames("topic", b"", 0, FIRST)], "[12]"),
        ([], [answer_frames("topic", b"", 0, FIRST), [*ENDED[:3], b"x"]], "[12]"),
        ([], [[b"x"], ENDED], "[12]"),
        ([], [answer_frames("legacy", b"", 5, NEXT), ENDED], "[16]"),
        ([], [answer_frames("topic", b"", 0, FIRST), answer_frames("topic", b"", 2, NEXT), ENDED], "[16]"),
        ([], [answer_frames("topic", b"", 0, msgpack.packb([1.5, [STORED], 0])), ENDED], "AllBlocksCleared"),
        ([live_frames(b"", 0, FIRST)], [answer_frames("topic", b"", 0, NEXT), ENDED], "other bytes"),
    ],
)
def test_frames_and_answers(live, answers, expected):
    """Numbers without holes, an end without payload, an answer from where it was asked for, the same bytes twice."""
    found = judge(heard_of(live, answers), 0, replays=True, heartbeat_s=0, seed=None).wrong
    assert any(expected in line for line in found) if expected else not found


CLEARED = {"type": "AllBlocksCleared"}
NOTHING, STATE, ALL, MORE, LESS = (
    msgpack.packb([ts, events, 0])
    for ts, events in [
        (9.5, []),
        (9.5, [CLEARED, STORED]),
        (1.5, [CLEARED]),
        (2.5, [STORED]),
        (3.5, [GONE]),
    ]
)


def lives(*numbered: tuple[int, bytes]) -> list[list[bytes]]:
    return [live_frames(b"", *one) for one in numbered]


def answers(*numbered: tuple[int, bytes]) -> list[list[bytes]]:
    return [*(answer_frames("topic", b"", *one) for one in numbered), ENDED]


@pytest.mark.parametrize(
    "live, answered",
    [
        (lives((7, LESS), (8, MORE)), None),
        (lives((7, NOTHING), (8, ALL), (9, MORE), (10, LESS)), None),
        (lives((0, ALL), (1, MORE), (2, LESS)), answers((0, NOTHING), (1, STATE), (2, LESS))),
        (lives((2, LESS)), answers((0, ALL), (1, MORE))),
        (lives((5, MORE), (6, LESS), (0, ALL), (1, MORE)), answers((0, ALL), (1, MORE))),
        (lives((0, ALL), (2, LESS)), answers((0, ALL), (1, MORE), (2, LESS))),
        ([], answers((2_000_000, STATE), (2_000_001, LESS))),
    ],
    ids=["late", "late, then cleared", "snapshot", "joined", "another process", "a gap that is filled", "far behind"],
)
def test_what_is_no_mistake_of_the_stream(live, answered):
    """One who joins late, or misses something and asks for it, and a publisher that is replaced meanwhile."""
    heard = heard_of(live, answered or [])
    rules = judge(heard, 0, replays=answered is not None, heartbeat_s=0, seed="vllm-none-hash")
    assert rules.wrong == {}


def test_what_is_missing_is_known():
    """So that it can be asked for: between answer and live ones, and behind a hole."""
    heard = heard_of(lives((7, NOTHING)), answers((0, ALL), (1, MORE)))
    assert (heard.may_miss, heard.missing(), heard.may_miss) == (True, 2, False)
    heard = heard_of(lives((1, MORE)), answers((0, ALL), (1, MORE)))
    assert heard.missing() is None
    heard.take_live(lives((2, NOTHING))[0])
    assert not heard.may_miss
    heard.take_live(lives((4, NOTHING))[0])
    assert (heard.may_miss, heard.missing()) == (True, 3)


def test_silence_and_two_forms():
    heard = Heard({0: FIRST, 1: msgpack.packb([1.5, [STORED], 0])}, ended=True, longest_silence_s=20)
    found = judge(heard, 0, replays=True, heartbeat_s=5, seed=None).wrong
    assert {line[-4:] for line in found} == {"[14]", "[15]"}


def test_the_command(monkeypatch, capsys):
    """It prints what it found and fails if something is wrong."""
    heard = Heard({0: FIRST}, {0: FIRST}, ended=True)
    monkeypatch.setattr(check_module, "listen", lambda *_: heard)
    namespace = make_parser("0").parse_args(["kv-events", "check", "--pub", "tcp://x:1", "--replay", "tcp://x:2"])
    check(namespace)
    assert capsys.readouterr().out == "1 batches, 1 events in array form\nnothing is wrong\n"
    heard.ended = False
    namespace.json = True
    with pytest.raises(TargetMissed):
        check(namespace)
    assert '"an answer has no end [12]": 1' in capsys.readouterr().out
