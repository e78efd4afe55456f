"""A Stack for Kubernetes: Helm values, manifests and Jobs, as text."""
