"""The steps from an Environment to an application that serves at a URL, one per module.

namespace → policy → secrets → build → host → render → apply → route → tls → verify
"""
