"""Strings made safe, footnotes, and the cells of tables."""
