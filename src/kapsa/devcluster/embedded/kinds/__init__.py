"""The kinds that are served: built-in ones from data, and the registry of all."""
