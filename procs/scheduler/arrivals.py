"""From a Submit to the requests of its choices."""

from __future__ import annotations

import hashlib
import math

from ...ipc.messages import DIGEST_BYTES, Submit
from ...ipc.ring import Tokens
from .request import Phase, Request, Siblings


def requests_of(
    submit: Submit, tokens: Tokens, now: float, *, block_size: int, prefix_cache: bool, stateful: bool
) -> list[Request]:
    """One request for each choice; `tokens` are the prompt and what was generated before.

    Choices share an array of the prompt, which nobody writes. One that goes on is as if it had been preempted.
    """
    goes_on = submit.generated_tokens > 0
    siblings = Siblings(len(submit.rids)) if len(submit.rids) > 1 else None
    digests = _digests(submit, block_size, prefix_cache)
    return [
        Request(
            rid=rid,
            prompt_tokens=submit.prompt_tokens,
            tokens=tokens,
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
            phase=Phase.PREEMPTED if goes_on else Phase.FRESH,
            suspended=goes_on,
        )
        for rid, seed in zip(submit.rids, submit.seeds, strict=True)
    ]


def _digests(submit: Submit, block_size: int, prefix_cache: bool) -> list[bytes] | None:
    """The chain of the prompt's full blocks; None if it shares nothing with anybody.

    Without a prefix cache choices of one prompt still share it, under digests that nobody else has.
    """
    if prefix_cache:
        packed = submit.digests
        return [packed[at : at + DIGEST_BYTES] for at in range(0, len(packed), DIGEST_BYTES)]
    return _made_up(submit.rids[0], submit.prompt_tokens // block_size) if len(submit.rids) > 1 else None


def _made_up(rid: int, blocks: int) -> list[bytes]:
    """Digests that come from a request id and the place of a block: to hash 128k tokens takes 15 ms.

    The last 8 bytes differ as well: the world is told of these.
    """
    own = hashlib.sha256(f"choices of {rid}".encode()).digest()
    head, first = own[:24], int.from_bytes(own[25:], "big")
    return [head + (first + index).to_bytes(8, "big") for index in range(blocks)]
