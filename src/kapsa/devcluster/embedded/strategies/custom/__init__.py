"""Strategies of CustomResourceDefinitions and of the resources they define."""
