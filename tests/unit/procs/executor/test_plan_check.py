"""A plan that does not keep to what the executor has is refused before it changes anything, by every backend.

Those of the C kernels and of devices are tested with them.
"""

from __future__ import annotations

from pathlib import Path

from fourstroke.ipc.messages import Hello
from fourstroke.procs.executor.fake import EOS_TOKEN_ID, VOCAB_SIZE, FakeRunner

from .bad_plans import run_bad_plans
from .driver import Driver, executor_config
from .tiny import CONTEXT

SMALL = {"max_model_len": CONTEXT, "max_num_seqs": 4, "max_num_batched_tokens": 16, "num_blocks": 8}


def test_by_the_fake() -> None:
    """So each plan of each test with a scheduler is looked at."""
    hello = Hello(8, 16, CONTEXT, VOCAB_SIZE, (EOS_TOKEN_ID,))
    run_bad_plans(Driver(executor_config(Path("none"), **SMALL), lambda slots: FakeRunner(slots, hello, 4)))


def test_by_torch(tiny_model: Path) -> None:
    """In float32."""
    run_bad_plans(Driver(executor_config(tiny_model, **SMALL)))
