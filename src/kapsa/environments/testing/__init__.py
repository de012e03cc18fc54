"""Stand-ins for the parts of a real cluster that environments need, for tests, benchmarks and the demo.

- `simulated_builds`: completes build Jobs where pods run no containers.
- `sample_application`: the files of a repository: a page, its Dockerfile and its Helm chart.
"""
