"""The controllers that create pods from templates, and the pure planners they run."""
