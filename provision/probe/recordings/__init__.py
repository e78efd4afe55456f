"""What other programs recorded of a machine: bug reports, archives, listings and logs become snapshots."""
