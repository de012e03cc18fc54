"""Costs of expressions: the `estimator` finds the most they can be, `meter` adds up what they are."""
