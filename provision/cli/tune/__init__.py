"""What `provision tune` knows of a machine and a job."""
