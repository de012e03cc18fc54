"""Builds: the objects that turn a commit into an image, and what their status says. No I/O: the build step applies and reads.

engines (buildkit · kaniko, both a job whose source is fetched first · kpack) · identity (which image a commit has, and which
builds are the same)
"""

from kapsa.environments.build.engines import BuildEngines
from kapsa.environments.build.identity import build_digest, image_tag

__all__ = ["BuildEngines", "build_digest", "image_tag"]
