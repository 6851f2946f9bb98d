"""Attention backends by name."""

from __future__ import annotations

from .backend import Backend
from .cpu import CpuAttention
from .reference import ReferenceAttention

BACKENDS: dict[str, Backend] = {"cpu": CpuAttention, "reference": ReferenceAttention}
