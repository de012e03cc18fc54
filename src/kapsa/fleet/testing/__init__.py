"""An operator to roll out where pods run no containers, for tests, benchmarks and the demo.

- `sample_chart`: the chart of an operator for Gadgets, healthy or bad in one way.
- `simulated_controller`: the controller that its pods would run.
"""
