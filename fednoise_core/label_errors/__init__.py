"""Label errors in the user's own data: estimates, the page for review, and corrected files."""
