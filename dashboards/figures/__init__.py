"""Pure Plotly figures: a frame in, a figure out. Colours are CSS variables, resolved by the page that draws them."""
