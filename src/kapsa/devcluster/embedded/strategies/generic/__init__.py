"""The strategies that others extend, and the rules that many of them use."""
