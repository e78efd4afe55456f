"""Write an image without an engine: verified wheels become layers on top of a base that is already at hand."""
