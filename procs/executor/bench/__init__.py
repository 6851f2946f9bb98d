"""Measures the model by itself: the executor's runner with step slots in plain memory, and nothing around it."""
