"""The engine: rounds, clients, executors, evaluation and the files of a run.

It knows no method, net or data set by name. Methods are written with the names of `fednoise_core.engine.api`.
"""
