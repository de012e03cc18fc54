"""Git servers and repositories that are not trusted.

- `client`: `Git` runs git with a hardened configuration, and lists and fetches references.
- `repositories`: `Repositories` checks out exact commits from a cache.
- `checkout`: the files of one commit.
- `address`: URLs, commits and branch names, checked before git sees them.
- `credentials`: logins from a Secret, passed to git through private files.
- `_repository_cache`, `_host_limits`, `_failures`: bare repositories on disk, back-off per server, git's
  error messages.
"""
