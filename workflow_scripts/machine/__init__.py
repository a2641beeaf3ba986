"""What this machine has: GPUs, locks, installed versions."""
