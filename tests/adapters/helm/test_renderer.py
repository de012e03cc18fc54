"""Charts rendered by the real helm, and hostile ones."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Mapping
from typing import Any

import pytest

from kapsa.adapters.errors import Refused, RenderFailed
from kapsa.adapters.helm.renderer import RenderedChart, render_chart, render_manifest
from kapsa.adapters.process.limited_process import ProcessLimits
from tests.adapters.checkouts import RecordingServer, WriteCheckout

CHART = "apiVersion: v2\nname: app\nversion: 0.1.0\n"
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n"


async def render(
    checkout: WriteCheckout,
    files: Mapping[str, str],
    values: Mapping[str, Any] | None = None,
    *,
    release: str = "app",
    limits: ProcessLimits | None = None,
) -> RenderedChart:
    chart = checkout({"chart/Chart.yaml": CHART, **files}).root / "chart"
    limits = limits or ProcessLimits(seconds=30)
    return await render_chart(chart, values or {}, release=release, namespace="team-app", limits=limits)


async def test_a_template_that_looks_things_up_gets_nothing(
    checkout: WriteCheckout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/etc/kubernetes/admin.conf")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    text = CONFIG_MAP + (
        '  secret: {{ lookup "v1" "Secret" "kube-system" "" | toJson | quote }}\n'
        '  address: {{ getHostByName "localhost" | quote }}\n'
        '  file: {{ .Files.Get "../../../../etc/passwd" | quote }}\n'
        '  absolute: {{ .Files.Get "/etc/passwd" | quote }}\n'
        '  globbed: {{ (.Files.Glob "../**").AsConfig | quote }}\n'
    )
    rendered = await render(checkout, {"chart/templates/a.yaml": text})
    data = rendered.objects[0]["data"]
    assert data == {"secret": "{}", "address": "", "file": "", "absolute": "", "globbed": "{}\n"} or data[
        "globbed"
    ] in ("", "{}")
    assert (data["secret"], data["address"], data["file"], data["absolute"]) == ("{}", "", "", "")


@pytest.mark.parametrize("function", ['env "HOME"', 'expandenv "$HOME"'])
async def test_a_template_cannot_read_the_variables_of_this_process(
    checkout: WriteCheckout, function: str
) -> None:
    with pytest.raises(RenderFailed, match="not defined"):
        await render(checkout, {"chart/templates/a.yaml": CONFIG_MAP + f"  a: {{{{ {function} }}}}\n"})


async def test_a_schema_that_refers_to_servers_or_files_is_not_followed(
    checkout: WriteCheckout, recording_server: RecordingServer
) -> None:
    for reference in (f"{recording_server.url}/x", "file:///etc/passwd"):
        for schema in (f'{{"$ref": "{reference}"}}', f'{{"$schema": "{reference}"}}'):
            files = {
                "chart/values.schema.json": schema,
                "chart/templates/a.yaml": CONFIG_MAP + f"  a: {len(schema)}\n",
            }
            rendered = await render(checkout, files)
            assert not rendered.schema_checked
    assert recording_server.paths == []


async def test_a_schema_of_its_own_is_checked(checkout: WriteCheckout) -> None:
    files = {
        "chart/values.schema.json": '{"$schema": "http://json-schema.org/draft-07/schema#", "required": ["port"]}',
        "chart/templates/a.yaml": CONFIG_MAP + "  a: b\n",
    }
    with pytest.raises(RenderFailed, match="port"):
        await render(checkout, files)


async def test_a_dependency_that_is_not_vendored_is_not_fetched_and_named(checkout: WriteCheckout) -> None:
    chart = (
        CHART + "dependencies: [{name: redis, version: 1.0.0, repository: 'https://charts.example.com'}]\n"
    )
    with pytest.raises(RenderFailed, match="redis") as error:
        await render(checkout, {"chart/Chart.yaml": chart})
    assert "helm dependency build" in error.value.hint


async def test_dependencies_in_the_charts_directory_are_rendered_with_their_values(
    checkout: WriteCheckout,
) -> None:
    chart = (
        CHART + "dependencies: [{name: redis, version: 1.0.0, repository: 'https://charts.example.com'}]\n"
    )
    files = {
        "chart/Chart.yaml": chart,
        "chart/charts/redis/Chart.yaml": "apiVersion: v2\nname: redis\nversion: 1.0.0\n",
        "chart/charts/redis/templates/a.yaml": CONFIG_MAP + "  memory: {{ .Values.memory }}\n",
    }
    rendered = await render(checkout, files, {"redis": {"memory": "64mb"}})
    assert [each["data"] for each in rendered.objects] == [{"memory": "64mb"}]


async def test_an_archive_that_unpacks_elsewhere_is_refused(checkout: WriteCheckout) -> None:
    made = checkout({"chart/Chart.yaml": CHART, "chart/charts/.keep": ""})
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in (("sub/Chart.yaml", CHART), ("sub/../../../evil.yaml", "a: b")):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content.encode()))
    (made.root / "chart/charts/sub.tgz").write_bytes(packed.getvalue())
    with pytest.raises(RenderFailed):
        await render(checkout, {})
    assert not list(made.root.parent.rglob("evil.yaml"))


async def test_a_template_that_wants_all_memory_is_ended(checkout: WriteCheckout) -> None:
    text = CONFIG_MAP + '  a: {{ repeat 200000000 "xxxxxxxxxx" | quote }}\n'
    with pytest.raises(Refused, match=r"memory|printed more"):
        await render(
            checkout,
            {"chart/templates/a.yaml": text},
            limits=ProcessLimits(seconds=30, memory_bytes=200_000_000),
        )


async def test_a_mistake_in_a_template_is_reported_in_helms_words_without_our_paths(
    checkout: WriteCheckout,
) -> None:
    with pytest.raises(RenderFailed, match="port is required") as error:
        await render(checkout, {"chart/templates/a.yaml": '{{ required "port is required" .Values.port }}'})
    assert "/checkout" not in str(error.value)
    assert str(error.value).count("\n") == 0
    assert not error.value.retryable


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ .Values.a.b.c }}", "nil pointer"),
        ("{{ if }}", r"templates/a\.yaml:1"),
        ("a: [", "YAML"),
        ("kind: ConfigMap\n" * 2, "helm|duplicated"),
        ('{{ fail (repeat 100000 "x") }}', "xxx"),
    ],
)
async def test_the_message_for_a_broken_chart_is_short(
    checkout: WriteCheckout, template: str, words: str
) -> None:
    with pytest.raises(RenderFailed, match=words) as error:
        await render(checkout, {"chart/templates/a.yaml": template})
    assert len(str(error.value)) < 1600


@pytest.mark.parametrize("release", ["a" * 54, "-x", "--set", "App", ""])
async def test_a_release_that_helm_could_misread_is_refused(checkout: WriteCheckout, release: str) -> None:
    with pytest.raises(Refused, match="Helm release"):
        await render(checkout, {}, release=release)


@pytest.mark.virtual_time
async def test_virtual_time_stands_still_while_helm_runs(checkout: WriteCheckout) -> None:
    before = asyncio.get_running_loop().time()
    await render(checkout, {"chart/templates/a.yaml": CONFIG_MAP + "  a: b\n"})
    assert asyncio.get_running_loop().time() == before


async def test_hooks_are_left_out_and_reported(checkout: WriteCheckout) -> None:
    hook = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: migrate, annotations: {helm.sh/hook: pre-install}}\n"
    files = {"chart/templates/a.yaml": CONFIG_MAP + "  a: b\n", "chart/templates/hook.yaml": hook}
    rendered = await render(checkout, files)
    assert [each["kind"] for each in rendered.objects] == ["ConfigMap"]
    assert rendered.hooks == ("Job migrate",)


async def test_a_directory_without_a_chart_is_reported(checkout: WriteCheckout) -> None:
    directory = checkout({"other/file": "x"}).root / "other"
    with pytest.raises(RenderFailed, match=r"no Chart\.yaml in 'other'") as error:
        await render_chart(directory, {}, release="app", namespace="team-app", limits=ProcessLimits())
    assert error.value.reason == "NoChart"


async def test_the_output_of_helm_has_crds_and_hooks_and_sees_the_version_of_the_cluster(
    checkout: WriteCheckout,
) -> None:
    files = {
        "chart/Chart.yaml": CHART,
        "chart/crds/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-crds}\n",
        "chart/templates/a.yaml": CONFIG_MAP + "  version: {{ .Capabilities.KubeVersion.Version }}\n",
        "chart/templates/b.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: hook, annotations: {helm.sh/hook: pre-install}}\n",
    }
    chart = checkout(files).root / "chart"
    limits = ProcessLimits(seconds=30)
    plain = await render_manifest(
        chart, {}, release="app", namespace="team", limits=limits, kube_version="v1.30.2+x"
    )
    assert b"from-crds" not in plain
    assert b"helm.sh/hook" in plain
    assert b"version: v1.30.2+x" in plain
    whole = await render_manifest(
        chart, {}, release="app", namespace="team", limits=limits, kube_version="v1.30.2+x", include_crds=True
    )
    assert whole.endswith(plain)
    assert b"from-crds" in whole
    for version in ("--debug", "1", "v1.30; x"):
        with pytest.raises(Refused, match="not a version of Kubernetes"):
            await render_manifest(
                chart, {}, release="app", namespace="team", limits=limits, kube_version=version
            )
