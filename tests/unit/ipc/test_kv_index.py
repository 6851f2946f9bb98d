"""The index of a router: what is cached where, and whether the hashes are those of the content."""

import numpy as np
import pytest

from fourstroke.ipc.block_hash import ROOT, chain, root
from fourstroke.ipc.event_codec import decode_batch, encode_batch
from fourstroke.ipc.events import Batch, Cleared, Removed, Stored
from fourstroke.ipc.kv_index import KvIndex
from fourstroke.ipc.messages import CacheKeys, Image
from fourstroke.ipc.shadow import Shadow

from .histories import BLOCK, Life

TOKENS = list(range(100, 112))
NO_KEYS = CacheKeys()


def stored(tokens=TOKENS, keys=NO_KEYS, images=(), start=ROOT, told=None) -> Stored:
    """A chain from its root on. `told`: what is published of its keys."""
    column = np.array(tokens, np.int32)
    packed = chain(column, BLOCK, keys, images, start)
    digests = tuple(packed[at : at + 32] for at in range(0, len(packed), 32))
    return Stored(digests, None, column.tobytes(), BLOCK, told, keys.adapter or None)


def heard(*events, rank=0, form="map") -> Batch:
    return decode_batch(encode_batch(1.0, events, rank, form))


def test_match_counts_whole_blocks_from_the_beginning():
    """For each rank that has some; a changed token cuts the match before its block."""
    index = KvIndex(BLOCK)
    index.apply(heard(stored(), rank=0))
    index.apply(heard(stored(TOKENS[:4]), rank=3, form="array"))
    assert index.match(TOKENS) == {0: 12, 3: 4}
    assert index.match([*TOKENS, 1, 2, 3]) == {0: 12, 3: 4}
    assert index.match([*TOKENS[:5], 7, *TOKENS[6:]]) == {0: 4, 3: 4}
    assert index.match([7, *TOKENS[1:]]) == index.match(TOKENS[:3]) == index.match([]) == {}


def test_salts_and_adapters_tell_prefixes_apart():
    """A match is only for the salt and the adapter that were asked for."""
    index = KvIndex(BLOCK)
    index.apply(heard(stored(keys=CacheKeys(salt="s"), told=(("s",), None, None))))
    assert (index.match(TOKENS), index.match(TOKENS, salt="s"), index.match(TOKENS, lora="s")) == ({}, {0: 12}, {})
    index.apply(heard(stored(keys=CacheKeys(adapter="a"), told=(("a",),) * 3), rank=1))
    assert (index.match(TOKENS), index.match(TOKENS, lora="a")) == ({}, {1: 12})
    assert index.match(TOKENS, salt="s", lora="a") == {}


def test_a_block_is_there_while_any_medium_has_it():
    index = KvIndex(BLOCK)
    event = stored()
    index.apply(heard(event, Stored(event.digests, None, event.tokens, BLOCK, medium="CPU"), Removed(event.digests)))
    assert index.match(TOKENS) == {0: 12}
    index.apply(heard(Removed(event.digests[::-1], "CPU")))
    assert (index.match(TOKENS), len(index)) == ({}, 0)


def test_cleared_and_forgotten():
    index = KvIndex(BLOCK)
    for rank in (0, 1):
        index.apply(heard(stored(), rank=rank))
    index.apply(heard(Cleared(), rank=0))
    assert index.match(TOKENS) == {1: 12}
    index.forget(1)
    assert index.match(TOKENS) == {}


def test_verify_is_clean_for_keys_of_every_kind():
    """Salts (with Dynamo's prefix, too), images, adapters with and without their path, and another seed."""
    keys, images = CacheKeys("name", "/path", "s1"), [Image("cat", 2, 3, b"")]
    told = (("name", ("cat", 2), "dynamo-cache-salt:s1"), ("name", ("cat", -2)), ("name",))
    index = KvIndex(BLOCK, adapter_paths={"name": "/path"})
    index.apply(heard(stored(keys=keys, images=images, told=told)))
    index.apply(heard(stored(TOKENS[::-1])))
    assert index.verify() == []
    assert len(KvIndex(BLOCK).verify()) == 0
    seeded = KvIndex(BLOCK, seed="0")
    seeded.apply(heard(stored(start=root("0"))))
    assert seeded.verify() == []


def test_a_salt_with_dynamos_prefix():
    """Is found by the salt that the client chose, as one without it is; with another salt nothing is found."""
    index = KvIndex(BLOCK)
    index.apply(heard(stored(keys=CacheKeys(salt="s"), told=(("dynamo-cache-salt:s",), None, None))))
    index.apply(heard(stored(TOKENS[:8], keys=CacheKeys(salt="s"), told=(("s",), None)), rank=1))
    assert index.match(TOKENS, salt="s") == {0: 12, 1: 8}
    assert index.match(TOKENS) == index.match(TOKENS, salt="t") == {}
    assert index.verify() == []


def test_a_salt_that_is_called_like_dynamos_prefix():
    """Its hash has all of it."""
    index, salt = KvIndex(BLOCK), "dynamo-cache-salt:x"
    index.apply(heard(stored(keys=CacheKeys(salt=salt), told=((salt,), None, None))))
    assert (index.verify(), index.match(TOKENS, salt=salt)) == ([], {0: 12})


@pytest.mark.parametrize("form", ["map", "array"])
def test_lists_of_no_keys(form):
    """Stand for no keys."""
    index = KvIndex(BLOCK)
    index.apply(heard(stored(told=((), (), None)), form=form))
    assert (index.verify(), index.match(TOKENS)) == ([], {0: 12})


@pytest.mark.parametrize(
    "event, problem",
    [
        (stored(start=root("0")), "should be"),
        (stored(keys=CacheKeys(salt="s")), "should be"),
        (Stored((b"x" * 32,), b"y" * 32, bytes(16), BLOCK), "no parent"),
        (Stored((b"x" * 32,), None, bytes(20), 5), "5 tokens"),
    ],
    ids=["another seed", "an untold salt", "no parent", "block size"],
)
def test_verify_finds_what_does_not_fit(event, problem):
    index = KvIndex(BLOCK)
    index.apply(heard(event))
    assert problem in index.verify()[0]


@pytest.mark.parametrize("form", ["map", "array"])
@pytest.mark.parametrize("seed", range(25))
def test_a_shadow_is_rebuilt_of_its_own_events(seed, form):
    """After a random life it knows exactly what is there; its events give the same state, parents first, verified."""
    life, shadow, index = Life(seed), Shadow(), KvIndex(BLOCK)
    for event in life.events(120):
        shadow.apply(event)
    assert set(shadow.media.get("GPU", {})) == {digest[-8:] for digest in life.digests}
    batch = heard(Cleared(), *shadow.events(), form=form)
    again = Shadow()
    for event in batch.events:
        if isinstance(event, Stored):
            assert event.parent is None or event.parent in again.media["GPU"]
        again.apply(event)
    assert list(again.events()) == list(shadow.events())
    index.apply(batch)
    assert index.hashes() == {int.from_bytes(digest[-8:], "big") for digest in life.digests}
    assert index.verify() == []
