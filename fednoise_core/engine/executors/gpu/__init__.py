"""Experimental executors for a GPU: captured graphs and lanes."""
