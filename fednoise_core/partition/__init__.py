"""Partitions, which assign training samples to clients. `registry.make` makes the partition artifact."""
