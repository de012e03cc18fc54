"""The controllers, one for each kind."""
