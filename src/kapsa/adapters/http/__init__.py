"""Outgoing HTTP to servers that nobody vouches for, every address checked before it is connected to."""
