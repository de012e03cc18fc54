"""Pod Security: the levels that the labels of a namespace set, and the checks of each level."""
