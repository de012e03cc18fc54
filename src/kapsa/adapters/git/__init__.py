"""Git: hardened commands, credentials, checkouts of exact commits, and a cache of repositories."""
