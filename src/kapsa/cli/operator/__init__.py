"""Commands for people who write operators: their projects, their generated files, and what a running one does."""
