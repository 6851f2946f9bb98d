"""The routes, as a client sees them, in front of an engine that tests direct."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from fourstroke.common.types import Finish, State
from fourstroke.ipc.block_hash import chain
from fourstroke.ipc.messages import DIGEST_BYTES, CacheKeys

from .surroundings import CHAT, COMPLETIONS, MAX_MODEL_LEN, VOCAB, Surroundings, error, events

HI: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"prompt": "Hi"},
    CHAT: {"messages": [{"role": "user", "content": "Hi"}]},
}
PATHS = pytest.mark.parametrize("path", [COMPLETIONS, CHAT], ids=["completions", "chat"])


OTHERS = {COMPLETIONS: "messages", CHAT: "prompt"}


def post(around: Surroundings, path: str, **fields: Any) -> httpx.Response:
    """A request for three tokens. `fields` may have the prompts of both routes."""
    body = {**HI.get(path, {}), "max_tokens": 3, **fields}
    body.pop(OTHERS.get(path, ""), None)
    return asyncio.run(around.post(path, body))


def texts(choice: dict[str, Any]) -> str:
    part = choice.get("message") or choice.get("delta") or {"content": choice.get("text")}
    return part.get("content") or ""


# Answers


@PATHS
def test_whole(around: Surroundings, path: str) -> None:
    """An answer in one piece: its text, why it ended, and what it took."""
    answer = post(around, path).json()
    assert answer["id"].startswith("cmpl-" if path == COMPLETIONS else "chatcmpl-")
    assert answer["object"] == ("text_completion" if path == COMPLETIONS else "chat.completion")
    assert answer["model"] == "tiny"
    (choice,) = answer["choices"]
    assert (choice["index"], texts(choice)) == (0, "w0 w1 w2 ")
    assert (choice["finish_reason"], choice["stop_reason"], choice["logprobs"]) == ("length", None, None)
    prompt = len(around.engine.prompts[0])
    assert answer["usage"] == {
        "prompt_tokens": prompt,
        "completion_tokens": 3,
        "total_tokens": prompt + 3,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


@PATHS
@pytest.mark.parametrize("usage", [False, True])
def test_stream(around: Surroundings, path: str, usage: bool) -> None:
    """A stream: the role first in chat, then text, then the reason alone, then the usage if asked for, then [DONE]."""
    response = post(around, path, stream=True, stream_options={"include_usage": usage})
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    found = events(response)
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in found}) == 1
    assert found[0]["object"] == ("text_completion" if path == COMPLETIONS else "chat.completion.chunk")
    if usage:
        assert all(chunk["usage"] is None for chunk in found[:-1])
        last = found.pop()
        assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 3)
    else:
        assert not any("usage" in chunk for chunk in found)
    choices = [chunk["choices"][0] for chunk in found]
    if path == CHAT:
        assert choices.pop(0)["delta"] == {"role": "assistant", "content": ""}
    assert "".join(map(texts, choices)) == "w0 w1 w2 "
    assert all(map(texts, choices[:-1]))
    assert not texts(choices[-1])
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["length"]


@PATHS
@pytest.mark.parametrize("streamed", [False, True])
def test_several_choices(around: Surroundings, path: str, streamed: bool) -> None:
    """k prompts and n choices: all indexes in the order of the prompts; each prompt counted once in the usage."""
    prompts = {"prompt": ["a", "bc"]} if path == COMPLETIONS else {}
    response = post(
        around, path, n=2, stream=streamed, stream_options={"include_usage": True} if streamed else None, **prompts
    )
    count = 4 if prompts else 2
    found: dict[int, str] = {}
    for part in events(response) if streamed else [response.json()]:
        for choice in part["choices"]:
            found[choice["index"]] = found.get(choice["index"], "") + texts(choice)
        usage = part["usage"]
    assert found == dict.fromkeys(range(count), "w0 w1 w2 ")
    assert usage["completion_tokens"] == 3 * count
    assert usage["prompt_tokens"] == sum(map(len, around.engine.prompts))


@pytest.mark.parametrize(
    "delta", ['"\\\n\r\t', "\u2028\u2029\x85\x0b\x1c", "👋世界é", "</script>\0\x1b", "data: [DONE]\n\n"], ids=ascii
)
@pytest.mark.parametrize("streamed", [False, True])
def test_any_text(around: Surroundings, delta: str, streamed: bool) -> None:
    """Text of any characters arrives as it is, and cannot break an event for any client that splits lines."""
    around.engine.by_hand = True

    async def run() -> httpx.Response:
        asking = asyncio.create_task(around.post(COMPLETIONS, {"prompt": "Hi", "stream": streamed}))
        await around.engine.until(1, around.engine.rids)
        (rid,) = around.engine.rids
        around.engine.say(rid, delta)
        around.engine.end(rid, Finish.STOP)
        return await asking

    response = asyncio.run(run())
    if streamed:
        assert "".join(texts(chunk["choices"][0]) for chunk in events(response)) == delta
        assert all(line == "" or line.startswith("data: ") for line in response.text.splitlines())
    else:
        assert texts(response.json()["choices"][0]) == delta


@pytest.mark.parametrize(
    "finish, fields, reasons",
    [
        (Finish.STOP, {}, ("stop", None)),
        (Finish.STOP, {"stop_string": "x"}, ("stop", "x")),
        (Finish.STOP, {"stop_token": 0}, ("stop", 0)),
        (Finish.LENGTH, {}, ("length", None)),
        (Finish.ABORT, {}, ("abort", None)),
        (Finish.TIMEOUT, {}, ("timeout", None)),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_reasons(
    around: Surroundings, finish: Finish, fields: dict[str, Any], reasons: tuple[str, Any], streamed: bool
) -> None:
    """Each end has its finish_reason, and a stop its stop_reason, in both kinds of answers."""
    around.engine.by_hand = True

    async def run() -> httpx.Response:
        asking = asyncio.create_task(around.post(CHAT, {**HI[CHAT], "stream": streamed}))
        await around.engine.until(1, around.engine.rids)
        (rid,) = around.engine.rids
        around.engine.begin(rid, 16)
        around.engine.say(rid, "text")
        around.engine.end(rid, finish, **fields)
        return await asking

    response = asyncio.run(run())
    last = events(response)[-1] if streamed else response.json()
    (choice,) = last["choices"]
    assert (choice["finish_reason"], choice["stop_reason"]) == reasons
    if not streamed:
        assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": 16}


@pytest.mark.parametrize("finish, status", [(Finish.REJECTED, 400), (Finish.ERROR, 500), (Finish.TIMEOUT, 504)])
@pytest.mark.parametrize("streamed", [False, True])
def test_failure_before_any_text(around: Surroundings, finish: Finish, status: int, streamed: bool) -> None:
    """What fails before the first byte has a status of its own, streamed or not; the other choices are ended."""
    around.engine.by_hand = True

    async def run() -> httpx.Response:
        asking = asyncio.create_task(around.post(COMPLETIONS, {"prompt": "Hi", "n": 2, "stream": streamed}))
        await around.engine.until(2, around.engine.rids)
        around.engine.end(around.engine.rids[1], finish, detail="because")
        return await asking

    assert error(asyncio.run(run()), status)["message"] == "because"
    assert [abort.rid for abort in around.engine.aborts] == [around.engine.rids[0]]
    assert not around.service.table.busy


def test_failure_in_a_stream(around: Surroundings) -> None:
    """What fails later is one event with the error, without [DONE] and without a finish_reason."""
    around.engine.by_hand = True

    async def run() -> httpx.Response:
        asking = asyncio.create_task(around.post(COMPLETIONS, {"prompt": "Hi", "stream": True}))
        await around.engine.until(1, around.engine.rids)
        around.engine.say(around.engine.rids[0], "text")
        await asyncio.sleep(0)  # the reader takes the text
        around.engine.end(around.engine.rids[0], Finish.ERROR, detail="because")
        return await asking

    blocks = asyncio.run(run()).text.split("\n\n")
    first, last = (json.loads(block.removeprefix("data: ")) for block in blocks[:-1])
    assert first["choices"][0]["finish_reason"] is None
    assert (last["error"]["message"], last["error"]["type"]) == ("because", "server_error")


@PATHS
def test_what_the_engine_is_told(tmp_path: Path, path: str) -> None:
    """Priority, salt and time travel with the prompt, and so do the hashes of its full blocks, all salted."""
    around = Surroundings(tmp_path / "model", block_size=4)
    post(around, path, n=3, seed=1, priority=-5, timeout=50, cache_salt="tenant")
    (submit,), (prompt,) = around.engine.submits, around.engine.prompts
    assert (len(submit.rids), submit.seeds[0], submit.priority) == (3, 1, -5)
    assert submit.keys == CacheKeys(salt="tenant")
    assert submit.digests == chain(np.array(prompt, np.int32), 4, submit.keys, ())
    assert 40 < submit.timeout_s <= 50


@pytest.mark.parametrize("cache, block_size, digests", [(True, 1, 2), (True, 2, 1), (True, 3, 0), (False, 1, 0)])
def test_digests(tmp_path: Path, cache: bool, block_size: int, digests: int) -> None:
    """There is a hash for each full block of a prompt, and none without a prefix cache."""
    around = Surroundings(tmp_path / "model", prefix_cache=cache, block_size=block_size)
    post(around, COMPLETIONS, prompt=[5, 6])
    assert len(around.engine.submits[0].digests) == DIGEST_BYTES * digests


@pytest.mark.parametrize("told, asked, expected", [(0, None, 0), (0, 30, 30), (60, None, 60), (60, 90, 90)])
def test_time_of_a_request(tmp_path: Path, told: float, asked: float | None, expected: float) -> None:
    """A request's own time-out goes before the server's; without either it may take for ever."""
    around = Surroundings(tmp_path / "model", request_timeout_s=told)
    post(around, COMPLETIONS, timeout=asked)
    assert expected - 10 < around.engine.submits[0].timeout_s <= expected


@pytest.mark.parametrize("streamed", [False, True])
def test_time_is_up_for_some_choices(around: Surroundings, streamed: bool) -> None:
    """Once a request has text, all its choices end with the reason, also those that have none."""
    around.engine.by_hand = True

    async def run() -> httpx.Response:
        asking = asyncio.create_task(around.post(COMPLETIONS, {"prompt": ["a", "b"], "stream": streamed}))
        await around.engine.until(2, around.engine.rids)
        first, second = around.engine.rids
        around.engine.say(first, "text")
        await asyncio.sleep(0)
        around.engine.end(second, Finish.TIMEOUT, 0)
        around.engine.end(first, Finish.TIMEOUT, 1)
        return await asking

    response = asyncio.run(run())
    parts = events(response) if streamed else [response.json()]
    found = [choice for part in parts for choice in part["choices"] if choice["finish_reason"]]
    assert sorted((choice["index"], choice["finish_reason"]) for choice in found) == [(0, "timeout"), (1, "timeout")]


def test_output_is_no_longer_than_the_ring(tmp_path: Path) -> None:
    """A request can be handed over again at any time: prompt and output fit into the ring, but for the last token."""
    around = Surroundings(tmp_path / "model", ring_tokens=20)
    assert post(around, COMPLETIONS, max_tokens=100).status_code == 200
    (submit,) = around.engine.submits
    assert submit.prompt_tokens + submit.limits.max_tokens - 1 == around.ring.capacity


@pytest.mark.parametrize("streamed", [False, True])
def test_time_is_up_while_the_ring_is_full(tmp_path: Path, streamed: bool) -> None:
    """A request that waits here for room in the ring gets its 504 in time, and the engine never hears of it."""
    around = Surroundings(tmp_path / "model", ring_tokens=4)
    around.ring.write(np.zeros(4, np.int32))

    async def run() -> httpx.Response:
        asking = asyncio.create_task(
            around.post(COMPLETIONS, {"prompt": "Hi", "n": 2, "timeout": 0.01, "stream": streamed})
        )
        while not (late := around.router.retry()):
            await asyncio.sleep(0.001)
        around.service.table.time_out(late)
        return await asking

    found = error(asyncio.run(run()), 504)
    assert (found["type"], found["code"]) == ("server_error", "timeout")
    assert not around.engine.submits and not around.engine.aborts
    assert not around.service.table.busy


@PATHS
def test_prompt_of_several_choices_counts_once(around: Surroundings, path: str) -> None:
    """The tokens of a prompt, and those of them that were cached, count once; the first choice knows the latter."""
    around.engine.by_hand = True

    async def run() -> httpx.Response:
        asking = asyncio.create_task(around.post(path, {**HI[path], "n": 2}))
        await around.engine.until(2, around.engine.rids)
        for rid, cached in zip(around.engine.rids, (16, 32), strict=True):
            around.engine.begin(rid, cached)
            around.engine.end(rid, Finish.STOP, 5)
        return await asking

    usage = asyncio.run(run()).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len(around.engine.prompts[0]), 10)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 16}


# Refusals


@PATHS
@pytest.mark.parametrize(
    "fields, param",
    [
        ({"prompt": None, "messages": None}, None),
        ({"prompt": [VOCAB], "messages": ["Hi"]}, None),
        ({"prompt": "", "messages": []}, None),
        ({"prompt": [[1], []], "messages": [{"role": "user", "content": 5}]}, None),
        ({"top_p": 5}, "top_p"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"stop_token_ids": [VOCAB]}, "stop_token_ids"),
        ({"n": 129}, "n"),
        ({"metadata": float("nan")}, "metadata"),
    ],
    ids=str,
)
@pytest.mark.parametrize("streamed", [False, True])
def test_refused_before_it_starts(
    around: Surroundings, path: str, fields: Any, param: str | None, streamed: bool
) -> None:
    """A wrong request gets its 400 also when it asks for a stream, and the engine never hears of it."""
    found = error(post(around, path, stream=streamed, **fields), 400)
    expected = param or ("prompt" if path == COMPLETIONS else "messages")
    assert (found["param"], found["type"]) == (expected, "invalid_request_error")
    assert not around.engine.submits
    assert not around.service.table.busy
    assert (around.service.row["http_requests"], around.service.row["http_refused"]) == (1, 1)


@pytest.mark.parametrize("prompt", ["", ["", "a"]], ids=repr)
def test_empty_prompt(tmp_path: Path, prompt: Any) -> None:
    """An empty text is a prompt where the model begins each prompt with a BOS token, and is none elsewhere."""
    assert error(post(Surroundings(tmp_path / "without"), COMPLETIONS, prompt=prompt), 400)["param"] == "prompt"
    around = Surroundings(tmp_path / "with", add_bos=True)
    assert post(around, COMPLETIONS, prompt=prompt).status_code == 200
    assert around.engine.prompts[0] == [0]
    assert post(around, "/tokenize", prompt="", messages=None).json()["tokens"] == [0]


@PATHS
def test_prompt_that_is_too_long(around: Surroundings, path: str) -> None:
    """A prompt that leaves no room is refused with both numbers and the OpenAI API's code; one that leaves room for
    a token gets it.
    """
    words = "word " * MAX_MODEL_LEN
    found = error(post(around, path, prompt=words, messages=[{"role": "user", "content": words}]), 400)
    assert str(MAX_MODEL_LEN) in found["message"]
    assert found["code"] == "context_length_exceeded"
    ids = [5] * MAX_MODEL_LEN
    assert str(MAX_MODEL_LEN) in error(post(around, COMPLETIONS, prompt=ids), 400)["message"]
    answer = post(around, COMPLETIONS, prompt=ids[:-1], max_tokens=50).json()
    assert answer["usage"]["completion_tokens"] == 1


@PATHS
def test_models(around: Surroundings, path: str) -> None:
    """The served names are accepted and come back; absent and null are the first; others are a short 404."""
    names = ["tiny", "alias"]
    listed = asyncio.run(_get(around, "/v1/models")).json()["data"]
    assert [entry["id"] for entry in listed] == names
    assert {entry["max_model_len"] for entry in listed} == {MAX_MODEL_LEN}
    assert [asyncio.run(_get(around, f"/v1/models/{name}")).json() for name in names] == listed
    assert error(asyncio.run(_get(around, "/v1/models/a/b")), 404)["code"] == "model_not_found"
    for name, shown in [*zip(names, names, strict=True), (None, "tiny")]:
        assert post(around, path, model=name).json()["model"] == shown
    for name in ["nope", "", "TINY", "../tiny", "é\0\n", "x" * 10**6]:
        response = post(around, path, model=name)
        found = error(response, 404)
        assert found["type"] == "not_found_error"
        assert "tiny, alias" in found["message"]
        assert len(response.content) < 1000
    for value in [5, True, ["tiny"], {}]:
        assert error(post(around, path, model=value), 400)["param"] == "model"


def test_queue_is_full(tmp_path: Path) -> None:
    """Beyond the queue's length requests are refused, with a time to come back; what never fits is a 400."""
    around = Surroundings(tmp_path / "model", max_queue=2, max_num_seqs=1)
    around.engine.by_hand = True

    async def run() -> None:
        asking = asyncio.create_task(around.post(COMPLETIONS, {"prompt": "Hi", "n": 2}))
        await around.engine.until(2, around.engine.rids)
        response = await around.post(COMPLETIONS, {"prompt": "Hi", "n": 2})
        assert error(response, 429)["type"] == "rate_limit_error"
        assert int(response.headers["retry-after"]) > 0
        assert error(await around.post(COMPLETIONS, {"prompt": "Hi", "n": 4}), 400)["param"] == "n"
        for rid in around.engine.rids[:2]:
            around.engine.end(rid, Finish.LENGTH)
        await asking
        around.engine.by_hand = False
        assert (await around.post(COMPLETIONS, {"prompt": "Hi", "n": 3})).status_code == 200

    asyncio.run(run())


