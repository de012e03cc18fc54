"""Generated mutations of a valid object of each built-in kind, and what the real server says of each."""
