"""How processes talk: messages, wires, shared memory. Knows no model, no HTTP and no policy."""
