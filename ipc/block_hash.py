"""The chain of hashes that names a full block of the KV cache by all the tokens in it and before it.

    digest(i) = SHA-256(CBOR([digest(i-1), [tokens of block i], keys of block i]))
    digest(-1) = SHA-256(CBOR(seed text)), the root

in canonical CBOR (RFC 8949, section 4.2.1); this is what vLLM calls sha256_cbor. The keys tell blocks of the same
tokens apart: each is tagged with its kind and CBOR gives its length, so that an adapter called like a
salt is another key. Digests are the same in all processes, restarts and hosts.

Ingest hashes prompts, the scheduler the blocks that are generated. Neither blocks nor pools are known here.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

import cbor2
import numpy as np
import numpy.typing as npt

from .messages import CacheKeys, Image
from .ring import Tokens

Key = tuple[str, str] | tuple[str, str, str] | tuple[str, str, int] | tuple[str, bytes]
Keys = list[Key]
"""The keys of a block: ("lora", name, path), ("mm", identity of an image, its place), ("cache_salt", salt),
("prompt_embeds", digest).
"""

DEFAULT_SEED = "vllm-none-hash"

# CBOR: an array of three, the first of which is a string of 32 bytes
_FRAME = b"\x83\x58\x20"
_NO_KEYS = cbor2.dumps(None)

# By the form that CBOR has for an unsigned integer below 24, 2**8, 2**16 and 2**32: its size in bytes, the byte that
# comes before the value, and which of the last 8 bytes of the two are kept.
_SIZES = np.array([1, 2, 3, 5])
_HEADS = np.array([0, 0x18 << 8, 0x19 << 16, 0x1A << 32], np.uint64)
_KEPT = (np.arange(8) >= 8 - _SIZES[:, None]).view(np.uint64).ravel()


def root(seed: str = DEFAULT_SEED) -> bytes:
    """The digest before that of the first block."""
    return hashlib.sha256(cbor2.dumps(seed, canonical=True)).digest()


ROOT = root()


def extend(parent: bytes, block: bytes, keys: Keys | None) -> bytes:
    """The digest, of 32 bytes, of a block, as `encode_blocks` gives it, behind the one with digest `parent`."""
    return hashlib.sha256(_FRAME + parent + block + (_NO_KEYS if keys is None else _cbor_keys(keys))).digest()


def block_keys(keys: CacheKeys, images: Sequence[Image], index: int, block_size: int) -> Keys | None:
    """The keys of block `index` of a prompt: its adapter, each image that overlaps it, and in block 0 the salt.

    An image's place is that of its beginning against the block's: negative where it began in an earlier block.
    """
    begin, end = index * block_size, (index + 1) * block_size
    found: Keys = [("lora", keys.adapter, keys.adapter_path)] if keys.adapter else []
    for image in images:
        if image.offset < end and begin < image.offset + image.tokens:
            found.append(("mm", image.identity, image.offset - begin))
    if keys.salt and index == 0:
        found.append(("cache_salt", keys.salt))
    return found or None


def chain(tokens: Tokens, block_size: int, keys: CacheKeys, images: Sequence[Image], start: bytes = ROOT) -> bytes:
    """The digests of all full blocks of a prompt, 32 bytes each, behind one another.

    The frame of CBOR is written here: 128k tokens in blocks of 16 take 9 ms; with cbor2 they take 26 ms.
    """
    full = tokens[: len(tokens) // block_size * block_size]
    with_own_keys = _own_keys(keys, images, block_size)
    usual_keys = _cbor_keys(block_keys(keys, (), 1, block_size))
    digest, digests, sha256 = start, [], hashlib.sha256
    for index, block in enumerate(encode_blocks(full.reshape(-1, block_size))):
        digest = sha256(_FRAME + digest + block + with_own_keys.get(index, usual_keys)).digest()
        digests.append(digest)
    return b"".join(digests)


def _own_keys(keys: CacheKeys, images: Sequence[Image], block_size: int) -> dict[int, bytes]:
    """The encoded keys of the blocks that may have other keys than the rest: the first one and those with images."""
    inside: dict[int, list[Image]] = defaultdict(list, {0: []})
    for image in images:
        for index in range(image.offset // block_size, (image.offset + image.tokens - 1) // block_size + 1):
            inside[index].append(image)
    return {index: _cbor_keys(block_keys(keys, found, index, block_size)) for index, found in inside.items()}


def _cbor_keys(keys: Keys | None) -> bytes:
    return cbor2.dumps(keys, canonical=True)


def encode_blocks(blocks: Tokens) -> Iterator[bytes]:
    """The tokens of each of these blocks, int32 [blocks, block_size] and not negative, as an array in CBOR."""
    block_size = blocks.shape[1]
    body, sizes = _cbor_integers(blocks.ravel())
    head = cbor2.dumps([0] * block_size)[:-block_size]
    ends = np.cumsum(sizes.reshape(-1, block_size).sum(axis=1)).tolist()
    return (head + body[begin:end] for begin, end in pairwise([0, *ends]))


def _cbor_integers(values: Tokens) -> tuple[bytes, npt.NDArray[np.int64]]:
    """Integers from 0 up in their shortest forms, and the size of each."""
    form = (values >= 24).view(np.uint8) + (values >= 1 << 8) + (values >= 1 << 16)
    words = (values.astype(np.uint64) + _HEADS.take(form)).astype(">u8")
    kept = words.view(np.uint8)[_KEPT.take(form).view(np.bool_)]
    return kept.tobytes(), _SIZES.take(form)
