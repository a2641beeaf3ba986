"""Executors run the clients, one after another or in worker processes."""
