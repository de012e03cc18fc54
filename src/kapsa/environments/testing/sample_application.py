"""A sample application: a page, its Dockerfile and its Helm chart, as the files of a repository."""

from pathlib import Path

__all__ = ["SAMPLE_APPLICATION"]

SAMPLE_APPLICATION = Path(__file__).with_name("application")
"""The directory of the sample application."""
