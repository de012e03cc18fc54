"""Charts checked by `helm lint`, in the same isolation as they are rendered in."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kapsa.adapters.errors import RenderFailed
from kapsa.adapters.helm._isolated_helm import helm_message, run_isolated_helm
from kapsa.adapters.helm._values_schema import schemas_are_self_contained
from kapsa.adapters.process.limited_process import ProcessLimits

__all__ = ["lint_chart"]

_FINDING = re.compile(r"\[(ERROR|WARNING)\] (.+)")
_MOST_WARNINGS = 50


async def lint_chart(
    chart: Path, values: Mapping[str, Any], *, namespace: str, limits: ProcessLimits, kube_version: str = ""
) -> tuple[str, ...]:
    """Lint the chart in a directory, for a cluster of this version. Return the warnings.

    Raises `RenderFailed` with helm's own messages if the chart has errors.
    """
    arguments = ["lint", str(chart), "--namespace", namespace, "--quiet"]
    arguments += [f"--kube-version={kube_version}"] if kube_version else []
    if not await asyncio.to_thread(schemas_are_self_contained, chart):
        arguments += ["--skip-schema-validation"]
    finished = await run_isolated_helm(arguments, values, limits)
    text = f"{finished.output.decode('utf-8', 'replace')}\n{finished.stderr}"
    findings = _FINDING.findall(text)
    if finished.code:
        errors = "\n".join(message for level, message in findings if level == "ERROR") or text
        raise RenderFailed(f"helm lint: {helm_message(errors, chart)}", reason="LintFailed")
    return tuple(helm_message(message, chart) for level, message in findings if level == "WARNING")[
        :_MOST_WARNINGS
    ]
