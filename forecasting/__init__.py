"""Cleaning, candidate models, cutoff guard, backtest, selection, quantiles and accuracy. Pure: no clock, no I/O."""
