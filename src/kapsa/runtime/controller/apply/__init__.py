"""Server-side apply of children: the manifest, the fields that we own, and when nothing has to be sent."""
