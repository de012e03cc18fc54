"""The strategy that all built-in kinds share, and the rules that many of them use."""
