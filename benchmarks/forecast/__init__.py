"""Forecasts against what others forecast with, on production traffic: `python -m benchmarks.forecast`."""
