"""The steps of one cluster. Each looks at the cluster, acts at most once, and returns the target as it becomes.

A step may be repeated at any time, by any replica: it observes before it acts, and compares with the intent.
"""
