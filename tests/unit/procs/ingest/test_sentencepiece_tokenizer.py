"""SentencePiece models: the ids of the algorithm itself, the text back again, and nobody types a control token."""

import itertools
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fourstroke.procs.detokenizer import Detokenizer
from fourstroke.procs.ingest.load_tokenizer import load_tokenizer
from fourstroke.procs.ingest.sentencepiece_tokenizer import sentencepiece_tokenizer
from fourstroke.procs.ingest.tokenizer import ModelTokenizer, SpaceBefore
from fourstroke.procs.sentencepiece_file import PieceType, SentencePieces
from fourstroke.procs.vocabulary import pieces_vocabulary

from ..tokenizer_files import pieces, pieces_file, write_gguf_pieces

LETTERS = st.text("aab cé世 👋\n\x00", max_size=12)
SPELLED = st.sampled_from(["<s>", "<unk>", "<|end|>", "<0x0A>", "<tool>", "</s", "  ", "e\u0301", "\r\n"])
TEXTS = st.lists(LETTERS | SPELLED | st.text(max_size=4), max_size=6).map(lambda parts: "".join(parts).replace("▁", ""))


def tokenizer(model: SentencePieces, space: SpaceBefore = SpaceBefore.FIRST, **config: bool) -> ModelTokenizer:
    made = sentencepiece_tokenizer(model, None)
    return ModelTokenizer(made, pieces_vocabulary(model), model.special, None, config.get("add_bos", False), space)


def by_the_paper(model: SentencePieces, text: str) -> list[int]:
    """Byte-pair encoding as SentencePiece does it: the neighbours of the best score are joined, the leftmost first."""
    ids = {text: token for token, text in enumerate(model.texts)}
    normal = {text for text, kind in zip(model.texts, model.types, strict=True) if kind == PieceType.NORMAL}
    symbols = list(text.replace(" ", "▁"))
    while True:
        pairs = [a + b for a, b in itertools.pairwise(symbols)]
        joined = [(-model.scores[ids[pair]], place) for place, pair in enumerate(pairs) if pair in normal]
        if not joined:
            break
        place = min(joined)[1]
        symbols[place : place + 2] = [pairs[place]]
    found: list[int] = []
    for symbol in symbols:
        found += [ids[symbol]] if symbol in normal else [ids[f"<0x{byte:02X}>"] for byte in symbol.encode()]
    return found


@st.composite
def models(draw: st.DrawFn) -> SentencePieces:
    """A model of random words over a few letters, in random order. Every word has its letters as tokens, too."""
    words = draw(st.sets(st.text("▁ab", min_size=2, max_size=5), max_size=30))
    ranked = sorted({*words, *"▁ab"})
    random.Random(draw(st.integers(0, 9))).shuffle(ranked)
    return pieces(ranked)


@settings(deadline=None)
@given(models(), st.text("ab 世", max_size=14))
def test_equals_the_algorithm(model: SentencePieces, text: str) -> None:
    """The merges made of scores give the ids that the algorithm gives with the scores."""
    assert tokenizer(model, SpaceBefore.NONE).encode_text(text) == by_the_paper(model, text)


@settings(deadline=None)
@given(TEXTS, st.sampled_from(SpaceBefore), st.booleans(), st.booleans())
def test_round_trip(text: str, space: SpaceBefore, unigram: bool, add_bos: bool) -> None:
    """Decoding gives the text, white space at its ends included, and no id is a control token's."""
    made = tokenizer(pieces(unigram=unigram), space, add_bos=add_bos)
    assert made.decode(made.encode_prompt(text)) == text
    assert not {0, 1, 2}.intersection(made.encode_text(text))


@settings(deadline=None)
@given(TEXTS, TEXTS, st.sampled_from(SpaceBefore))
def test_round_trip_behind_a_control_token(before: str, behind: str, space: SpaceBefore) -> None:
    """A space that is put behind a control token is taken away there as well."""
    made = tokenizer(pieces(), space)
    ids = [*made.encode_text(before), 2, *made.encode_text(behind, first=False)]
    assert made.decode(ids) == f"{before}<|end|>{behind}"


