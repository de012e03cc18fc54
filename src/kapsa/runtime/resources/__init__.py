"""Resources: the types that model a custom resource, and objects as the cache stores them."""
