"""A Kubernetes control plane for development and tests: embedded in Python, or real."""
