"""Step plans on the C kernels."""

from __future__ import annotations

from pathlib import Path

import torch

from fourstroke.procs.executor.native.compute import NativeCompute
from fourstroke.procs.executor.native.library import Library

from ..bad_plans import run_bad_plans
from ..driver import Driver, executor_config
from ..tiny import save_folder
from .random_model import RandomCheckpoint, model_config


def test_bad_plans(kernels: Library, kernel_folder: Path, tmp_path: Path) -> None:
    """None reaches the kernels, which would read and write what lies beside their memory."""
    config = model_config(2, 1)
    checkpoint = RandomCheckpoint(config)
    weights = {name: checkpoint.read(name).to(torch.bfloat16) for name in checkpoint.shapes}
    facts = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
    }
    small = {"max_num_seqs": 4, "max_num_batched_tokens": 16, "num_blocks": 8, "max_model_len": 64}
    native = {"dtype": "bfloat16", "kernel_folder": str(kernel_folder)}
    driver = Driver(executor_config(save_folder(tmp_path / "model", weights, **facts), **small, **native))
    assert isinstance(driver.runner._compute, NativeCompute)
    run_bad_plans(driver)
