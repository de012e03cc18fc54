"""Replies: objects, lists and tables in the form that the client accepts."""
