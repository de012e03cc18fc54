"""Benchmarks that compare Kapsa with its peers in one run: `python -m bench [SCENARIO --n N]`.

- `__main__`, `plan`, `console`: the command, the order of a complete run, and its output.
- `scenarios`: the work that is measured.
- `fleet`: the fleet manager under load, with its clusters and clients.
- `programs`, `peers`: the operators under comparison.
- `planes`, `measured_plane`, `embedded_server`, `environments_cluster`: the API servers they run against.
- `processes`, `machine`: CPU and memory of a process, and the machine.
- `results`, `targets`, `page`: the results as JSON, the targets of the design, and RESULTS.md.
"""
