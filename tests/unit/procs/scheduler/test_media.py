"""Positions and images that ride with chunks of a prompt, alone and through the scheduler's core."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.ipc.messages import Image, MediaChunk
from fourstroke.procs.executor.fake import continuation
from fourstroke.procs.scheduler.planning.step import OpenStep
from fourstroke.procs.scheduler.state.media import chunk_images, media_chunk, positions, uncut

from .driver import Driver

PROMPT = np.arange(30, dtype="<i4").reshape(3, 10)
CAT = Image("cat", 4, 10, b"pixels of a cat")
DOG = Image("dog", 14, 6, b"pixels of a dog")


def decoded(column, count):
    return np.frombuffer(column, "<i4").reshape(3, count)


@st.composite
def layouts(draw):
    """A prompt with images that do not overlap: (tokens of the prompt, images)."""
    images, end = [], 0
    for index, (gap, tokens) in enumerate(draw(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 30)), max_size=5))):
        images.append(Image(f"image {index}", end + gap, tokens, b"data"))
        end += gap + tokens
    return end + draw(st.integers(1, 10)), images


# Positions


def test_a_chunk_has_its_own_slice_of_the_positions():
    """Three rows, the chunk's columns."""
    assert (decoded(positions(PROMPT.tobytes(), 0, 2, 3), 3) == PROMPT[:, 2:5]).all()


def test_positions_of_outputs_go_on_with_the_delta():
    """A preempted request computes its outputs again: all three positions are the place and the delta."""
    found = decoded(positions(PROMPT.tobytes(), -3, 8, 4), 4)
    assert (found[:, :2] == PROMPT[:, 8:]).all()
    assert found[:, 2:].tolist() == [[7, 8]] * 3
    assert decoded(positions(PROMPT.tobytes(), -3, 12, 2), 2).tolist() == [[9, 10]] * 3


def test_a_model_with_one_position_a_token_needs_none():
    """Empty in, empty out."""
    assert positions(b"", 0, 0, 5) == b""


@given(sizes=st.lists(st.integers(1, 6), min_size=1), delta=st.integers(-5, 5))
def test_chunks_put_together_are_the_whole(sizes, delta):
    """However a prompt and what follows it are cut, each token has one position triple."""
    starts = np.cumsum([0, *sizes[:-1]])
    chunks = zip(starts, sizes, strict=True)
    parts = [decoded(positions(PROMPT.tobytes(), delta, start, size), size) for start, size in chunks]
    whole = decoded(positions(PROMPT.tobytes(), delta, 0, sum(sizes)), sum(sizes))
    assert (np.concatenate(parts, axis=1) == whole).all()


# Images


@pytest.mark.parametrize(
    "start, count, names",
    [(0, 4, ""), (0, 5, "cat"), (4, 10, "cat"), (13, 1, "cat"), (13, 2, "cat dog"), (0, 40, "cat dog"), (20, 5, "")],
)
def test_a_chunk_has_the_images_that_it_overlaps(start, count, names):
    """Cat stands at 4..13, dog at 14..19."""
    assert [image.identity for image in chunk_images([CAT, DOG], 0, start, count)] == names.split()


def test_only_the_first_chunk_of_an_image_brings_its_data():
    """A prefill that begins inside an image, behind a hit, brings it; so does one that begins anew."""
    assert chunk_images([CAT], 0, 0, 8) == (CAT,)
    assert chunk_images([CAT], 0, 8, 4) == (dataclasses.replace(CAT, data=b""),)
    assert chunk_images([CAT], 8, 8, 4) == (CAT,)
    assert chunk_images([CAT], 8, 12, 4) == (dataclasses.replace(CAT, data=b""),)


@given(layout=layouts(), begun=st.integers(0, 40), sizes=st.lists(st.integers(1, 20), max_size=30))
def test_each_image_that_is_computed_travels_once(layout, begun, sizes):
    """Over all chunks of a prefill, in the first that overlaps it; and every overlapped image is named."""
    _, images = layout
    seen, start = set(), begun
    for size in sizes:
        chunk = chunk_images(images, begun, start, size)
        places = range(start, start + size)
        assert [image.identity for image in chunk] == [
            image.identity for image in images if set(places) & set(range(image.offset, image.offset + image.tokens))
        ]
        for image in chunk:
            assert bool(image.data) == (image.identity not in seen)
            seen.add(image.identity)
        start += size


