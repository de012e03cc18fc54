"""Storage: objects, revisions and the windows of changes."""
