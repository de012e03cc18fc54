"""The embedded engine: a Kubernetes API server with its controllers in one Python process."""
