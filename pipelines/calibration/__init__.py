"""Results of load-testing tools as the runs that `scaling.calibration` judges."""

from pipelines.calibration.files import read_results

__all__ = ["read_results"]
