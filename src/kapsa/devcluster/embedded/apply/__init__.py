"""Server-side apply with its field ownership, and the patch types."""
