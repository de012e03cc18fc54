"""Authentication: the user of a request, by token, certificate or impersonation."""
