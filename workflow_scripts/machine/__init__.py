"""Facts about this machine: GPUs, locks, installed versions."""
