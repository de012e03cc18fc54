"""`kapsa fleet`: the fleet manager, its database, its keys and its audit log."""
