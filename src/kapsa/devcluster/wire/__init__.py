"""The wire: HTTP/1.1, requests and replies, paths and queries, status errors. Shared by both engines."""
