"""The wire: HTTP/1.1, requests and replies, status errors, and paths. Shared by both engines."""
