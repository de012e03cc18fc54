"""The fleet manager: rolls operators (Helm charts with CRDs) out over many clusters.

The rooms, top to bottom. A room imports only from the rooms below it:

server           the running manager: everything composed, started in order, stopped in the reverse order
testing          an operator to roll out where pods run no containers, for tests, benchmarks and the demo
api              the HTTP API: routes, authentication, authorization, rate limits, problem details, OpenAPI
infrastructure   PostgreSQL, Helm, clusters, charts, sealed secrets, mail: implementations of the ports
orchestrator     use cases, the rollout engine, and the ports that they need
domain           operators, clusters, deployments, plans, strategies, CRD comparison, approvals, health verdicts:
                 pure, without I/O and without a clock
settings         the environment variables of the manager, with their defaults
"""
