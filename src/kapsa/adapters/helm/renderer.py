"""Helm charts, rendered by the real helm without a cluster, a network, plugins or a home directory.

`lookup` returns nothing and host names are not resolved: a chart sees its own files and the values that it is
given. Dependencies must be vendored in `charts/`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kapsa.adapters.errors import Refused, RenderFailed
from kapsa.adapters.helm._isolated_helm import helm_message, run_isolated_helm
from kapsa.adapters.helm._values_schema import schemas_are_self_contained
from kapsa.adapters.manifests.manifest import Manifest, display_name
from kapsa.adapters.manifests.yaml_documents import load_documents, load_objects
from kapsa.adapters.process.limited_process import ProcessLimits

__all__ = ["RELEASE_LIMIT", "RenderedChart", "default_values", "render_chart", "render_manifest"]

RELEASE_LIMIT = 53
"""The longest name that helm accepts for a release."""
_RELEASE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_HOOK = "helm.sh/hook"
_API_VERSION = re.compile(r"[A-Za-z0-9][-A-Za-z0-9./]{0,400}")
_KUBE_VERSION = re.compile(r"v?[0-9]{1,3}\.[0-9]{1,4}(\.[0-9]{1,4})?([-+][0-9A-Za-z.+-]{1,64})?")


class RenderedChart(msgspec.Struct, frozen=True):
    """The objects of a chart, and what was left out of the rendering."""

    objects: tuple[Manifest, ...]
    hooks: tuple[str, ...] = ()
    """Kind and name of each Helm hook. Hooks are left out: nothing runs them."""
    schema_checked: bool = True
    """False if the values were not validated, because a schema may refer to other files or servers."""


async def render_chart(
    chart: Path,
    values: Mapping[str, Any],
    *,
    release: str,
    namespace: str,
    limits: ProcessLimits,
    kube_version: str = "",
    api_versions: Iterable[str] = (),
) -> RenderedChart:
    """Render the chart in a directory, for a cluster of this version that serves these APIs, too.

    Raises `RenderFailed` with helm's own message when the chart does not render, and `Refused` when helm
    would not accept the release name.
    """
    options = _capabilities(kube_version, api_versions)
    output, schema_checked = await _template(chart, values, release, namespace, limits, options)
    # A large chart takes seconds to parse.
    objects, hooks = _without_hooks(await asyncio.to_thread(load_objects, output, "the rendered chart"))
    return RenderedChart(tuple(objects), tuple(hooks), schema_checked)


async def render_manifest(
    chart: Path,
    values: Mapping[str, Any],
    *,
    release: str,
    namespace: str,
    limits: ProcessLimits,
    include_crds: bool = False,
    kube_version: str = "",
    api_versions: Iterable[str] = (),
) -> bytes:
    """Render the chart in a directory, and return helm's own output, hooks included.

    With `include_crds`, the files in `crds/` come first. `kube_version` is the version of the cluster that the
    chart sees, by default that of helm; `api_versions` are what the cluster serves besides the built-in kinds.

    Raises the errors of `render_chart`, and `Refused` when the version is not one.
    """
    options = _capabilities(kube_version, api_versions)
    options += ["--include-crds"] if include_crds else []
    return (await _template(chart, values, release, namespace, limits, options))[0]


def default_values(chart: Path) -> dict[str, Any]:
    """Return the values in the chart's values.yaml.

    Raises `RenderFailed` when the file is not YAML.
    """
    path = chart / "values.yaml"
    documents = load_documents(path.read_bytes(), "values.yaml") if path.is_file() else []
    return documents[0] if documents and isinstance(documents[0], dict) else {}


def _capabilities(kube_version: str, api_versions: Iterable[str]) -> list[str]:
    """Return the options for what a chart learns of the cluster. A cluster may serve a kind with any name."""
    if kube_version and not _KUBE_VERSION.fullmatch(kube_version):
        raise Refused(f"{kube_version[:80]!r} is not a version of Kubernetes")
    options = [f"--kube-version={kube_version}"] if kube_version else []
    return options + [f"--api-versions={each}" for each in api_versions if _API_VERSION.fullmatch(each)]


async def _template(
    chart: Path,
    values: Mapping[str, Any],
    release: str,
    namespace: str,
    limits: ProcessLimits,
    options: list[str],
) -> tuple[bytes, bool]:
    """Return the output of helm, and whether it has validated the values."""
    if len(release) > RELEASE_LIMIT or not _RELEASE.fullmatch(release):
        raise Refused(f"{release!r} is not a valid name for a Helm release")
    if not (chart / "Chart.yaml").is_file():
        raise RenderFailed(f"there is no Chart.yaml in {chart.name!r}", reason="NoChart")
    check_schema = await asyncio.to_thread(schemas_are_self_contained, chart)
    arguments = ["template", release, str(chart), "--namespace", namespace, *options]
    arguments += ["--dry-run=client", "--skip-tests", "--enable-dns=false", "--dependency-update=false"]
    if not check_schema:
        arguments += ["--skip-schema-validation"]
    finished = await run_isolated_helm(arguments, values, limits)
    if finished.code:
        raise RenderFailed(f"helm: {helm_message(finished.stderr, chart)}", hint=_hint(finished.stderr))
    return finished.output, check_schema


def _hint(stderr: str) -> str:
    if "missing in charts/ directory" in stderr:
        return "Commit the dependencies: run `helm dependency build` and add charts/ to the repository"
    return ""


def _without_hooks(objects: list[Manifest]) -> tuple[list[Manifest], list[str]]:
    kept, hooks = [], []
    for each in objects:
        annotations = each["metadata"].get("annotations")
        if isinstance(annotations, dict) and _HOOK in annotations:
            hooks.append(display_name(each))
        else:
            kept.append(each)
    return kept, hooks
