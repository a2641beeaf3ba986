"""Kinds of figures, drawn from runs or from the artifacts of a setting."""
