"""Suspect labels of one's own data: found by a study, looked at on a page, corrected in a new file. README.md."""
