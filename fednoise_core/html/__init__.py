"""HTML pages that work without a network."""