@PATHS
def test_refused_before_tokenising(tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is refused because the queue is full costs no tokenising and no prompt ring; the next is served at once."""
    around = Surroundings(tmp_path / "model", max_queue=1, max_num_seqs=1)
    around.engine.by_hand = True
    prompts, body, tokenised = around.service.prompts, {**HI[path], "max_tokens": 3}, []
    for name in ("of_text", "of_messages"):
        encode = getattr(prompts, name)
        monkeypatch.setattr(prompts, name, lambda *args, encode=encode: (tokenised.append(args), encode(*args))[1])

    async def run() -> None:
        waiting = [asyncio.create_task(around.post(path, body)) for _ in range(2)]
        await around.engine.until(2, around.engine.rids)
        answers = await asyncio.gather(*(around.post(path, body) for _ in range(20)))
        assert [answer.status_code for answer in answers] == [429] * 20
        assert len(tokenised) == len(around.engine.submits) == 2
        for rid in around.engine.rids:
            around.engine.end(rid, Finish.LENGTH)
        await asyncio.gather(*waiting)
        around.engine.by_hand = False
        assert (await around.post(path, body)).status_code == 200

    asyncio.run(run())


async def _get(around: Surroundings, path: str, method: str = "GET", **headers: str) -> httpx.Response:
    async with around.client() as client:
        return await client.request(method, path, headers=headers)


@pytest.mark.parametrize(
    "method, path, status",
    [
        ("GET", "/nope", 404),
        ("POST", "/v1/nope", 404),
        ("GET", "/v1/models/", 404),
        ("GET", "//v1/models", 404),
        ("GET", "/", 404),
        ("GET", "/reset_prefix_cache", 405),
        ("GET", COMPLETIONS, 405),
        ("DELETE", CHAT, 405),
        ("PUT", "/tokenize", 405),
        ("POST", "/v1/models", 405),
        ("POST", "/health", 405),
        ("POST", "/v1/requests/nope/abort", 404),
        ("POST", "/v1/requests/a/b/abort", 404),
    ],
)
def test_wrong_routes_and_methods(around: Surroundings, method: str, path: str, status: int) -> None:
    """A route that is not there, or lacks the method, gives the same error object; nothing is redirected."""
    error(asyncio.run(_get(around, path, method)), status)


def test_bug(around: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in a handler is a 500 with an error object that shows nothing of the inside."""
    monkeypatch.setattr(around.service, "model_name", lambda body: 1 / 0)
    assert "division" not in error(post(around, COMPLETIONS), 500)["message"]


# Key and ids


def test_key(tmp_path: Path) -> None:
    """Every route but the probes wants the key, whatever the method and spelling; no answer shows it."""
    around = Surroundings(tmp_path / "model", api_key="secret-key")
    good = {"Authorization": "Bearer secret-key"}
    bad = [None, "", "Bearer", "Bearer ", "Bearer secret-key ", "Bearer secret-ke", "Basic secret-key", "secret-key"]
    for path in ["/v1/models", "//v1/models", "/v1/%6dodels", "/metrics", COMPLETIONS, "/", "/nope", "/live/", "/LIVE"]:
        for method in ["GET", "POST", "HEAD", "OPTIONS"]:
            for value in bad:
                response = asyncio.run(
                    _get(around, path, method, **({} if value is None else {"Authorization": value}))
                )
                assert response.status_code == 401
                assert "secret" not in response.text
    assert error(response := asyncio.run(_get(around, "/v1/models", "POST")), 401)["type"] == "authentication_error"
    assert response.headers["www-authenticate"] == "Bearer"
    for path in ["/live", "/health"]:
        assert asyncio.run(_get(around, path)).status_code == 200
    assert asyncio.run(_get(around, "/v1/models", **good)).status_code == 200
    assert asyncio.run(around.post(COMPLETIONS, HI[COMPLETIONS], **good)).status_code == 200


@pytest.mark.parametrize("path", ["/live", "/health", "/metrics", "/v1/models", "/openapi.json"])
def test_head(around: Surroundings, path: str) -> None:
    """HEAD is GET without the body."""
    found = asyncio.run(_get(around, path, "HEAD"))
    assert (found.status_code, found.content) == (200, b"")
    assert found.headers["content-type"] == asyncio.run(_get(around, path)).headers["content-type"]


@pytest.mark.parametrize("path, allowed", [(COMPLETIONS, {"POST"}), ("/live", {"GET", "HEAD"})])
def test_methods(around: Surroundings, path: str, allowed: set[str]) -> None:
    """Another method is refused with those that there are; OPTIONS is one of them where no origin is allowed."""
    for method in {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "NONSENSE"} - allowed:
        found = asyncio.run(_get(around, path, method, Origin="https://a.example"))
        error(found, 405)
        assert set(found.headers["allow"].split(", ")) == allowed
        assert not any(name.startswith("access-control") for name in found.headers)


ASKING = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
}


