"""Projects whose images are never built: the reason, and the fields to set."""

from __future__ import annotations

from kapsa.environments.resources import Project

__all__ = ["NOT_BUILT", "missing_build"]

NOT_BUILT = "NotBuilt"
"""The reason of conditions of such projects."""


def missing_build(project: Project) -> str:
    """Return why no commit of a project is built; empty if one is, or if the project sets strategy none."""
    if project.spec.registry is not None or project.spec.build is not None:
        return ""
    image = project.spec.deployment.values.get("image")
    repository = image.get("repository") if isinstance(image, dict) else None
    example = f", such as {repository}" if isinstance(repository, str) else ""
    return (
        "no image is built, so every commit runs the images that its manifests name: to build each commit, set build and "
        f"registry.imageRepository of the Project{example}; to build none on purpose, set build.strategy to none"
    )
