"""A rollout from plan to end: strategies and stages, approvals, the release on each target and what may follow."""
