"""What maintainers run to write committed files."""
