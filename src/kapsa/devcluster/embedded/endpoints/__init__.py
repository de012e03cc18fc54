"""Endpoints: what a request names, its options, and the verb it turns out to be."""
