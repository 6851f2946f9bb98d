"""Publisher: KV cache events for routers and anybody else."""