@pytest.mark.parametrize("origins, admitted", [(("https://a.example",), False), (("*",), True)])
def test_other_origins(tmp_path: Path, origins: tuple[str, ...], admitted: bool) -> None:
    """A page of an allowed origin may ask before it has a key, and may read answers, refusals too; others may not."""
    around = Surroundings(tmp_path / "model", api_key="k", allowed_origins=origins)
    for origin, allowed in [("https://a.example", True), ("https://b.example", admitted)]:
        asked = asyncio.run(_get(around, COMPLETIONS, "OPTIONS", Origin=origin, **ASKING))
        assert (asked.status_code == 200) == allowed
        found = asyncio.run(_get(around, "/v1/models", Origin=origin))
        error(found, 401)
        expected = {"*": "*"}.get(origins[0], origin) if allowed else None
        for answer in (asked, found):
            assert answer.headers.get("access-control-allow-origin") == expected
            assert "access-control-allow-credentials" not in answer.headers
        assert "X-Request-Id" in found.headers["access-control-expose-headers"]


@pytest.mark.parametrize(
    "given, echoed",
    [("a.B-9_", True), ("x" * 128, True), ("x" * 129, False), ("a b", False), ("", False), ("a\tb", False)],
)
def test_request_id(around: Surroundings, given: str, echoed: bool) -> None:
    """A request id of a sound shape comes back on every kind of answer; any other is replaced."""
    for path, method in [("/live", "GET"), ("/nope", "GET"), (COMPLETIONS, "POST")]:
        found = asyncio.run(_get(around, path, method, **{"X-Request-Id": given})).headers["x-request-id"]
        assert (found == given) == echoed
        assert found


