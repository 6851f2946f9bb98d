"""Executor: the model on its device."""
