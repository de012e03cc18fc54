"""Stand-ins for the parts of a real cluster that environments need, for tests, benchmarks and the demo.

- `simulated_builds`: completes build Jobs where pods run no containers.
- `sample_application`: a repository's files: a page, its Dockerfile and its Helm chart.
"""

from pathlib import Path

__all__ = ["SAMPLE_APPLICATION"]

SAMPLE_APPLICATION = Path(__file__).with_name("sample_application")
"""The directory of the sample application."""
