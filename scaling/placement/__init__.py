"""Which share of a class goes to which of the pools that can serve it, at least cost."""

from scaling.placement.place import Placement, Relaxation, place

__all__ = ["Placement", "Relaxation", "place"]