def test_a_chunk_of_plain_text_needs_nothing():
    """None; else the chunk's place in the plan, its positions, its images."""
    assert media_chunk(3, [CAT], b"", 0, 0, 0, 4) is None
    assert media_chunk(3, [CAT], b"", 0, 0, 0, 5) == MediaChunk(3, b"", (CAT,))
    assert media_chunk(1, [], PROMPT.tobytes(), 0, 0, 0, 10) == MediaChunk(1, PROMPT.tobytes(), ())


# Cutting


@pytest.mark.parametrize(
    "start, size, budget, left, cut",
    [
        (0, 4, 12, None, 4),  # ends before the cat
        (0, 8, 12, None, 4),  # would end in it
        (0, 14, 16, None, 14),  # ends behind it
        (0, 16, 16, None, 14),  # would end in the dog
        (4, 5, 12, None, 10),  # begins with it: to its end
        (8, 2, 12, None, 6),  # begins inside it: to its end
        (0, 8, 9, None, 8),  # does not fit the budget
        (4, 9, 9, None, 9),
        (4, 5, 12, 7, 0),  # fits the budget, but not what is left
        (0, 5, 12, 5, 4),
    ],
)
def test_a_chunk_ends_inside_no_image_that_fits(start, size, budget, left, cut):
    """Cat stands at 4..13, dog at 14..19."""
    assert uncut(start, size, [CAT, DOG], budget, left) == cut


@given(layout=layouts(), budget=st.integers(1, 40), data=st.data())
def test_a_prompt_is_prefilled_without_cutting_what_fits(layout, budget, data):
    """Chunk after chunk, of whatever size is wanted: it gets on, within the budget, and cuts no image that fits.

    With less left than the budget a chunk may have to wait, but nothing else changes.
    """
    tokens, images = layout
    start = 0
    while start < tokens:
        wanted = data.draw(st.integers(1, min(budget, tokens - start)))
        size = uncut(start, wanted, images, budget)
        assert 0 < size <= budget
        end = start + size
        assert size <= wanted or any(end == image.offset + image.tokens for image in images)
        for image in images:
            assert not image.offset < end < image.offset + image.tokens or image.tokens > budget
        left = data.draw(st.integers(wanted, budget))
        assert uncut(start, wanted, images, budget, left) == (size if size <= left else 0)
        start = end


# Through the scheduler's core: what a request says does not depend on how its prompt was computed

