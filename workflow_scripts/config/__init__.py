"""YAML files become checked, normalised settings. Nothing here knows of a grid."""
