"""Structural schemas: validation, pruning, defaulting and CEL, as kube-apiserver applies them."""
