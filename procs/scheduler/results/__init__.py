"""What comes out of a step: new tokens, ends, and what output is told."""
