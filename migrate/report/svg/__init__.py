"""Charts as inline SVG: no script, no network, colours from the page."""
