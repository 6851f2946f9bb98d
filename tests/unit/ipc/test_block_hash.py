"""The chain of block hashes: known values, an implementation of its own, and what tells blocks apart."""

import hashlib
import random

import numpy as np
import pytest

from fourstroke.ipc.block_hash import (
    ROOT,
    block_keys,
    chain,
    encode_blocks,
    extend,
    root,
)
from fourstroke.ipc.messages import CacheKeys, Image

NO_KEYS = CacheKeys()


def column(*tokens: int) -> np.ndarray:
    return np.array(tokens, np.int32)


def split(packed: bytes) -> list[bytes]:
    return [packed[at : at + 32] for at in range(0, len(packed), 32)]


def digests(tokens, block_size=4, keys=NO_KEYS, images=()) -> list[bytes]:
    return split(chain(column(*tokens), block_size, keys, images))


def published(digest: bytes) -> int:
    """What the world is told of a digest."""
    return int.from_bytes(digest[-8:], "big")


def image(identity: str, offset: int, tokens: int) -> Image:
    return Image(identity, offset, tokens, b"")


# An implementation of its own


def cbor(value) -> bytes:
    """CBOR of what a chain holds, straight from RFC 8949: the shortest form of every head."""
    if value is None:
        return b"\xf6"
    if isinstance(value, int):
        return head(0, value) if value >= 0 else head(1, -1 - value)
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    return head(4, len(value)) + b"".join(cbor(item) for item in value)


def head(major: int, number: int) -> bytes:
    if number < 24:
        return bytes([major << 5 | number])
    size = next(size for size in range(4) if number < 1 << 8 * 2**size)
    return bytes([major << 5 | 24 + size]) + number.to_bytes(2**size, "big")


def reference_chain(tokens, block_size, keys, images, parent) -> list[bytes]:
    """Section by section what the definition says, slowly."""
    found = []
    for begin in range(0, len(tokens) - block_size + 1, block_size):
        own = [["lora", keys.adapter, keys.adapter_path]] if keys.adapter else []
        for one in images:
            if set(range(one.offset, one.offset + one.tokens)) & set(range(begin, begin + block_size)):
                own.append(["mm", one.identity, one.offset - begin])
        own += [["cache_salt", keys.salt]] if keys.salt and not begin else []
        parent = hashlib.sha256(cbor([parent, tokens[begin : begin + block_size], own or None])).digest()
        found.append(parent)
    return found


def random_prompt(draw: random.Random) -> tuple:
    """Tokens of all sizes, a block size, keys and images, each of which may be missing."""
    tokens = [draw.randrange(draw.choice([24, 256, 1 << 16, 1 << 31])) for _ in range(draw.randrange(60))]
    names = ["", "a", "s1", "é" * 20, "x" * 300]
    images, place = [], 0
    while draw.random() < 0.6 and place < len(tokens):
        offset = draw.randrange(place, len(tokens))
        count = draw.randrange(1, len(tokens) - offset + 1)
        images.append(image(draw.choice(["imgA", "imgB"]), offset, count))
        place = offset + count
    keys = CacheKeys(draw.choice(names), draw.choice(names), draw.choice(names))
    return tokens, draw.choice([1, 2, 3, 4, 16, 30]), keys, images


def test_a_thousand_random_chains_equal_an_implementation_of_their_own():
    """The chain is what its definition says, whatever the tokens, keys and images; also from another root."""
    draw = random.Random(1)
    for _ in range(1000):
        tokens, block_size, keys, images = random_prompt(draw)
        start = draw.choice([ROOT, root("0")])
        expected = reference_chain(tokens, block_size, keys, images, start)
        assert split(chain(column(*tokens), block_size, keys, images, start)) == expected


@pytest.mark.parametrize("block_size", [1, 23, 24, 255, 256, 1024])
def test_the_frame_of_every_block_size(block_size):
    """The head of the array of tokens has the right form, with tokens on both sides of every border of theirs."""
    edges = [0, 23, 24, 255, 256, 65535, 65536, 2**31 - 1]
    tokens = (edges * block_size)[: 2 * block_size]
    assert digests(tokens, block_size) == reference_chain(tokens, block_size, NO_KEYS, (), ROOT)


