"""Scheduler: which tokens are computed in which step, and where their KV lies."""
