"""The table of server-side apply: cases, and the recorded responses of a real API server."""
