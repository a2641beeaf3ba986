"""What `import fednoise_core as fn` gives: inject, partition, run, predict."""
