"""KV that moves between engines: the scheduler's half."""
