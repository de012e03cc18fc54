"""The build engines: the one for a project, the objects that it creates, and their progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kapsa.environments.build.buildkit import buildkit_objects
from kapsa.environments.build.job import job_progress
from kapsa.environments.build.kaniko import kaniko_objects
from kapsa.environments.build.kpack import kpack_objects, kpack_progress
from kapsa.environments.ports import BuildProgress, BuildRequest
from kapsa.environments.resources import Project
from kapsa.environments.settings import Settings

__all__ = ["BuildEngines"]

_OBJECTS = {"buildkit": buildkit_objects, "kaniko": kaniko_objects, "kpack": kpack_objects}


class BuildEngines:
    """The engines BuildKit, Kaniko and kpack, as `kapsa.environments.ports.Builds`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def engine(self, project: Project) -> str:
        """Return the engine of a project: the configured one, or the default for its strategy."""
        build = project.spec.build
        if build is None or build.strategy == "none":
            return "none"
        if build.engine is not None:
            return build.engine
        return "kpack" if build.strategy == "buildpack" else self._settings.build_engine

    def objects(self, request: BuildRequest) -> Sequence[dict[str, Any]]:
        """Return the objects of a build. The last one is the build itself, a Job or a kpack Image.

        Raises `Refused` when a field of the project is not valid.
        """
        return _OBJECTS[self.engine(request.project)](request, self._settings)

    def progress(self, build: Mapping[str, Any]) -> BuildProgress:
        """Return the progress of a build, from the last of its objects."""
        return kpack_progress(build) if build.get("kind") == "Image" else job_progress(build)
