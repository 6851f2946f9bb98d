"""From a Submit to the requests of its choices."""

from __future__ import annotations

import math

from ...ipc.messages import DIGEST_BYTES, CacheKeys, Submit
from ...ipc.ring import Tokens
from ..block_hash import chain
from .request import Request, Siblings


def requests_of(
    submit: Submit, prompt: Tokens, now: float, *, block_size: int, prefix_cache: bool, stateful: bool
) -> list[Request]:
    """One request for each choice. Choices share an array of the prompt, which nobody writes."""
    siblings = Siblings(len(submit.rids)) if len(submit.rids) > 1 else None
    digests = _digests(submit, prompt, block_size, prefix_cache)
    return [
        Request(
            rid=rid,
            epoch=submit.epoch,
            prompt_tokens=submit.prompt_tokens,
            tokens=prompt,
            seed=seed,
            sampling=submit.sampling,
            limits=submit.limits,
            ticket=submit.ticket,
            digests=None if digests is None else list(digests),
            keys=submit.keys,
            priority=submit.priority,
            deadline_s=now + submit.timeout_s if submit.timeout_s else math.inf,
            images=submit.images,
            mrope=submit.mrope,
            mrope_delta=submit.mrope_delta,
            remote=submit.remote,
            siblings=siblings,
            needs_state=stateful,
        )
        for rid, seed in zip(submit.rids, submit.seeds, strict=True)
    ]


def _digests(submit: Submit, prompt: Tokens, block_size: int, prefix_cache: bool) -> list[bytes] | None:
    """The chain of the prompt's full blocks; None if it shares nothing with anybody.

    Without a prefix cache choices of one prompt still share it, under a salt that nobody else has.
    """
    packed = submit.digests
    if not prefix_cache:
        if len(submit.rids) == 1:
            return None
        packed = chain(prompt, block_size, CacheKeys(salt=f"choices of {submit.rids[0]}"), ())
    return [packed[at : at + DIGEST_BYTES] for at in range(0, len(packed), DIGEST_BYTES)]
