"""The routes: one controller for each kind of object, with all methods of its paths."""
