"""Choose where a job runs: what it needs, how fast it will be, what it costs, and how spot changes that."""
