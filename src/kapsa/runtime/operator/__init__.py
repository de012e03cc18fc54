"""Operators: the declaration, its life cycle, leader election, the rights check at start, and the program."""
