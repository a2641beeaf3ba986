"""Commands with which maintainers write files that are kept in git."""
