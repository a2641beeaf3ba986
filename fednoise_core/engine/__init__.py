"""The engine: rounds, clients, executors, evaluation and the files of a run.

It does not depend on any particular method, net or data set. Methods import the names of `fednoise_core.engine.api`.
"""
