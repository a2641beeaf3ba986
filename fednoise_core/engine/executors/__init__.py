"""Executors run clients' work: one by one, by worker processes, or as captured steps on a GPU (replay)."""
