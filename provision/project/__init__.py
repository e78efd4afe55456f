"""What requirements files and whole projects ask for, read without running anything."""
