"""Ports: what the use cases need from the outside. `kapsa.fleet.infrastructure` implements them."""
