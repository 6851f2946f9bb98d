"""What chunks of a prompt need beside token ids: three positions for each token (mrope), and images.

Both ride with prefill chunks only; a decode carries one number. A request keeps its images until it ends, so
that it can be prefilled again. Pure functions; the planner calls them. `images` are in the order of their
offsets and do not overlap.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from ....ipc.messages import Image, MediaChunk


def media_chunk(
    index: int, images: Iterable[Image], mrope: bytes, mrope_delta: int, begun: int, start: int, count: int
) -> MediaChunk | None:
    """What the chunk of `count` tokens from `start` on needs, or None. `index` is its place in the plan.

    The prefill began at `begun`, behind what the prefix cache had.
    """
    overlapping = chunk_images(images, begun, start, count)
    if not overlapping and not mrope:
        return None
    return MediaChunk(index, positions(mrope, mrope_delta, start, count), overlapping)


def positions(mrope: bytes, mrope_delta: int, start: int, count: int) -> bytes:
    """The positions of a chunk: int32 [3, count] out of those of the prompt, int32 [3, prompt_tokens].

    Beyond the prompt, where a preempted request computes its outputs again, all three are the token's place
    and `mrope_delta`. Empty for models that have one position a token.
    """
    if not mrope:
        return b""
    of_prompt = np.frombuffer(mrope, "<i4").reshape(3, -1)
    prompt_tokens = of_prompt.shape[1]
    outputs = np.arange(max(start, prompt_tokens), max(start + count, prompt_tokens)) + mrope_delta
    parts = (of_prompt[:, start : start + count], np.tile(outputs, (3, 1)))
    return np.concatenate(parts, axis=1).astype("<i4").tobytes()


def chunk_images(images: Iterable[Image], begun: int, start: int, count: int) -> tuple[Image, ...]:
    """The images that overlap a chunk, without data where an earlier chunk of this prefill brought it.

    An image that begins before the chunk was in the chunk before, unless this is the first.
    """
    return tuple(
        image if image.offset >= start or start == begun else dataclasses.replace(image, data=b"")
        for image in images
        if image.offset < start + count and start < image.offset + image.tokens
    )


def uncut(start: int, size: int, images: Iterable[Image], budget: int, left: int | None = None) -> int:
    """How long a chunk of `size` tokens from `start` on becomes, so that it ends inside no image.

    `budget` is the most that a prefill gets in a step, `left` what this step still has (None: all of it). The
    chunk ends before the image; if it begins with the image it goes on to the image's end, or, where `left` does not
    reach so far, waits: 0. An image of more than `budget` tokens is cut anywhere.
    """
    end = start + size
    image = next((image for image in images if image.offset < end < image.offset + image.tokens), None)
    if image is None or image.tokens > budget:
        return size
    if image.offset > start:
        return image.offset - start
    rest = image.offset + image.tokens - start
    return rest if rest <= (budget if left is None else left) else 0
