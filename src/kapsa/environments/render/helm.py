"""The chart of a repository, rendered with the image, host and variables of an environment."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kapsa.adapters.helm.renderer import RenderedChart, default_values, render_chart
from kapsa.adapters.manifests.manifest import Manifest
from kapsa.adapters.manifests.pod_templates import containers, entries, pod_spec
from kapsa.adapters.process.limited_process import ProcessLimits
from kapsa.environments.ports import GeneratedValue, Rendered
from kapsa.environments.render.generated_values import (
    generated_values,
    has_generators,
    random_names,
    renewed_values,
    with_plain_data,
)
from kapsa.environments.render.injection import pin
from kapsa.environments.render.inputs import Injected

__all__ = ["merge_values", "render_environment_chart", "values_of"]


async def render_environment_chart(
    chart: Path, values: Mapping[str, Any], injected: Injected, *, limits: ProcessLimits
) -> Rendered:
    """Render the chart in a directory for an environment, with its image pinned by digest.

    Raises `RenderFailed` with helm's own message when the chart does not render.
    """
    env_as_map = await asyncio.to_thread(_has_env_as_map, chart)
    merged = merge_values(values, values_of(injected, env_as_map=env_as_map))

    async def render() -> RenderedChart:
        made = await render_chart(
            chart, merged, release=injected.release, namespace=injected.namespace, limits=limits
        )
        return msgspec.structs.replace(made, objects=tuple(map(with_plain_data, made.objects)))

    rendered = await render()
    generated: tuple[GeneratedValue, ...] = ()
    warnings: list[str] = []
    if await asyncio.to_thread(has_generators, chart):
        again = (await render()).objects
        generated = generated_values(rendered.objects, again)
        warnings += random_names(rendered.objects, again)
        warnings += renewed_values(rendered.objects, generated)
    warnings += [f"{each} is a Helm hook, which is not run" for each in rendered.hooks]
    if await asyncio.to_thread(_has_definitions, chart):
        warnings.append(
            "the CRDs in crds/ of the chart are not installed: ask an administrator to install them"
        )
    if not rendered.schema_checked:
        warnings.append(
            "values.schema.json is not checked: it, or the schema of a packed subchart, may refer to other files or servers"
        )
    if injected.image is not None and not pin(rendered.objects, injected.image, _tag(injected)):
        warnings.append(
            f"no container of the chart runs {injected.image.repository}: use .Values.image in its templates"
        )
    warnings += _unused(rendered.objects, injected)
    return Rendered(rendered.objects, tuple(warnings), generated)


def values_of(injected: Injected, *, env_as_map: bool = False) -> dict[str, Any]:
    """Return the values that an environment sets: image, host and variables, by their common names."""
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
    """Merge two sets of values as helm does: mappings key by key, anything else as a whole.

    Unlike in helm, the lists `env` and `envFrom` are merged by the names of their entries.
    """
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


def _has_definitions(chart: Path) -> bool:
    """Return whether a chart or an unpacked subchart has CRDs of its own."""
    return any(file.parent.name == "crds" for file in chart.rglob("*.yaml"))


def _has_env_as_map(chart: Path) -> bool:
    """Return whether the chart lists its variables by name, and not as a list."""
    env = default_values(chart).get("env")
    return isinstance(env, dict) and bool(env)


def _unused(objects: Sequence[Manifest], injected: Injected) -> Iterator[str]:
    """Yield a warning for each variable of the environment that no container of the chart uses."""
    every = [container for spec in filter(None, map(pod_spec, objects)) for container in containers(spec)]
    set_here = {str(each.get("name")) for container in every for each in entries(container, "env")}
    if missing := [variable.name for variable in injected.variables if variable.name not in set_here]:
        yield f"no container of the chart sets {', '.join(missing)}: use .Values.env in its templates"
    sources = [each for container in every for each in entries(container, "envFrom")]
    for source in injected.env_from:
        if not any(each.items() >= source.items() for each in sources):
            (reference,) = (each["name"] for each in source.values() if isinstance(each, dict))
            yield f"no container of the chart loads {reference}: use .Values.envFrom in its templates"


def _tag(injected: Injected) -> str:
    """Return the tag to render with.

    Without a tag, one made from the digest stands in until the image is pinned.
    """
    image = injected.image
    assert image is not None
    return image.tag or image.digest.replace(":", "-")[:19] or "latest"
