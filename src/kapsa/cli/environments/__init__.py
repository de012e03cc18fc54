"""`kapsa environments`: the environments operator, and the environments of people."""
