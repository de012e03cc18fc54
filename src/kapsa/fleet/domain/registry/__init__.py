"""The registry: operators with their versions, and clusters with their inventory and the times of change."""
