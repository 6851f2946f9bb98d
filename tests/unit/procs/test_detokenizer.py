"""The detokeniser gives one whole decode, piece by piece, and each piece as early as it is certain."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fourstroke.procs import detokenizer
from fourstroke.procs.detokenizer import Detokenizer, TokenTable
from fourstroke.procs.vocabulary import Vocabulary, load_vocabulary

from .tokenizer_files import byte_level, metaspace, pieces, write_folder, write_gguf_pieces

CHARACTERS = {chr(code).encode() for code in (*range(0x80, 0xD800), *range(0xE000, 0x110000))}
BEGINNINGS = {character[:length] for character in CHARACTERS for length in range(1, len(character))}
"""All byte sequences that can still become a character."""

EDGES = bytes.fromhex("00 41 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")
"""Where the classes of bytes of UTF-8 begin and end."""

near_utf8 = st.lists(st.sampled_from(EDGES) | st.integers(0, 255), max_size=5).map(bytes)
tokens = st.lists(near_utf8 | st.text(max_size=3).map(str.encode), max_size=12)


def whole(data: bytes) -> str:
    """The text of all the bytes under the rule for the tail: one that could still become a character has none."""
    tail = next((length for length in (3, 2, 1) if data[-length:] in BEGINNINGS and length <= len(data)), 0)
    return data[: len(data) - tail].decode("utf-8", "replace")


def test_every_sequence_of_edge_bytes():
    """Byte by byte the text is the whole decode: all sequences of three edge bytes, of four behind a byte F0..F4."""
    sequences = [*product(EDGES, repeat=1), *product(EDGES, repeat=2), *product(EDGES, repeat=3)]
    for sequence in [*sequences, *product(b"\xf0\xf3\xf4", EDGES, EDGES, EDGES)]:
        decoder = Detokenizer()
        text = "".join([decoder.push(bytes([byte])) for byte in sequence])
        assert text == whole(bytes(sequence)), bytes(sequence)


@given(tokens)
def test_deltas_join_to_one_whole_decode(pieces):
    """Whatever bytes the tokens hold, the joined deltas are the whole decode after each of them."""
    decoder, text = Detokenizer(), ""
    for count, piece in enumerate(pieces, 1):
        text += decoder.push(piece)
        assert text == whole(b"".join(pieces[:count]))


@given(st.text())
def test_text_survives_byte_by_byte(text):
    """Valid text comes back unchanged and never shows U+FFFD for a character that completes."""
    decoder = Detokenizer()
    assert "".join([decoder.push(bytes([byte])) for byte in text.encode()]) == text


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=20))
def test_ids_outside_the_vocabulary_have_no_text(ids):
    """Every int32, negative ones too, has an entry, and the entry of an unknown id is empty."""
    known = [b"a", b"<end>", b"\xe2"]
    table = TokenTable.of(Vocabulary(known, frozenset({1})))
    places = table.places(np.array(ids, np.int32))
    assert [table.shown[place] for place in places] == [known[i] if i in range(3) else b"" for i in ids]
    assert [table.plain[place] for place in places] == [{0: b"a", 2: b"\xe2"}.get(i, b"") for i in ids]


@pytest.fixture(scope="module", params=["default", "byte-level", "metaspace", "pieces"])
def vocabulary(
    request: pytest.FixtureRequest, model_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Vocabulary:
    """That of the default model, or a small one of another kind."""
    folder = tmp_path_factory.mktemp("vocabulary")
    made = {
        "default": lambda: model_path,
        "byte-level": lambda: write_folder(folder, byte_level()),
        "metaspace": lambda: write_folder(folder, metaspace()),
        "pieces": lambda: write_gguf_pieces(folder / "model.gguf", pieces()),
    }
    return load_vocabulary(str(made[request.param]()))


@settings(deadline=None)
@given(data=st.data(), shown=st.booleans())
def test_any_ids_of_any_vocabulary(vocabulary: Vocabulary, data: st.DataObject, shown: bool) -> None:
    """Ids drawn from a whole vocabulary, control tokens and parts of characters among them, in any chunks."""
    size = len(vocabulary.token_bytes)
    parts = [token for token, piece in enumerate(vocabulary.token_bytes) if not is_text(piece)]
    ids = st.integers(0, size - 1) | st.sampled_from(parts or [0]) | st.integers(size, 2**31 - 1)
    chunks = data.draw(st.lists(st.lists(ids, max_size=6), max_size=8))
    table = TokenTable.of(vocabulary)
    entries = table.shown if shown else table.plain
    decoder, text, read = Detokenizer(), "", b""
    for chunk in chunks:
        piece = b"".join([entries[place] for place in table.places(np.array(chunk, np.int32)).tolist()])
        text, read = text + decoder.push(piece), read + piece
        assert text == whole(read)
    hidden = set() if shown else vocabulary.special_ids
    known = [token for chunk in chunks for token in chunk if token < size and token not in hidden]
    assert read == b"".join([vocabulary.token_bytes[token] for token in known])


def is_text(piece: bytes) -> bool:
    try:
        return bool(piece.decode())
    except UnicodeDecodeError:
        return False


@pytest.mark.parametrize(
    "piece", [b" word", "世".encode(), b"\xe4", b"\xf0\x9f\x91", b"\x8b", b"\xed\xa0", b"\xff", b""], ids=repr
)
def test_cost_of_a_token_stays_flat(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 100,000 tokens each costs its own bytes and at most three that were kept back before."""
    most = 0

    def counting(data: bytes, errors: str, final: bool) -> tuple[str, int]:
        nonlocal most
        most = max(most, len(data))
        return decode(data, errors, final)

    decode = detokenizer.utf_8_decode
    monkeypatch.setattr(detokenizer, "utf_8_decode", counting)
    decoder = Detokenizer()
    for _ in range(100_000):
        decoder.push(piece)
    assert most <= len(piece) + 3
