"""Requests: options, writes and deletions as typed values."""
