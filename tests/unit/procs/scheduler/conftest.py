"""Makes `pytest --hypothesis-profile=long tests/unit/procs/scheduler/test_model.py` known: hours, and never the same."""

from hypothesis import settings

settings.register_profile("long")
