"""The image, as far as its Dockerfile shows without a container engine: what it copies, installs, serves and writes to."""

from __future__ import annotations

import fnmatch
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from kapsa.adapters.process import tools
from tests.behaviour.kapsa_chart import CHART, FLEET_VALUES, ROOT, rendered

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LINES = re.sub(r"\\\n|^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).splitlines()
CONTEXT = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
"""The paths that the .dockerignore leaves in the context of a build."""


def instructions(word: str) -> list[str]:
    """Return the arguments of all instructions of a kind."""
    return [line.removeprefix(f"{word} ") for line in LINES if line.startswith(f"{word} ")]


def copied() -> set[str]:
    """Return the paths of the repository that the image copies."""
    return {path for each in instructions("COPY") if "--from" not in each for path in each.split()[:-1]}


def extras() -> list[str]:
    """Return the extras that the image installs."""
    (names,) = re.findall(r'pip install "\.\[([^]]*)\]"', "\n".join(instructions("RUN")))
    return list(names.split(","))


def test_everything_that_is_copied_is_in_the_context_of_the_build_and_nothing_else() -> None:
    assert copied() == CONTEXT
    assert [path for path in copied() if not (ROOT / path).exists()] == []


def test_everything_that_the_package_is_built_from_is_copied() -> None:
    targets = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [
        "pyproject.toml",
        PROJECT["project"]["readme"],
        PROJECT["tool"]["hatch"]["version"]["path"],
        *PROJECT["project"].get("license-files", ()),
        *targets["packages"],
        *targets["force-include"],
    ]
    missing = [
        path
        for path in needed
        if not any(
            path == each or path.startswith(f"{each}/") or fnmatch.fnmatch(each, path) for each in copied()
        )
    ]
    assert missing == []


def test_every_extra_exists_and_each_of_its_packages_has_a_fixed_version() -> None:
    declared = PROJECT["project"]["optional-dependencies"]
    assert set(extras()) >= {"environments", "fleet", "otel"}
    assert set(extras()) <= declared.keys()
    required = [*PROJECT["project"]["dependencies"], *(each for name in extras() for each in declared[name])]
    fixed = {
        canonicalize_name(name)
        for name in re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    }
    assert [each for each in required if canonicalize_name(Requirement(each).name) not in fixed] == []
    assert "PIP_CONSTRAINT=/source/constraints.txt" in "\n".join(instructions("ENV"))


def test_the_python_of_the_image_is_one_that_the_package_runs_on() -> None:
    (version,) = re.findall(r"^PYTHON=([\d.]+)", "\n".join(instructions("ARG")), re.MULTILINE)
    assert SpecifierSet(PROJECT["project"]["requires-python"]).contains(version)
    assert f"Programming Language :: Python :: {version}" in PROJECT["project"]["classifiers"]


def test_the_programs_are_copied_from_where_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    (build, _) = instructions("RUN")
    (cache,) = re.findall(r"XDG_CACHE_HOME=(\S+)", build)
    (names,) = re.findall(r"kapsa tools install ([a-z ]+?) *&&", build)
    (sources,) = re.findall(r"&& cp (.*) /opt/bin/", build)
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    for name, source in zip(names.split(), sources.split(), strict=True):
        assert name in tools.tool_names()
        installed = tools.cache_directory() / "tools" / f"{name}-9.9.9" / name
        assert fnmatch.fnmatch(str(installed), source)


async def test_the_image_has_the_ports_and_the_directories_of_the_chart(tmp_path: Path) -> None:
    objects = await rendered(tmp_path, {"fleet": FLEET_VALUES})
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    ports = {str(values["metrics"]["port"]), str(values["webhooks"]["port"]), str(values["fleet"]["port"])}
    assert {port for each in instructions("EXPOSE") for port in each.split()} == ports
    image = "\n".join(LINES)
    pods = [each["spec"]["template"]["spec"] for each in objects if each["kind"] == "Deployment"]
    assert len(pods) == 2
    for pod in pods:
        (container,) = pod["containers"]
        written = {each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")}
        assert written == {"/tmp", "/var/cache/kapsa"}
    assert "HOME=/tmp" in image
    assert "XDG_CACHE_HOME=/var/cache/kapsa" in image