def test_same_request_id_twice(around: Surroundings) -> None:
    """Two live requests may bring the same id: their own ids are fresh."""

    async def run() -> list[httpx.Response]:
        return await asyncio.gather(
            *[around.post(COMPLETIONS, HI[COMPLETIONS], **{"X-Request-Id": "same"}) for _ in range(3)]
        )

    answers = asyncio.run(run())
    assert len({answer.json()["id"] for answer in answers}) == 3
    assert len(set(around.engine.rids)) == 3


# Abort


def test_abort(around: Surroundings) -> None:
    """A request ends by the id in its answer; its client gets the text so far. An ended one is not found."""
    around.engine.by_hand = True

    async def run() -> httpx.Response:
        asking = asyncio.create_task(around.post(COMPLETIONS, {"prompt": "Hi", "stream": True}))
        await around.engine.until(1, around.engine.rids)
        (rid, (request_id,)) = around.engine.rids[0], around.service.table._requests
        around.engine.say(rid, "text")
        for wrong in [request_id[:-1], request_id + "x", request_id.upper(), "%2e%2e"]:
            error(await around.post(f"/v1/requests/{wrong}/abort", b""), 404)
        response = await around.post(f"/v1/requests/{request_id}/abort", b"")
        assert response.json() == {"id": request_id, "status": "aborted"}
        await around.engine.until(1, around.engine.aborts)
        around.engine.end(rid, Finish.ABORT)
        answer = await asking
        error(await around.post(f"/v1/requests/{request_id}/abort", b""), 404)
        return answer

    chunks = events(asyncio.run(run()))
    assert "".join(texts(chunk["choices"][0]) for chunk in chunks) == "text"
    assert chunks[-1]["choices"][0]["finish_reason"] == "abort"
    assert [(one.reason, one.keep) for one in around.engine.aborts] == [(Finish.ABORT, 0)]


