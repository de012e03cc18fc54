"""The `kapsa` command."""
