"""Commands of the people who use a fleet manager, over its HTTP API only: one module for each kind of object."""
