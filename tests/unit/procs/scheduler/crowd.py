"""Requests at random. They come out of few texts, so that prefixes are shared, and their stop words will be said."""

from __future__ import annotations

from random import Random
from typing import Any

from fourstroke.ipc.messages import Image, RemoteKv
from fourstroke.procs.executor.fake_text import next_token

from .model import Asked, image_positions, text_hashes, token_before_eos

POISON = 13
"""The executor fails on a row with this token."""

_TEXTS = tuple(tuple(range(first, first + 40)) for first in (20, 70, 120))
_IMAGES = (
    (Image("cat", 2, 5, b"cat"),),
    (Image("dog", 2, 5, b"dog"),),
    (Image("dog", 2, 5, b"dog"), Image("dog", 9, 4, b"dog")),
    (Image("view", 3, 12, b"view"),),
)


def some_request(random: Random, moves: bool) -> dict[str, Any]:
    """The arguments of World.ask. `moves`: its KV may come from elsewhere or be wanted there."""
    prompt, images, positions = some_prompt(random)
    said = next_token(text_hashes(prompt, 12, images, positions)[len(prompt) - 1 :]).tolist()
    max_tokens = random.choice((0, 1, 2, 5, 12, 12, 30, 30, 100, 100))
    asked = Asked(
        prompt=prompt,
        max_tokens=max_tokens,
        min_tokens=min(random.choice((0, 0, 0, 2, 6)), max_tokens),
        ignore_eos=random.random() < 0.3,
        stop_token_ids=(said[random.choice((0, 3, 9))],) if random.random() < 0.2 else (),
        stop_sequences=(some_words(random, [prompt[-1], *said]),) if random.random() < 0.2 else (),
        images=images,
        positions=positions,
    )
    remote = some_place(random, said) if moves and random.random() < 0.5 else None
    return {
        "asked": asked,
        "salt": random.choice(("", "", "", "mine")),
        "priority": random.choice((0, 0, 0, -1, 3)),
        "timeout_s": random.choice((0.0, 0.0, 0.0, 0.0, 1.0, 20.0)),
        "remote": remote,
        "logprobs": random.choice((-1, -1, 0, 2)) if remote is None else -1,
        "prompt_logprobs": random.choice((-1, -1, -1, 0, 2)) if remote is None else -1,
    }


def some_prompt(random: Random) -> tuple[tuple[int, ...], tuple[Image, ...], tuple[int, ...]]:
    """A prompt, its images, and the positions of its tokens, if they matter."""
    prompt = random.choice(_TEXTS)[: random.choice((0, 1, 4, 7, 8, 12, 16, 20, 33))]
    prompt += tuple(random.choices((17, 18, 19), k=random.randint(0, 3)))
    ending = random.choices(("", "soon", "poison"), (14, 3, 1))[0]
    prompt += {"": () if prompt else (17,), "soon": (token_before_eos(prompt),), "poison": (POISON,)}[ending]
    images = random.choice(_IMAGES) if random.random() < 0.2 else ()
    images = tuple(image for image in images if image.offset + image.tokens <= len(prompt))
    positions = image_positions(len(prompt), images) if images and images[0].identity != "cat" else ()
    return prompt, images, positions


def some_words(random: Random, said: list[int]) -> tuple[int, ...]:
    """Tokens that will be said one after the other, perhaps the first of them in the prompt already."""
    first = random.choice((0, 1, 3, 7))
    return tuple(said[first : first + random.randint(1, 3)])


def some_place(random: Random, said: list[int]) -> RemoteKv:
    """Another engine that has the prompt's KV or wants it, and perhaps has a token and drafts, some of them wrong."""
    return RemoteKv(
        prefilled=random.random() < 0.7,
        decoded=random.random() < 0.5,
        host="there:1",
        first_token=said[0] if random.random() < 0.6 else -1,
        drafts=tuple(word if random.random() < 0.7 else 3 for word in said[1 : random.randint(1, 5)]),
    )
