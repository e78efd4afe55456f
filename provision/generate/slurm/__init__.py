"""The same stack for Slurm: what its health program knows of the facts, and batch files."""
