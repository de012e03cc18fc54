"""Helm charts, rendered by the real helm without a cluster, a network, plugins or a home directory.

`lookup` returns nothing and host names are not resolved: a chart sees its own files and the values that it is
given. Dependencies must be vendored in `charts/`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from kapsa.adapters.errors import Refused, RenderFailed
from kapsa.adapters.helm._isolated_helm import helm_message, run_isolated_helm
from kapsa.adapters.helm._values_schema import schemas_are_self_contained
from kapsa.adapters.manifests.manifest import Manifest, display_name
from kapsa.adapters.manifests.yaml_documents import load_documents, load_objects
from kapsa.adapters.process.limited_process import ProcessLimits

__all__ = ["RELEASE_LIMIT", "RenderedChart", "default_values", "render_chart"]

RELEASE_LIMIT = 53
"""The longest name that helm accepts for a release."""
_RELEASE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_HOOK = "helm.sh/hook"


class RenderedChart(msgspec.Struct, frozen=True):
    """The objects of a chart, and what was left out of the rendering."""

    objects: tuple[Manifest, ...]
    hooks: tuple[str, ...] = ()
    """Kind and name of each Helm hook. Hooks are left out: nothing runs them."""
    hook_objects: tuple[Manifest, ...] = ()
    schema_checked: bool = True
    """False if the values were not validated, because a schema may refer to other files or servers."""


async def render_chart(
    chart: Path,
    values: Mapping[str, Any],
    *,
    release: str,
    namespace: str,
    limits: ProcessLimits,
    include_crds: bool = False,
) -> RenderedChart:
    """Render the chart in a directory. With `include_crds`, the files in `crds/` come first.

    Raises `RenderFailed` with helm's own message when the chart does not render, and `Refused` when helm
    would not accept the release name.
    """
    if len(release) > RELEASE_LIMIT or not _RELEASE.fullmatch(release):
        raise Refused(f"{release!r} is not a valid name for a Helm release")
    if not (chart / "Chart.yaml").is_file():
        raise RenderFailed(f"there is no Chart.yaml in {chart.name!r}", reason="NoChart")
    check_schema = await asyncio.to_thread(schemas_are_self_contained, chart)
    options = ["--include-crds"] if include_crds else []
    if not check_schema:
        options += ["--skip-schema-validation"]
    output = await _template(chart, values, release, namespace, limits, options)
    objects, hooks = _without_hooks(load_objects(output, "the rendered chart"))
    return RenderedChart(tuple(objects), tuple(map(display_name, hooks)), tuple(hooks), check_schema)


def default_values(chart: Path) -> dict[str, Any]:
    """Return the values in the chart's values.yaml.

    Raises `RenderFailed` when the file is not YAML.
    """
    path = chart / "values.yaml"
    documents = load_documents(path.read_bytes(), "values.yaml") if path.is_file() else []
    return documents[0] if documents and isinstance(documents[0], dict) else {}


async def _template(
    chart: Path,
    values: Mapping[str, Any],
    release: str,
    namespace: str,
    limits: ProcessLimits,
    options: list[str],
) -> bytes:
    arguments = ["template", release, str(chart), "--namespace", namespace]
    arguments += ["--dry-run=client", "--skip-tests", "--enable-dns=false", "--dependency-update=false"]
    finished = await run_isolated_helm([*arguments, *options], values, limits)
    if finished.code:
        raise RenderFailed(f"helm: {helm_message(finished.stderr, chart)}", hint=_hint(finished.stderr))
    return finished.output


def _hint(stderr: str) -> str:
    if "missing in charts/ directory" in stderr:
        return "Commit the dependencies: run `helm dependency build` and add charts/ to the repository"
    return ""


def _without_hooks(objects: list[Manifest]) -> tuple[list[Manifest], list[Manifest]]:
    kept, hooks = [], []
    for each in objects:
        annotations = each["metadata"].get("annotations")
        if isinstance(annotations, dict) and _HOOK in annotations:
            hooks.append(each)
        else:
            kept.append(each)
    return kept, hooks
