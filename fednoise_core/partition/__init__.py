"""Partitions: who holds which training sample; `registry.make` makes the artifact, which `artifact` reads."""
