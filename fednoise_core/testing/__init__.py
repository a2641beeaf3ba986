"""Tools for tests of methods.

These are a small world and the contract suite, which you can run on your own method
(`python -m fednoise_core.testing --method package.module:Class`). Only `plugin` and `test_contract` need pytest.
"""
