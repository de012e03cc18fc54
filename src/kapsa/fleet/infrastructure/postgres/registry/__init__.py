"""Repositories of registered operators and clusters."""