@settings(deadline=None)
@given(TEXTS, TEXTS, st.sampled_from(SpaceBefore))
def test_generated_text_goes_on_with_the_prompt(prompt: str, answer: str, space: SpaceBefore) -> None:
    """The space that decoding takes away is the prompt's: what is generated keeps its own, and joins the prompt."""
    made = tokenizer(pieces(), space)
    before, ids = made.encode_prompt(prompt or "a"), made.encode_text(answer, first=False)
    generated = [made.token_bytes[token] for token in ids]
    decoder = Detokenizer()
    text = "".join([decoder.push(piece) for piece in generated])
    assert text == b"".join(generated).decode()
    assert made.decode([*before, *ids]) == made.decode(before) + text


@pytest.mark.parametrize(
    "space, first, behind", [(SpaceBefore.NONE, "", ""), (SpaceBefore.FIRST, " ", ""), (SpaceBefore.EVERY, " ", " ")]
)
@pytest.mark.parametrize("text", ["ab", " ab", "<tool>ab<tool>"])
def test_space_before(space: SpaceBefore, first: str, behind: str, text: str) -> None:
    """The space is there once, also before a text that begins with one, and not behind a word of the user's own."""
    made = tokenizer(pieces(), space)
    for put, is_first in ((first, True), (behind, False)):
        assert b"".join(made.token_bytes[token] for token in made.encode_text(text, is_first)).decode() == put + text


def test_words_of_the_users_own() -> None:
    """A token that the model was given is found in any text, with spaces in it, too."""
    model = pieces(["▁", "a"])
    spaces = pieces(["▁", "a"], texts=[*model.texts[:259], "▁▁▁", *model.texts[260:]])
    assert tokenizer(model, SpaceBefore.NONE).encode_text("a<tool>a") == [261, 259, 261]
    assert tokenizer(spaces, SpaceBefore.NONE).encode_text("a    a") == [261, 259, 260, 261]


def test_spaces_that_the_model_squeezes() -> None:
    """A model that was trained so has one space for many, and none at the end."""
    made = tokenizer(pieces(squeezes_spaces=True))
    assert made.encode_text("  a   b  ") == made.encode_text("a b")
    without = tokenizer(pieces(squeezes_spaces=True), SpaceBefore.NONE)
    assert without.decode(without.encode_text("a   b  ")) == "a b"


def test_either_file(tmp_path: Path) -> None:
    """A tokenizer.model and GGUF metadata give the same ids, control tokens and BOS."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "tokenizer.model").write_bytes(pieces_file(pieces()))
    folder = load_tokenizer(str(tmp_path / "model"))
    file = load_tokenizer(str(write_gguf_pieces(tmp_path / "model.gguf", pieces())))
    assert folder.controls == file.controls
    assert folder.encode_prompt("ab <s> 世👋") == file.encode_prompt("ab <s> 世👋")
    assert folder.bos_id == file.bos_id == file.encode_prompt("")[0] == 1
    assert folder.encode_text("a", False) == file.encode_text("a", False) == file.encode_text("a")
    (tmp_path / "model" / "tokenizer_config.json").write_text('{"legacy": false}')
    assert load_tokenizer(str(tmp_path / "model")).encode_text("a", False) != folder.encode_text("a", False)


def test_markers_that_are_no_control_tokens() -> None:
    """What looks like a marker and stands in the template is the template's alone; another added word is anybody's."""
    texts = pieces().texts
    for text, template, control in [
        ("<|user|>", "{{ '<|user|>' }}", True),
        ("<|user|>", "{{ '<|im_start|>' }}", False),
        ("<tool>", "{{ '<tool>' }}", False),
    ]:
        model = pieces(texts=[*texts[:259], text, *texts[260:]])
        made = ModelTokenizer(sentencepiece_tokenizer(model, template), pieces_vocabulary(model), {}, template, False)
        assert (259 in {found.id for found in made.controls}) == control
        assert (made.encode_text(f"a{text}a").count(259) == 1) != control
        assert 259 not in made.special_ids
