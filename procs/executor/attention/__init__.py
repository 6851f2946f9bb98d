"""The executor: attention over the paged KV cache."""
