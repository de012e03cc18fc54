"""Which engine builds a project, its objects, and how far they are."""

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
    """BuildKit, Kaniko and kpack: what `kapsa.environments.ports.Builds` asks for."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def engine(self, project: Project) -> str:
        """What builds this project's images: what it says, or what suits its strategy."""
        build = project.spec.build
        if build is None or build.strategy == "none":
            return "none"
        if build.engine is not None:
            return build.engine
        return "kpack" if build.strategy == "buildpack" else self._settings.build_engine

    def objects(self, request: BuildRequest) -> Sequence[dict[str, Any]]:
        """The objects that build it; the build itself, a Job or a kpack Image, is the last.

        :raises Refused: something of the project is not taken.
        """
        return _OBJECTS[self.engine(request.project)](request, self._settings)

    def progress(self, build: Mapping[str, Any]) -> BuildProgress:
        """How far the build is, from the last of its objects."""
        return kpack_progress(build) if build.get("kind") == "Image" else job_progress(build)
