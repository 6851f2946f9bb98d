"""The CPU's kernels in C: a step of a model in one call, built once with the machine's compiler."""
