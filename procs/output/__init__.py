"""Output: tokens to text, and stop strings."""
