"""Build contexts into images with the engine at hand, prove them and record what was built."""
