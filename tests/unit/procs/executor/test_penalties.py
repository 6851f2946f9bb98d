"""Penalties against their plain definition, with drafts and without."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from fourstroke.ipc.messages import Sampling
from fourstroke.procs.executor.penalties import Penalties

VOCAB = 12
TOKENS = st.lists(st.integers(0, VOCAB - 1), max_size=20)


def plainly(logits: np.ndarray, sampling: Sampling, prompt: list[int], output: list[int]) -> list[float]:
    """vLLM's definition, token by token."""
    found = []
    for token, logit in enumerate(logits.tolist()):
        if token in prompt or token in output:
            logit = logit / sampling.repetition_penalty if logit > 0 else logit * sampling.repetition_penalty
        times = output.count(token)
        found.append(logit - sampling.frequency_penalty * times - sampling.presence_penalty * (times > 0))
    return found


@given(
    TOKENS,
    TOKENS,
    TOKENS,
    TOKENS,
    st.tuples(st.sampled_from([0.5, 1.0, 1.3, 4.0]), st.sampled_from([-2.0, 0.0, 1.5]), st.sampled_from([0.0, 0.25])),
)
@settings(deadline=None)
def test_penalties_are_those_of_the_definition(
    prompt: list[int], before: list[int], output: list[int], drafts: list[int], numbers: tuple[float, float, float]
) -> None:
    """Whatever was said before the row began, after it, and by drafts, which leave nothing behind."""
    repetition, presence, frequency = numbers
    sampling = Sampling(
        1.0, 0, 1.0, 0.0, repetition_penalty=repetition, presence_penalty=presence, frequency_penalty=frequency
    )
    logits = np.random.default_rng(0).normal(0, 3, VOCAB).astype(np.float32)
    penalties = Penalties(sampling, sorted(set(prompt)), before)
    penalties.follow(output)
    for said in (drafts, [], drafts[:3]):
        found = logits.copy()
        penalties.apply(found, said)
        np.testing.assert_allclose(
            found, plainly(logits, sampling, prompt, before + output + said), rtol=1e-5, atol=1e-5
        )


def test_what_cannot_be_said_stays_so() -> None:
    """A logit of minus infinity is not touched by any penalty."""
    sampling = Sampling(1.0, 0, 1.0, 0.0, repetition_penalty=0.5, presence_penalty=-2.0, frequency_penalty=-2.0)
    logits = np.array([-np.inf, 1.0], np.float32)
    Penalties(sampling, [0, 1], [0]).apply(logits, [])
    assert logits.tolist() == [-np.inf, 2.0]
