"""Kubernetes manifests: reading them within limits, the pods in them, and the health of their objects."""
