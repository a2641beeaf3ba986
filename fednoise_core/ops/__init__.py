"""Tensor and array mathematics that methods call. Nothing here knows of a client."""
