"""The steps of the workflow, one command line each, and what plans and keeps them."""
