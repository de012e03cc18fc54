"""The steps from an Environment to something that runs at an address, one a module.

namespace → policy → secrets → build → host → render → apply → route → tls → verify
"""
