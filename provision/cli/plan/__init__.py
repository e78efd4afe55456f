"""What `provision plan` works on, and what it applies."""
