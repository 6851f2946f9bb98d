"""`fourstroke kv-events`: watch, check and measure a stream of KV events, ours or another engine's."""
