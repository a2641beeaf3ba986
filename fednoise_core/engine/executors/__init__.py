"""Executors run clients' work: one by one, or by worker processes."""
