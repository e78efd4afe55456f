"""What is true of a machine, judged once: every fact with its evidence, for all who ask."""
