"""Helm charts, rendered by the real helm without a cluster, a network, plugins or a home.

`lookup` finds nothing and names are not resolved: a chart sees its own files and the values it is given. Dependencies must be
vendored in `charts/`.
"""

from __future__ import annotations

import asyncio
import copy
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kapsa.adapters.errors import Refused, RenderFailed
from kapsa.adapters.manifests.manifest import Manifest, display_name
from kapsa.adapters.manifests.pod_templates import containers, entries, pod_spec
from kapsa.adapters.manifests.yaml_documents import load_documents, load_objects
from kapsa.adapters.process.limited_process import ProcessLimits, private_environment, run_program
from kapsa.adapters.process.tools import find_tool
from kapsa.adapters.redaction import printable, redact
from kapsa.environments.names import RELEASE_LIMIT
from kapsa.environments.ports import Rendered
from kapsa.environments.render.injection import pin
from kapsa.environments.render.inputs import Injected

__all__ = ["merge_values", "render_chart", "values_of"]

_RELEASE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_HOOK = "helm.sh/hook"
_KNOWN_DIALECT = re.compile(r"https?://json-schema\.org/(draft-0[4-7]|draft/(2019-09|2020-12))/schema#?")
_SCHEMA_LIMIT = 2 * 1024 * 1024
_MOST_SCHEMAS = 100
_SHOWN = 1500


async def render_chart(
    chart: Path, values: Mapping[str, Any], injected: Injected, *, limits: ProcessLimits
) -> Rendered:
    """The objects of the chart in a directory.

    :raises RenderFailed: helm can't render it; the message is helm's own.
    """
    if len(injected.release) > RELEASE_LIMIT or not _RELEASE.fullmatch(injected.release):
        raise Refused(f"{injected.release!r} is not the name of a Helm release")
    if not (chart / "Chart.yaml").is_file():
        raise RenderFailed(
            f"there is no Chart.yaml in {chart.name!r}",
            hint="Set deployment.path to the chart's directory",
            reason="NoChart",
        )
    described = await asyncio.to_thread(_look_at, chart)
    merged = merge_values(values, values_of(injected, env_as_map=described.env_as_map))
    output = await _template(chart, merged, injected, limits, check_schema=described.schema_is_local)
    kept, hooks = _without_hooks(load_objects(output, "the rendered chart"))
    warnings = [f"{each} is a Helm hook, which is not run" for each in hooks]
    if not described.schema_is_local:
        warnings.append(
            "values.schema.json is not checked: it, or a packed subchart's, may refer to other files or servers"
        )
    if injected.image is not None and not pin(kept, injected.image, _tag(injected)):
        warnings.append(
            f"no container of the chart runs {injected.image.repository}: it should use image.repository and image.tag"
        )
    warnings += _unused(kept, injected)
    return Rendered(tuple(kept), tuple(warnings))


def values_of(injected: Injected, *, env_as_map: bool = False) -> dict[str, Any]:
    """The values that an environment brings: image, host and variables, as most charts name them."""
    values: dict[str, Any] = {}
    if injected.image is not None:
        values["image"] = {"repository": injected.image.repository, "tag": _tag(injected)}
        if injected.image.digest:
            values["image"]["digest"] = injected.image.digest
    if injected.host:
        values["ingress"] = {"host": injected.host}
    if injected.variables and env_as_map:
        values["env"] = {variable.name: variable.value for variable in injected.variables}
    elif injected.variables:
        values["env"] = [{"name": variable.name, "value": variable.value} for variable in injected.variables]
    if injected.env_from:
        values["envFrom"] = [dict(each) for each in injected.env_from]
    return values


