"""Stack to text: build contexts and every other file written from templates."""
