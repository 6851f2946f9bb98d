"""What tokens are called in logprobs objects: by their text if they have one, otherwise by their bytes."""

import json
from typing import Any

import pytest

from fourstroke.procs.ingest.token_names import TokenNames


def in_chat(names: TokenNames, token: int) -> Any:
    before, after = names.in_chat(token)
    return json.loads(f"{before}-1{after}}}")


def in_completion(names: TokenNames, token: int) -> Any:
    return json.loads(names.in_completion(token))


def test_every_token(names: TokenNames) -> None:
    """The bytes are the token's; its name is their text; no two tokens of this vocabulary have one name."""
    called = [in_chat(names, token) for token in range(names.table.unknown)]
    assert [bytes(one["bytes"]) for one in called] == names.tokenizer.token_bytes
    for one, data in zip(called, names.tokenizer.token_bytes, strict=True):
        assert one["token"].encode() == data or "\\x" in one["token"]
    assert len({in_completion(names, token) for token in range(names.table.unknown)}) == names.table.unknown


@pytest.mark.parametrize(
    "data, chat, completion",
    [(b"a", "a", "a"), (b"\xf0", "\\xf0", "bytes:\\xf0"), (b"\x9f", "\\x9f", "bytes:\\x9f"), (b"<s>", "<s>", "<s>")],
)
def test_names(names: TokenNames, data: bytes, chat: str, completion: str) -> None:
    """A part of a character is spelled as the OpenAI API does; a control token is shown."""
    token = names.tokenizer.token_bytes.index(data)
    assert (in_chat(names, token)["token"], in_completion(names, token)) == (chat, completion)


@pytest.mark.parametrize("token", [-1, 400, 2**31 - 1])
def test_ids_that_no_token_has(names: TokenNames, token: int) -> None:
    """They are called by the id and have no bytes."""
    assert in_chat(names, token) == {"token": f"token_id:{token}", "logprob": -1, "bytes": None}
    assert in_completion(names, token) == f"token_id:{token}"
