"""Use cases and the rollout engine, written against ports that the infrastructure implements."""
