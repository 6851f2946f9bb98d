"""Makes `pytest --hypothesis-profile=long` known to the test of the model: hours, and never the same."""

from hypothesis import settings

settings.register_profile("long")
