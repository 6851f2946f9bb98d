"""The detokeniser gives one whole decode, piece by piece, and each piece as early as it is certain."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.procs.detokenizer import Detokenizer, TokenTable
from fourstroke.procs.vocabulary import Vocabulary

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