# The prefix cache


@pytest.mark.parametrize(
    "body, force", [(b"", False), (b" \n", False), ({}, False), ({"force": None}, False), ({"force": True}, True)]
)
@pytest.mark.parametrize("cache", [True, False])
def test_reset_prefix_cache(tmp_path: Path, body: Any, force: bool, cache: bool) -> None:
    """A reset is done, or refused with the engine's reason, whether there is a cache or not."""
    around = Surroundings(tmp_path / "model", prefix_cache=cache)

    async def run() -> None:
        for finish in (Finish.STOP, Finish.REJECTED):
            asking = asyncio.create_task(around.post("/reset_prefix_cache", body))
            await around.engine.until(1, around.engine.resets)
            reset = around.engine.resets.pop()
            assert reset.force == force
            around.engine.end(reset.rid, finish, 0, detail="3 requests are running")
            if finish is Finish.STOP:
                assert (await asking).json() == {"status": "reset"}
            else:
                assert error(await asking, 409)["message"] == "3 requests are running"
        assert not around.service.table.busy

    asyncio.run(run())


@pytest.mark.parametrize("body", [{"force": 1}, {"force": "yes"}, {"x": float("nan")}, [], b"null", b"{", b"\xff"])
def test_bad_resets(around: Surroundings, body: Any) -> None:
    """What is no sound body is refused, and the engine never hears of it."""
    error(asyncio.run(around.post("/reset_prefix_cache", body)), 400)
    assert not around.engine.resets


