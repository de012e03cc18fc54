"""Repositories of the rollout engine: deployments and their clusters, claims, plans, approvals."""
