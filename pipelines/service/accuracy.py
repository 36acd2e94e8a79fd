"""Accuracy of the published forecasts as metrics, from the file that the last evaluation left."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic import ValidationError

from pipelines.publishers.accuracy import Accuracy

logger = logging.getLogger(__name__)
LABELS = ("workload_class", "metric", "horizon")


class AccuracyCollector(Collector):
    """Series are bounded by classes. Without the file, or where it cannot be read, there are none."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        found = self._read()
        wape = GaugeMetricFamily(
            "floorcast_forecast_wape_ratio", "Error of the published medians, as a share of demand.", labels=LABELS
        )
        below = GaugeMetricFamily(
            "floorcast_forecast_calibration_ratio",
            "Share of steps at or under the published quantile of the floor.",
            labels=LABELS,
        )
        judged = GaugeMetricFamily(
            "floorcast_forecast_judged_timestamp_seconds", "When they were last judged.", labels=()
        )
        if found is not None:
            judged.add_metric((), found.as_of.timestamp())
            for row in found.series:
                labels = (row.workload_class, row.metric, row.horizon)
                if row.wape is not None:
                    wape.add_metric(labels, row.wape)
                if row.calibration is not None:
                    below.add_metric(labels, row.calibration)
        yield from (wape, below, judged)

    def _read(self) -> Accuracy | None:
        try:
            return Accuracy.model_validate_json(self._file.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            logger.warning("%s cannot be read: %s", self._file, type(error).__name__)
            return None
