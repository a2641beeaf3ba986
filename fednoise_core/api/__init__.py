"""Functions of `import fednoise_core as fn` that run a federation and use its result."""
