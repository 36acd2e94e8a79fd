"""Capacity, required replicas, floors and their explanations. Pure: no clock, no I/O."""
