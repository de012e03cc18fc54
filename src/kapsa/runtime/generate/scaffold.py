"""New operator projects: a resource, a controller, tests, manifests, and the files to build and run them."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import importlib.util
import keyword
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from kapsa.runtime.generate.manifest import to_yaml
from kapsa.runtime.generate.rbac import rbac_manifests
from kapsa.runtime.resources.definition import pluralize

__all__ = [
    "OperatorProject",
    "ScaffoldError",
    "create_project",
    "imported",
    "own_source",
    "render_template",
    "write_manifests",
]

# Paths in the project by template. {package} is the name of the Python package.
_FILES = {
    "README.md": "README.md",
    "Makefile": "Makefile",
    "pyproject.toml": "pyproject.toml",
    "Dockerfile": "Dockerfile",
    "gitignore": ".gitignore",
    "dockerignore": ".dockerignore",
    "sample.yaml": "sample.yaml",
    "package.py": "{package}/__init__.py",
    "resource.py": "{package}/resource.py",
    "controller.py": "{package}/controller.py",
    "conftest.py": "tests/conftest.py",
    "test_operator.py": "tests/test_{package}.py",
    "deployment.yaml": "manifests/deployment.yaml",
}
_PLACEHOLDER = re.compile(r"\{\{ (\w+) \}\}")
_LONGEST_NAME = 40
"""Leaves room for `-operator-system` in a namespace's name."""


class ScaffoldError(Exception):
    """A project cannot be created as requested."""

    for_the_user = True


class OperatorProject(msgspec.Struct, frozen=True, kw_only=True):
    """The names of a new project."""

    name: str
    """Lower case with dashes: shop, web-shop."""
    group: str = "example.com"
    """The API group of its kind."""
    kind: str = ""
    """The kind in CamelCase; derived from the name if empty."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", self.name) or len(self.name) > _LONGEST_NAME:
            raise ScaffoldError(
                f"invalid project name {self.name!r}: use lower case letters, digits and single dashes, start with a "
                f"letter, and use at most {_LONGEST_NAME} characters"
            )
        if keyword.iskeyword(self.package) or self.package in {*sys.stdlib_module_names, "kapsa", "tests"}:
            raise ScaffoldError(
                f"project name {self.name!r} is reserved by Python or Kapsa; choose another name"
            )
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+", self.group):
            raise ScaffoldError(f"invalid API group {self.group!r}: use a domain name such as example.com")
        if self.kind and not re.fullmatch(r"[A-Z][A-Za-z0-9]*", self.kind):
            raise ScaffoldError(f"invalid kind {self.kind!r}: use CamelCase, such as Shop")

    @property
    def package(self) -> str:
        """The Python package."""
        return self.name.replace("-", "_")

    @property
    def names(self) -> dict[str, str]:
        """The values of the placeholders in the templates."""
        kind = self.kind or "".join(part.capitalize() for part in self.name.split("-"))
        return {
            "name": self.name,
            "package": self.package,
            "group": self.group,
            "kind": kind,
            "plural": pluralize(kind.lower()),
            "resource_module": "resource",
            "noun": self.package,
        }


def create_project(project: OperatorProject, directory: Path) -> list[Path]:
    """Write the project to `directory`, which must be empty or not exist. Return its files.

    Everything is written to a temporary directory next to it first, so that a failure leaves nothing behind.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ScaffoldError(f"{directory} already exists and is not empty; choose another name or directory")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".new-", dir=directory.parent))
    except OSError as error:
        raise ScaffoldError(f"cannot write to {directory.parent}: {error.strerror or error}") from error
    try:
        _write_templates(project, draft)
        write_manifests(project.package, draft)
        if source := own_source():
            (draft / ".local.mk").write_text(f"KAPSA_SOURCE ?= {source}\n", encoding="utf-8")
        draft.chmod(0o755)
        if directory.exists():
            directory.rmdir()
        draft.rename(directory)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return sorted(path for path in directory.rglob("*") if path.is_file())


def _write_templates(project: OperatorProject, root: Path) -> None:
    for template, name in _FILES.items():
        path = root / name.format(package=project.package)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render_template(template, project.names), encoding="utf-8")


def render_template(template: str, names: Mapping[str, str]) -> str:
    """Return the text of a template with its placeholders filled in."""
    templates = importlib.resources.files("kapsa.runtime.generate") / "templates"
    text = (templates / f"{template}.tmpl").read_text(encoding="utf-8")
    return _PLACEHOLDER.sub(lambda match: names[match[1]], text)


def write_manifests(package: str, root: Path) -> None:
    """Generate CRD and RBAC from the project's own code, as `make manifests` does."""
    with imported(package, root) as module:
        operator = module.operator
        crds = operator.definitions()
        rbac = rbac_manifests(operator.rights(), name=operator.name, namespace=f"{operator.name}-system")
    (root / "manifests" / "crd.yaml").write_text(to_yaml(crds), encoding="utf-8")
    (root / "manifests" / "rbac.yaml").write_text(to_yaml(rbac), encoding="utf-8")


def own_source(distribution: str = "kapsa") -> str:
    """Return the folder, wheel or URL that Kapsa was installed from; empty for a package registry."""
    try:
        content = importlib.metadata.distribution(distribution).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return ""
    if content is None:
        return ""
    origin = msgspec.json.decode(content, type=_DirectUrl)
    if origin.vcs_info is not None:
        return f"{origin.vcs_info.vcs}+{origin.url}@{origin.vcs_info.commit_id}"
    parts = urlsplit(origin.url)
    return unquote(parts.path) if parts.scheme == "file" else origin.url


class _VcsInfo(msgspec.Struct, frozen=True):
    vcs: str
    commit_id: str


class _DirectUrl(msgspec.Struct, frozen=True):
    """The origin of an installed package (PEP 610)."""

    url: str
    vcs_info: _VcsInfo | None = None


@contextmanager
def imported(package: str, root: Path) -> Iterator[Any]:
    """Import the package that was just written, without disturbing other modules of the same name."""
    set_aside = {name: module for name, module in sys.modules.items() if _belongs(name, package)}
    for name in set_aside:
        del sys.modules[name]
    writes_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(root))
    try:
        yield importlib.import_module(package)
    finally:
        sys.path.remove(str(root))
        sys.dont_write_bytecode = writes_bytecode
        for name in [name for name in sys.modules if _belongs(name, package)]:
            del sys.modules[name]
        sys.modules.update(set_aside)


def _belongs(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")
