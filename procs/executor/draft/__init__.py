"""Drafts: cheap guesses of what the model will say next, to be verified many at a time."""
