"""One module a framework: what its newest wheels say becomes rows of its fact file."""
