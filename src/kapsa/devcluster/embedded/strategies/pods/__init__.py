"""Pods and pod templates: defaults, validation, warnings."""
