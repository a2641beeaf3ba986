"""Tools for tests of methods.

These are a small world and the contract suite, which anybody can run on a method of their
own (`python -m fednoise_core.testing --method package.module:Class`). Only `plugin` and `test_contract` need pytest.
"""