SEEN = (Image("cat", 4, 10, b"pixels of a cat"), Image("dog", 17, 6, b"pixels of a dog"))
TOKENS = list(range(20, 46))
DELTA = -7
PLACES = np.stack([np.arange(26), np.arange(26) // 2, np.arange(26) % 5]).astype("<i4").tobytes()
MEDIA = {"images": SEEN, "mrope": PLACES, "mrope_delta": DELTA}


def said(count: int, **media: object) -> list[int]:
    """What a request with these images and positions says, by the plain definition."""
    return continuation(TOKENS, count, **media)


def brought(step: OpenStep) -> list[str]:
    """The images that come with their data."""
    return [image.identity for chunk in step.plan.media for image in chunk.images if image.data]


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("budget", [3, 7, 12, 64])
@pytest.mark.parametrize("media", [{}, {"images": SEEN}, {"mrope": PLACES, "mrope_delta": DELTA}, MEDIA])
def test_chunks_preemption_and_a_restart_change_no_token(depth, budget, media):
    """With images, with three positions, with both: beside another request, in chunks, and computed again."""
    driver = Driver(depth=depth, budget=budget, blocks=20, drafts=2)
    driver.submit(1, TOKENS, max_tokens=12, **media)
    driver.submit(2, TOKENS, max_tokens=12)
    for again in (lambda: driver.core.preempt(1), driver.restart):
        known = len(driver.outputs.get(1, ()))
        while len(driver.outputs.get(1, ())) < known + 3:
            driver.turn()
        again()
    driver.run()
    assert driver.outputs == {1: said(12, **media), 2: said(12)}
    assert (said(12, **media) == said(12)) == (not media)


def test_decodes_carry_a_number_and_no_media():
    """The delta of their positions; the prompt's own ride with its chunk."""
    driver = Driver()
    driver.submit(1, TOKENS, **MEDIA)
    step = driver.plan()
    assert [(chunk.index, chunk.mrope, chunk.images) for chunk in step.plan.media] == [(0, PLACES, SEEN)]
    assert driver.slots[step.plan.slot].delta[0] == 0
    driver.settle()
    step = driver.plan()
    assert step.plan.media == ()
    assert driver.slots[step.plan.slot].delta[0] == DELTA


def test_a_chunk_is_not_cut_inside_an_image_that_fits():
    """Budget 13: before the cat, then behind it and before the dog, then to the end."""
    driver = Driver(budget=13)
    driver.submit(1, TOKENS, max_tokens=1, **MEDIA)
    steps = []
    while driver.core.alive:
        steps.append(driver.plan())
        driver.settle()
    assert [driver.counts_of(step) for step in steps] == [[4], [13], [9]]
    assert [brought(step) for step in steps] == [[], ["cat"], ["dog"]]
    assert driver.outputs[1] == said(1, **MEDIA)


def test_an_image_that_does_not_fit_travels_once():
    """Budget 5: later chunks of the cat refer to it."""
    driver = Driver(budget=5)
    driver.submit(1, TOKENS, max_tokens=1, images=SEEN)
    steps = []
    while driver.core.alive:
        steps.append(driver.plan())
        driver.settle()
    assert [identity for step in steps for identity in brought(step)] == ["cat", "dog"]
    assert sum(len(chunk.images) for step in steps for chunk in step.plan.media) > 2
    assert driver.outputs[1] == said(1, images=SEEN)


def test_a_prefill_that_begins_again_brings_its_images_again():
    """The request keeps them until it ends."""
    driver = Driver()
    driver.submit(1, TOKENS, max_tokens=4, images=SEEN)
    for _ in range(2):
        assert brought(driver.plan()) == ["cat", "dog"]
        driver.settle()
        driver.core.preempt(1)
    driver.run()
    assert driver.outputs[1] == said(4, images=SEEN)


def test_a_hit_may_end_inside_an_image():
    """9 of 10 tokens of the cat are cached with 12 of the prompt: the rest of it brings the data."""
    driver = Driver(cache=True, blocks=20)
    driver.submit(1, TOKENS[:14], max_tokens=1, images=SEEN[:1])
    driver.run()
    driver.submit(2, TOKENS, max_tokens=4, images=SEEN)
    step = driver.plan()
    assert (step.starts.tolist(), brought(step)) == ([12], ["cat", "dog"])
    driver.run()
    assert driver.opened[2] == 12
    assert driver.outputs[2] == said(4, images=SEEN)


def test_the_same_tokens_with_another_image_are_another_prompt():
    """Live together, with a cache: neither takes the other's blocks for its own."""
    driver = Driver(cache=True, blocks=20)
    other = (dataclasses.replace(SEEN[0], identity="lion"), SEEN[1])
    driver.submit(1, TOKENS, max_tokens=5, images=SEEN)
    driver.submit(2, TOKENS, max_tokens=5, images=other)
    driver.run()
    assert driver.outputs == {1: said(5, images=SEEN), 2: said(5, images=other)}
    assert driver.opened[2] == 4


@pytest.mark.parametrize("cache", [False, True])
def test_choices_see_the_same_images(cache):
    """What one has computed of an image the others need not."""
    driver = Driver(cache=cache, blocks=20)
    driver.submit((1, 2, 3), TOKENS, max_tokens=5, **MEDIA)
    driver.run()
    assert driver.outputs == dict.fromkeys((1, 2, 3), said(5, **MEDIA))
    assert driver.core.statistics.prompt_tokens == 26 + 2 * 2
