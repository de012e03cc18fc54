"""The registry: operators with their versions, and clusters with their credentials, health and inventory."""
