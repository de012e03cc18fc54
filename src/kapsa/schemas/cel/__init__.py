"""CEL with Kubernetes' own functions, and the rules of custom resources."""
