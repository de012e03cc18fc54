"""The rollout engine: a level-triggered reconciler over rows, on any number of replicas.

engine      claims rows that are due, and gives each to the conductor or to the worker
conductor   decides for a whole deployment: plan, approvals, stages, rollback
worker      does the next step of one cluster, and writes the outcome under its fence
notices     events for webhooks when a deployment ends, stops or turns back
steps       what is done in each step
turn        one look at a cluster: what a step sees, and what it may answer
rollout_secrets  opens what is applied to a cluster, with no transaction open
renewal     keeps a lease while a step runs
settings    intervals, patience and limits
"""
