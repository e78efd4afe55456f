"""What `provision check` takes from people: files, configuration, scope."""
