"""What a policy would have cost, and how long jobs would have waited: a recorded load, replayed."""
