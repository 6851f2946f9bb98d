"""What is proven of the kernels without a card: they are compiled for each AMD architecture, and the assembly is read.

`fourstroke kernels` starts this package as a program. It needs Triton and no GPU.
"""
