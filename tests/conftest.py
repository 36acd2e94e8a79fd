"""Settings of all tests."""

import pytest
from hypothesis import settings

# A busy machine is slow; no test asserts how long anything takes.
settings.register_profile("floorcast", deadline=None)
settings.load_profile("floorcast")

LONGEST = ("test_servegen.py", "test_live.py", "test_kill.py", "test_closed_loop.py")
"""Files of few tests that take long. Begun last, one of them would keep one core busy while the others are idle."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONGEST)
