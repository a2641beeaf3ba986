"""Finished runs: folders of files become checked frames and names."""
