"""The parts of `provision image`: locks, whole projects, many images, OCI layouts."""
