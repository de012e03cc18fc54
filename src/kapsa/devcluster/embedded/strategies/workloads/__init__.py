"""The strategies of kinds that run pods: apps, batch and autoscaling."""
