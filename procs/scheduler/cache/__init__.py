"""The pool of KV blocks and the prefix cache over it."""
