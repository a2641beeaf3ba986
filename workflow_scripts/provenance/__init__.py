"""Provenance of files: the hash of the code that made them, and checksums of their contents."""
