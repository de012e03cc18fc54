"""The CEL expressions of admission policies: the variables they see, and their compilation."""
