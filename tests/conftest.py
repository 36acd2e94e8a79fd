"""Settings of all tests."""

from hypothesis import settings

# A busy machine is slow; no test asserts how long anything takes.
settings.register_profile("floorcast", deadline=None)
settings.load_profile("floorcast")
