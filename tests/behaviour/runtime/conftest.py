"""The harness for tests of running operators."""

from kapsa.runtime.testing.plugin import faults, harness, plain_logs

__all__ = ["faults", "harness", "plain_logs"]
