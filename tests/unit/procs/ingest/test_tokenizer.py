"""Text to ids: nothing is lost, nothing is added, and nobody can type a control token."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fourstroke.procs.ingest.load_tokenizer import load_tokenizer
from fourstroke.procs.ingest.tokenizer import ModelTokenizer, TooManyTokens

from ..tokenizer_files import byte_level, metaspace, write_folder, write_gguf

# SmolLM2 has no token for these control characters nor for planes without characters; transformers drops them too.
KNOWN = st.characters(exclude_categories=["Cs"], exclude_characters="\x04\x06\x13\x14\x16\x1d", max_codepoint=0x1FFFF)
SPELLED = st.sampled_from(["<|im_end|>", "<|im_start|>", "<|", "|>", "<|im_", "im_end|>", "12", " ", "\n"])
TEXTS = st.lists(SPELLED | st.text(KNOWN, max_size=8), max_size=8).map("".join)


@pytest.fixture(scope="module")
def tokenizer(model_path: Path) -> ModelTokenizer:
    return load_tokenizer(str(model_path))


def joined(tokenizer: ModelTokenizer, ids: list[int]) -> bytes:
    return b"".join(tokenizer.token_bytes[token] for token in ids)


@settings(deadline=None)
@given(TEXTS)
def test_round_trip(tokenizer: ModelTokenizer, text: str) -> None:
    """The bytes of a text's ids are the text's bytes, and none of the ids is a control token."""
    ids = tokenizer.encode_text(text)
    assert joined(tokenizer, ids) == text.encode()
    assert not tokenizer.special_ids.intersection(ids)
    assert tokenizer.decode(ids) == text


@settings(deadline=None)
@given(TEXTS)
def test_size_is_a_bound(tokenizer: ModelTokenizer, text: str) -> None:
    """A text of n tokens has at most most_bytes(n) bytes."""
    assert len(text.encode()) <= tokenizer.most_bytes(len(tokenizer.encode_text(text)))


def test_default_model(tokenizer: ModelTokenizer) -> None:
    """The default model's numbers: digits one by one, control tokens by id, no BOS put before a prompt."""
    assert tokenizer.vocab_size == 49152
    assert tokenizer.special_ids == set(range(17))
    assert (tokenizer.bos_id, tokenizer.add_bos) == (1, False)
    assert tokenizer.special_tokens["eos_token"] == "<|im_end|>"
    assert tokenizer.encode_prompt("Hello") == [19556]
    assert tokenizer.encode_prompt("1, 22") == [33, 28, 216, 34, 34]
    assert [tokenizer.encode_text(text) for text in ("...", "\n\n", " ")] == [[2026], [1116], [216]]


def test_same_ids_as_transformers(tokenizer: ModelTokenizer, model_path: Path) -> None:
    """transformers, which reads GGUF files on its own, finds the same ids."""
    auto = pytest.importorskip("transformers").AutoTokenizer
    other = auto.from_pretrained(str(model_path.parent), gguf_file=model_path.name)
    for text in [
        "Hello, world! 2024",
        "  a\tb\r\n\n c",
        "世界 👋🏽 naïve",
        "x = f(y)**2;\n\treturn {'a': 1}",
        "don't I'LL",
    ]:
        assert tokenizer.encode_text(text) == other.encode(text, add_special_tokens=False)


def test_qwen2_normalises(tmp_path: Path) -> None:
    """Qwen2 composes characters first, and the bound on sizes allows for it."""
    tokenizer = load_tokenizer(str(write_gguf(tmp_path / "model.gguf", byte_level(), "qwen2")))
    assert tokenizer.encode_text("e\u0301") == tokenizer.encode_text("é")
    assert tokenizer.most_bytes(1) == 3 * max(map(len, tokenizer.token_bytes))


def test_bos(tmp_path: Path) -> None:
    """A model that wants a BOS gets one before a prompt, not before a text, and decoding takes it away."""
    tokenizer = load_tokenizer(str(write_gguf(tmp_path / "model.gguf", byte_level(), "gpt-2")))
    assert tokenizer.encode_prompt("fox") == [0, *tokenizer.encode_text("fox")]
    assert tokenizer.encode_prompt("") == [0]
    assert tokenizer.encode_prompt("fox", len(tokenizer.encode_prompt("fox"))) == tokenizer.encode_prompt("fox")
    with pytest.raises(TooManyTokens) as raised:
        tokenizer.encode_prompt("fox", len(tokenizer.encode_prompt("fox")) - 1)
    assert raised.value.count == len(tokenizer.encode_prompt("fox"))
    assert tokenizer.decode(tokenizer.encode_prompt("fox")) == "fox"


def test_space_before_the_first_text_alone(tmp_path: Path) -> None:
    """A SentencePiece tokenizer that puts a space before a prompt puts none after a control token."""
    tokenizer = load_tokenizer(str(write_folder(tmp_path / "model", metaspace())))
    assert joined(tokenizer, tokenizer.encode_text("ab a")) == b" ab a"
    assert joined(tokenizer, tokenizer.encode_text("ab a", first=False)) == b"ab a"
    assert tokenizer.decode(tokenizer.encode_prompt("ab a é<s>")) == "ab a é<s>"