def merge_values(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Two sets of values as helm merges them: mappings key by key, everything else as a whole. Lists of variables add up."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            merged[key] = merge_values(below, value)
        elif key in ("env", "envFrom") and isinstance(value, list) and isinstance(below, list):
            names = {each["name"] for each in value if "name" in each}
            merged[key] = [each for each in below if not isinstance(each, dict) or each.get("name") not in names or "name" not in each] + value  # fmt: skip
        else:
            merged[key] = value
    return copy.deepcopy(merged)


def _unused(objects: list[Manifest], injected: Injected) -> Iterator[str]:
    """What the environment brings and no container of the chart takes."""
    every = [container for spec in filter(None, map(pod_spec, objects)) for container in containers(spec)]
    set_here = {each.get("name") for container in every for each in entries(container, "env")}
    if missing := [variable.name for variable in injected.variables if variable.name not in set_here]:
        yield f"no container of the chart has {', '.join(missing)}: it should use env"
    sources = [each for container in every for each in entries(container, "envFrom")]
    for wanted in injected.env_from:
        if not any(each.items() >= wanted.items() for each in sources):
            (reference,) = (each["name"] for each in wanted.values() if isinstance(each, dict))
            yield f"no container of the chart has the variables of {reference}: it should use envFrom"


def _tag(injected: Injected) -> str:
    """The tag that a chart gets. Where only the digest is known it stands for it, until the image is pinned afterwards."""
    image = injected.image
    assert image is not None
    return image.tag or image.digest.replace(":", "-")[:19] or "latest"


class _Described(msgspec.Struct, frozen=True):
    env_as_map: bool
    """Whether the chart has its variables by name, and not as a list."""
    schema_is_local: bool
    """Whether checking the values against the chart's schema touches nothing else."""


def _look_at(chart: Path) -> _Described:
    path = chart / "values.yaml"
    defaults = load_documents(path.read_bytes(), "values.yaml") if path.is_file() else []
    env = defaults[0].get("env") if defaults and isinstance(defaults[0], dict) else None
    return _Described(isinstance(env, dict) and bool(env), _schema_is_local(chart))


def _schema_is_local(chart: Path) -> bool:
    """helm follows references in a schema to any file and any server: only schemas without such are checked."""
    if any(chart.rglob("*.tgz")):
        return False
    schemas = list(chart.rglob("values.schema.json"))
    return len(schemas) <= _MOST_SCHEMAS and all(_refers_to_itself_only(schema) for schema in schemas)


def _refers_to_itself_only(path: Path) -> bool:
    try:
        content = path.read_bytes()
        schema = msgspec.json.decode(content) if len(content) <= _SCHEMA_LIMIT else None
    except (OSError, msgspec.DecodeError, RecursionError):
        return False
    if not isinstance(schema, dict):
        return False
    for key, value in _pairs(schema):
        if key == "$schema" and not (isinstance(value, str) and _KNOWN_DIALECT.fullmatch(value)):
            return False
        if key in ("$ref", "$dynamicRef", "$recursiveRef") and not (
            isinstance(value, str) and value.startswith("#")
        ):
            return False
    return True


def _pairs(schema: Any) -> Iterator[tuple[str, Any]]:
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield from node.items()
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


async def _template(
    chart: Path,
    values: Mapping[str, Any],
    injected: Injected,
    limits: ProcessLimits,
    *,
    check_schema: bool,
) -> bytes:
    tool = await asyncio.to_thread(find_tool, "helm")
    with tempfile.TemporaryDirectory(prefix="kapsa-helm-", ignore_cleanup_errors=True) as private:
        home = Path(private)
        (home / "values.json").write_bytes(msgspec.json.encode(values))
        (home / "empty").mkdir()
        command = [str(tool.path), "template", injected.release, str(chart)]
        command += ["--namespace", injected.namespace, "--values", str(home / "values.json")]
        command += ["--dry-run=client", "--skip-tests", "--enable-dns=false", "--dependency-update=false"]
        if not check_schema:
            command += ["--skip-schema-validation"]
        environment = private_environment(home) | {
            "PATH": str(home / "empty"),
            "HELM_NO_PLUGINS": "1",
            "HELM_PLUGINS": str(home / "empty"),
            "NO_COLOR": "1",
        }
        finished = await run_program(command, environment=environment, directory=home, limits=limits)
    if finished.code:
        raise RenderFailed(_complaint(finished.complaint, chart), hint=_hint(finished.complaint))
    return finished.output


def _complaint(text: str, chart: Path) -> str:
    lines = [
        line.replace(f"{chart}/", "").replace(str(chart), chart.name).removeprefix("Error: ").strip()
        for line in redact(printable(text)).splitlines()
        if line.strip() and not line.startswith("level=") and "--debug flag" not in line
    ]
    return f"helm: {' '.join(lines)[:_SHOWN] or 'it failed and said nothing'}"


def _hint(complaint: str) -> str:
    if "missing in charts/ directory" in complaint:
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
