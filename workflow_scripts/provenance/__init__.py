"""Which code made a file, and which bytes it holds."""
