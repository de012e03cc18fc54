"""Charts linted by the real helm."""

from __future__ import annotations

from pathlib import Path

import pytest

from kapsa.adapters.errors import RenderFailed
from kapsa.adapters.helm.chart_archive import read_archive
from kapsa.adapters.helm.linter import lint_chart
from kapsa.adapters.process.limited_process import ProcessLimits
from kapsa.adapters.testing.chart_server import pack_chart

CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\n"


async def lint(directory: Path, files: dict[str, str | bytes], version: str = "1.0.0") -> tuple[str, ...]:
    chart = read_archive(pack_chart("app", version, files)).unpack(directory)
    return await lint_chart(chart, {}, namespace="team", limits=ProcessLimits(seconds=30))


async def test_a_good_chart_passes_and_warnings_are_returned(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"templates/a.yaml": CONFIG_MAP, "values.yaml": "{}\n"}
    (tmp_path / "first").mkdir()
    assert await lint(tmp_path / "first", files) == ()
    (warning,) = await lint(tmp_path, files, version="v1.0.0")
    assert "v1.0.0" in warning


@pytest.mark.parametrize("template", ["{{ .Values.a.b.c }}", "{{ if }}", "kind: ["])
async def test_a_chart_with_errors_is_refused_with_helms_words_and_no_path(
    tmp_path: Path, template: str
) -> None:
    with pytest.raises(RenderFailed, match="helm lint: ") as error:
        await lint(tmp_path, {"templates/a.yaml": template, "values.yaml": "{}\n"})
    assert error.value.reason == "LintFailed"
    assert str(tmp_path) not in str(error.value)
