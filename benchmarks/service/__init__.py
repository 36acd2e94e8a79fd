"""Figures of the service."""
