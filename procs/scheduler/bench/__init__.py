"""Measures the control plane in one process: planning, messages and settling, with a stand-in for the executor."""
