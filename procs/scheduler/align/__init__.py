"""When the ranks of a group prefill: all at once, or each when it can."""
