"""What the pools' calendars ask for now."""

from __future__ import annotations

from datetime import datetime

import numpy as np

from floorcast.config import Config
from floorcast.units import floor_to_step
from pipelines.service.tick import Calendars
from scaling.calendar import limits
from scaling.ladder import Grid


class CalendarReader:
    """Of a pool without a calendar nothing is asked; of the others anew with each step."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._start: datetime | None = None
        self._found = Calendars(*np.full((2, len(config.pools)), np.nan))

    def read(self, now: datetime) -> Calendars:
        config = self._config
        start = floor_to_step(now, config.step)
        if start == self._start:
            return self._found
        found = Calendars(*np.full((2, len(config.pools)), np.nan))
        for lane, (name, pool) in enumerate(config.pools.items()):
            if pool.calendar:
                width = config.lead_steps(name)
                grid = Grid(start, config.step, width)
                asked = limits(pool.calendar, grid, windows=1, width=width, zone=config.zone)
                found.minimum[lane] = asked.minimums[0]
                found.ceiling[lane] = asked.ceilings[0]
        self._start, self._found = start, found
        return found
