"""Triton kernels of our own, for AMD GPUs; the same code runs on CUDA and in Triton's interpreter.

One file a kernel: the kernels, one launcher that takes torch tensors, and `variants`, the cases that CI compiles ahead
of time. Triton is imported here and nowhere else; a server on a CPU never imports this package.
"""
