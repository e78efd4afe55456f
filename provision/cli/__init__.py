"""The command line: the only floor that parses words, prints, and knows the others all at once."""
