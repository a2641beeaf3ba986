"""The second product: suspect labels of one's own data, from the estimate to the page and the corrected files."""
