"""The executor for a GPU, which captures a step as a CUDA graph and replays it (experimental)."""
