"""`kapsa demo fleet`: an operator is rolled out over ten clusters, and a bad version comes back by itself.

- `story`: starts the services, runs the walkthrough, and stops or keeps them running.
- `services`: starts the clusters, the chart repository and the manager.
- `walkthrough`: what people do with the manager, over its API.
- `cluster_table`: the live table of clusters and stages.
"""
