"""Settings of all tests."""

import pytest
from hypothesis import settings

# A busy machine is slow; no test asserts how long anything takes.
settings.register_profile("floorcast", deadline=None)
settings.load_profile("floorcast")

LONGEST = (
    *("test_live.py", "test_closed_loop.py", "test_cycle.py", "test_ingest.py", "test_servegen.py", "test_tune.py"),
    *("test_faults.py", "test_fanout.py", "test_browser.py"),
)
"""Files that take long: begun last, one of them would keep one core busy while the others are idle. The first two
mostly wait, for servers that scrape by the clock: beside each other they leave both cores to these and to one more."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(LONGEST)))
