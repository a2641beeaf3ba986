"""Declaration, checks and description of settings."""
