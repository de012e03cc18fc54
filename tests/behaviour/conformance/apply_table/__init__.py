"""The table of server-side apply: cases, and what a real API server does with them."""
