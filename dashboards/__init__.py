"""Plotly figures (frame in, figure out) and the static site made of them."""
