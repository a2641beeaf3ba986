"""Pages: single HTML files that work offline."""
