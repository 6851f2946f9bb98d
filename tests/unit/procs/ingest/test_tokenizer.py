"""Text to ids: nothing is lost, nothing is added, and nobody can type a control token."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, normalizers

from fourstroke.procs.ingest.load_tokenizer import load_tokenizer
from fourstroke.procs.ingest.space_before import take_space
from fourstroke.procs.ingest.tokenizer import ModelTokenizer, SpaceBefore, TooManyTokens

from ..tokenizer_files import byte_level, metaspace, whole_words, write_folder, write_gguf

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
    assert tokenizer.encode_prompt("fox", most=len(tokenizer.encode_prompt("fox"))) == tokenizer.encode_prompt("fox")
    with pytest.raises(TooManyTokens) as raised:
        tokenizer.encode_prompt("fox", most=len(tokenizer.encode_prompt("fox")) - 1)
    assert raised.value.count == len(tokenizer.encode_prompt("fox"))
    assert tokenizer.decode(tokenizer.encode_prompt("fox")) == "fox"


@pytest.mark.parametrize("text", ["@system", "@system@system", "a @system", "<s>@system<|end|>"])
def test_control_token_that_is_a_word(tmp_path: Path, text: str) -> None:
    """A model that takes whole words for tokens takes none for a control token."""
    tokenizer = load_tokenizer(str(write_folder(tmp_path / "model", whole_words())))
    ids = tokenizer.encode_text(text)
    assert not tokenizer.special_ids.intersection(ids)
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize(
    "flags", [{}, {"lstrip": True, "rstrip": True}, {"single_word": True}, {"normalized": True}], ids=str
)
@pytest.mark.parametrize("text", ["a  <X>  b", "<X>", " <X> ", "a<X><X>b"])
def test_control_token_with_flags(tmp_path: Path, flags: dict[str, bool], text: str) -> None:
    """However a control token is declared, a text that spells it keeps its letters and the white space around."""
    model = byte_level()
    model.normalizer = normalizers.NFC()
    model.add_special_tokens([AddedToken("<X>", **{"normalized": False, **flags})])
    tokenizer = load_tokenizer(str(write_folder(tmp_path / "model", model)))
    ids = tokenizer.encode_text(text)
    assert not tokenizer.special_ids.intersection(ids)
    assert tokenizer.decode(ids) == text


def test_control_token_that_normalisation_makes(tmp_path: Path) -> None:
    """Letters that only become a control token's are no control token either."""
    path = write_folder(tmp_path / "model", byte_level()) / "tokenizer.json"
    spec = json.loads(path.read_text())
    tokens = [["<s>", 0.0], ["<|end|>", 0.0], ["<unk>", -9.0], *([letter, -9.0] for letter in "<>s|end")]
    spec["model"] = {"type": "Unigram", "unk_id": 2, "vocab": tokens, "byte_fallback": False}
    spec |= {"normalizer": {"type": "NFKC"}, "pre_tokenizer": None}
    path.write_text(json.dumps(spec))
    tokenizer = load_tokenizer(str(path.parent))
    assert tokenizer.encode_text("＜s＞<s>") == [3, 5, 4, 3, 5, 4]


def test_truncation_and_padding(tmp_path: Path) -> None:
    """What a tokenizer.json says of them is of its training: a prompt is never cut or filled up."""
    model = byte_level()
    plain = load_tokenizer(str(write_folder(tmp_path / "model", model))).encode_text("The quick brown fox")
    model.enable_truncation(2)
    model.enable_padding(length=64)
    assert load_tokenizer(str(write_folder(tmp_path / "model", model))).encode_text("The quick brown fox") == plain


@pytest.mark.parametrize(
    "part, name",
    [
        ({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}, "FIRST"),
        ({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}, "EVERY"),
        ({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": False}, "NONE"),
        ({"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}, "EVERY"),
        ({"type": "Metaspace", "replacement": "▁", "add_prefix_space": False}, "NONE"),
        ({"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}, "EVERY"),
        ({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}, "NONE"),
        ({"type": "Prepend", "prepend": "▁"}, "EVERY"),
        ({"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, "NONE"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_ways_to_write_down_the_space(part: dict[str, Any], name: str, nested: bool) -> None:
    """Wherever a tokenizer.json says that a space goes first, alone or among other steps, it is found and taken out."""
    field, steps = (
        ("normalizer", "normalizers") if part["type"] in ("Prepend", "Replace") else ("pre_tokenizer", "pretokenizers")
    )
    spec, found = take_space({field: {"type": "Sequence", steps: [part]} if nested else part})
    assert found is SpaceBefore[name]
    assert take_space(spec) == (spec, SpaceBefore.NONE)


def test_space_before_the_first_text_alone(tmp_path: Path) -> None:
    """A SentencePiece tokenizer that puts a space before a prompt puts none after a control token."""
    tokenizer = load_tokenizer(str(write_folder(tmp_path / "model", metaspace())))
    assert joined(tokenizer, tokenizer.encode_text("ab a")) == b" ab a"
    assert joined(tokenizer, tokenizer.encode_text("ab a", first=False)) == b"ab a"
    assert tokenizer.decode(tokenizer.encode_prompt("ab a é<s>")) == "ab a é<s>"
