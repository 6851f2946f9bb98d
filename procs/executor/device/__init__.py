"""The device path: models on AMD GPUs with ROCm, and by the same code on CUDA.

Proven in Triton's interpreter, on CPU tensors. Not run on a card yet: what only a card can show (cuda.py, real graphs,
torch._scaled_mm, speed) is for tests/gpu.
"""
