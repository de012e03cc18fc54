"""Comparisons with peers, in one run: `python -m bench`, or one scenario alone: `python -m bench SCENARIO --n N`."""
