"""The work of a controller: the queue of its keys, a share of it, and what was done."""