def test_reset_before_readiness(around: Surroundings) -> None:
    """While there is no engine there is no cache to forget."""
    around.board.row("supervisor").enter(State.STARTING)
    around.board.row("scheduler0").enter(State.STARTING)
    assert error(asyncio.run(around.post("/reset_prefix_cache", b"")), 503)["code"] == "starting"


# Tokens


@pytest.mark.parametrize("text", ["Hello", "<s>a<|end|>", " 世界 👋\n", ""])
def test_tokens_round_trip(around: Surroundings, text: str) -> None:
    """/tokenize gives the ids of a prompt as they are submitted, and /detokenize the text of them."""
    found = post(around, "/tokenize", prompt=text, messages=None).json()
    assert (found["count"], found["max_model_len"]) == (len(found["tokens"]), MAX_MODEL_LEN)
    assert post(around, "/detokenize", tokens=found["tokens"]).json() == {"prompt": text}
    if text:
        assert post(around, COMPLETIONS, prompt=text).json()["usage"]["prompt_tokens"] == found["count"]
        assert around.engine.prompts == [found["tokens"]]


TURNS = [{"role": "user", "content": "Hi <s>"}, {"role": "assistant", "content": "Well, "}]


@pytest.mark.parametrize("add_bos", [False, True])
@pytest.mark.parametrize(
    "path, fields",
    [
        *((COMPLETIONS, {"add_special_tokens": value}) for value in (None, False, True)),
        *((CHAT, {"add_special_tokens": value}) for value in (None, False, True)),
        *((CHAT, {"add_generation_prompt": value, "messages": TURNS}) for value in (None, False, True)),
        (CHAT, {"continue_final_message": True, "messages": TURNS}),
        (CHAT, {"continue_final_message": True, "add_generation_prompt": False, "messages": TURNS}),
    ],
    ids=str,
)
def test_tokens_are_those_of_a_request(tmp_path: Path, add_bos: bool, path: str, fields: dict[str, Any]) -> None:
    """/tokenize gives the ids that the request would have, and as many as its usage says."""
    around = Surroundings(tmp_path / "model", add_bos=add_bos)
    found = post(around, "/tokenize", **{**HI[path], **fields}).json()
    usage = post(around, path, **fields).json()["usage"]
    assert around.engine.prompts == [found["tokens"]]
    assert usage["prompt_tokens"] == found["count"] == len(found["tokens"])


