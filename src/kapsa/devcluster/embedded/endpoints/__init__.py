"""Endpoints: route a request about a resource or a subresource to its verb."""
