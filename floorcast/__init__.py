"""The vocabulary of floorcast: frozen types, units, column names, configuration and errors. No I/O."""

__version__ = "0.1.0"