def test_framing_changes_the_tokens(tmp_path: Path) -> None:
    """BOS, the assistant's turn and an open last message are there, or not, as asked for."""
    around = Surroundings(tmp_path / "model", add_bos=True)

    def shown(**fields: Any) -> str:
        tokens = post(around, "/tokenize", messages=TURNS, **fields).json()["tokens"]
        return str(post(around, "/detokenize", tokens=[5, *tokens]).json()["prompt"])[1:]

    closed = "<s>user\nHi <s><|end|><s>assistant\nWell, <|end|>"
    assert shown() == shown(add_special_tokens=False) == closed + "<s>assistant\n"
    assert shown(add_special_tokens=True) == "<s>" + closed + "<s>assistant\n"
    assert shown(add_generation_prompt=False) == closed
    assert shown(continue_final_message=True) == closed.removesuffix("<|end|>")


def test_spelling_of_tokens(around: Surroundings) -> None:
    """On request the ids come with what the vocabulary calls them."""
    found = post(around, "/tokenize", prompt=" é", return_token_strs=True).json()
    assert "".join(found["token_strs"]) == "ĠÃ©"
    assert len(found["token_strs"]) == found["count"]


@pytest.mark.parametrize(
    "path, body",
    [
        ("/tokenize", {}),
        ("/tokenize", {"prompt": 5}),
        ("/tokenize", {"prompt": "x", "messages": 5}),
        ("/tokenize", {"messages": HI[CHAT]["messages"], "chat_template": "x"}),
        ("/tokenize", {"prompt": "x", "add_special_tokens": 1}),
        ("/tokenize", {"messages": HI[CHAT]["messages"], "add_generation_prompt": "true"}),
        ("/tokenize", HI[CHAT] | {"add_generation_prompt": True, "continue_final_message": True}),
        ("/detokenize", {}),
        ("/detokenize", {"tokens": ["x"]}),
        ("/detokenize", {"tokens": [10**6]}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": 5}),
    ],
    ids=str,
)
def test_tokens_refused(around: Surroundings, path: str, body: Any) -> None:
    """The routes beside the two that generate refuse in the same way."""
    error(asyncio.run(around.post(path, body)), 400)


# Readiness


def test_before_readiness(around: Surroundings) -> None:
    """A server that starts is live and not ready, and refuses to generate for now."""
    around.board.row("supervisor").enter(State.STARTING)
    around.board.row("executor0").enter(State.STARTING)
    assert asyncio.run(_get(around, "/live")).status_code == 200
    health = asyncio.run(_get(around, "/health"))
    assert (health.status_code, health.json()["status"]) == (503, "starting")
    for path in [COMPLETIONS, CHAT, "/tokenize", "/detokenize"]:
        assert error(post(around, path, tokens=[1]), 503)["code"] == "starting"
    error(asyncio.run(_get(around, "/v1/models")), 503)
    assert asyncio.run(_get(around, "/metrics")).status_code == 200


@PATHS
def test_degraded(around: Surroundings, path: str) -> None:
    """A server of which a process is being replaced says so, and takes requests in as if nothing were."""
    around.board.row("executor0").enter(State.STARTING)
    health = asyncio.run(_get(around, "/health"))
    assert (health.status_code, health.json()["status"]) == (503, "degraded")
    assert post(around, path, max_tokens=2).json()["usage"]["completion_tokens"] == 2
    assert asyncio.run(_get(around, "/v1/models")).status_code == 200


def test_draining(around: Surroundings) -> None:
    """A server that drains takes nothing new and asks clients to go elsewhere; what runs goes on."""
    around.engine.by_hand = True

    async def run() -> httpx.Response:
        asking = asyncio.create_task(around.post(COMPLETIONS, HI[COMPLETIONS]))
        await around.engine.until(1, around.engine.rids)
        around.service.draining = True
        response = await around.post(COMPLETIONS, HI[COMPLETIONS])
        assert error(response, 503)["code"] == "draining"
        assert response.headers["connection"] == "close"
        assert (await _get(around, "/health")).json()["status"] == "draining"
        around.engine.end(around.engine.rids[0], Finish.LENGTH)
        return await asking

    assert asyncio.run(run()).status_code == 200
