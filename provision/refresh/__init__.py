"""Facts read from upstream, compared with those at hand, and landed when every rule holds."""
