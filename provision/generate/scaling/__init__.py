"""A scaling policy, written down for the engines that act on it."""
