"""Commands of maintainers that write committed files."""
