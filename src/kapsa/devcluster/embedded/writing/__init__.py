"""Writing: from a body to a committed change, and deletion."""
