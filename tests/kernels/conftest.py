"""Tests of the Triton kernels, which run in Triton's interpreter: on CPU tensors, without a card."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported, so before any test module is

from .interpreter import mend

mend()
