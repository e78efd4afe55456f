"""A package index: which one this machine is told to use, and what its pages say; nothing here asks the network."""
