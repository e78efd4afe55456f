"""The parts of `provision node`: locks, runs, exports."""
