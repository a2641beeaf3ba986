"""Kinds of tables: frames, layouts, Markdown and LaTeX."""