def test_extending_makes_the_chain():
    """Block by block, as the scheduler hashes generated tokens, comes out what a whole prompt gives."""
    tokens, keys, images = column(*range(250, 274)), CacheKeys("lora", "/path", "salt"), [image("imgA", 5, 6)]
    parent = ROOT
    for index, digest in enumerate(split(chain(tokens, 4, keys, images))):
        (block,) = encode_blocks(tokens[None, 4 * index : 4 * index + 4])
        parent = extend(parent, block, block_keys(keys, images, index, 4))
        assert parent == digest


# Known values


def test_known_values():
    """The roots, two blocks and the keyed blocks of the specification of the event stream."""
    assert ROOT.hex() == "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0"
    assert root("0").hex() == "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e"
    first, second = digests(range(100, 108))
    assert first.hex() == "f6660814c0f5fab668e3a3e4cc9d7c843f32e254d6a433791cccfba573d0cf8a"
    assert second.hex() == "da25ae2ea37cfe14f808bf230a0ad0c2bca0e7a731e7f54cf20358aa4fbb8879"
    assert [published(first), published(second)] == [2075310216342196106, 17438879670614067321]
    tokens = range(100, 104)
    assert published(digests(tokens, keys=CacheKeys(salt="s1"))[0]) == 9034514960664789296
    assert published(digests(tokens, images=[image("imgA", 1, 2)])[0]) == 9255041531553642025


def test_tokens_and_parent_make_the_digest():
    """Equal for equal, else different, and what is published fits into 64 bits without sign. (BK-1)"""
    first, second = encode_blocks(np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.int32))
    digest = extend(ROOT, first, None)
    assert digest == extend(ROOT, first, None)
    others = [extend(ROOT, second, None), extend(digest, first, None)]
    assert len({digest, *others}) == 3
    assert all(0 <= published(one) < 2**64 for one in (digest, *others))


def test_only_full_blocks():
    """A partial block has no digest."""
    assert digests(range(3)) == []
    assert len(digests(range(7))) == 1
    assert digests([]) == []


# Keys


def test_keys_of_a_block():
    """The adapter stands in every block, an image in those that it overlaps, the salt in the first."""
    keys, images = CacheKeys("name", "/path", "s1"), [image("imgA", 2, 3), image("imgB", 5, 4)]
    adapter = ("lora", "name", "/path")
    assert block_keys(keys, images, 0, 4) == [adapter, ("mm", "imgA", 2), ("cache_salt", "s1")]
    assert block_keys(keys, images, 1, 4) == [adapter, ("mm", "imgA", -2), ("mm", "imgB", 1)]
    assert block_keys(keys, images, 2, 4) == [adapter, ("mm", "imgB", -3)]
    assert block_keys(keys, images, 3, 4) == [adapter]
    assert block_keys(NO_KEYS, images, 3, 4) is None


def test_other_image_adapter_or_salt():
    """The same tokens with another image, adapter, path or salt share no block, nor do an adapter and a salt
    of one name. (RG-19)"""
    nine = [7] * 9
    chains = [
        digests(nine),
        digests(nine, images=[image("imgA", 0, 9)]),
        digests(nine, images=[image("imgB", 0, 9)]),
        digests(nine, keys=CacheKeys(adapter="x")),
        digests(nine, keys=CacheKeys(adapter="y")),
        digests(nine, keys=CacheKeys(adapter="x", adapter_path="/x")),
        digests(nine, keys=CacheKeys(salt="x")),
        digests(nine, keys=CacheKeys(salt="y")),
    ]
    assert len({digest for one in chains for digest in one}) == 2 * len(chains)


def test_an_image_changes_nothing_before_it():
    """Blocks in front of an image are shared; from its first block on none is."""
    tokens = [7] * 16
    plain, with_image = digests(tokens), digests(tokens, images=[image("imgA", 6, 2)])
    assert plain[0] == with_image[0]
    assert not set(plain[1:]) & set(with_image[1:])
