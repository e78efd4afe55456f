"""Facts that change: `provision data refresh` and `provision data update`."""
