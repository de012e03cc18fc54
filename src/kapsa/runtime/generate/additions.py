"""Additions to an operator project: a kind, a webhook or a version, with its tests and manifests.

The project is the one that `kapsa new` wrote, changed since in any way that leaves `operator = Operator(...)` in its
package. An addition happens whole or not at all; an existing file is never overwritten.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from kapsa.runtime.generate._source_edit import (
    SourceEditError,
    Term,
    add_class_keyword,
    add_import,
    add_to_operator,
)
from kapsa.runtime.generate.scaffold import (
    OperatorProject,
    ScaffoldError,
    imported,
    render_template,
    write_manifests,
)
from kapsa.runtime.resources.definition import pluralize

__all__ = ["ExistingProject", "add_kind", "add_version", "add_webhook"]

_VERSION = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")


class ExistingProject(msgspec.Struct, frozen=True):
    """A project in a directory, and what an addition needs to know of it."""

    root: Path
    package: str
    operator: str
    """The operator's name."""
    kinds: dict[str, type[Any]]
    """The stored version of each kind, by its name."""
    versions: dict[str, list[str]]
    """All versions of each kind."""

    @classmethod
    def load(cls, root: Path) -> ExistingProject:
        """Read the project in a directory. Raises ScaffoldError if there is none."""
        packages = [
            path.parent.name
            for path in sorted(root.glob("*/__init__.py"))
            if "Operator(" in path.read_text(encoding="utf-8")
        ]
        if len(packages) != 1:
            raise ScaffoldError(
                f"{root} is not a project of `kapsa new`: it needs one package with `operator = Operator(...)` in its "
                "__init__.py; run this in the directory of the project, or pass --directory"
            )
        with imported(packages[0], root) as module:
            operator = module.operator
            kinds: dict[str, type[Any]] = {}
            versions: dict[str, list[str]] = {}
            for resource in operator.resources:
                versions.setdefault(resource.kind, []).append(resource.definition.version)
                if resource.kind not in kinds or resource.definition.hub:
                    kinds[resource.kind] = resource
            return cls(root, packages[0], operator.name, kinds, versions)

    @property
    def entry(self) -> Path:
        """The module with the operator."""
        return self.root / self.package / "__init__.py"

    def resource(self, kind: str) -> type[Any]:
        """Return the class of a kind. Raises ScaffoldError if the operator has none."""
        if kind not in self.kinds:
            raise ScaffoldError(
                f"the operator has no kind {kind!r}; it has {', '.join(self.kinds) or 'none'}"
            )
        return self.kinds[kind]

    def sample(self, kind: str) -> str:
        """Return the name of the file with a sample of a kind, which the tests of additions use."""
        for path in sorted(self.root.glob("sample*.yaml")):
            if re.search(rf"^kind: {kind}$", path.read_text(encoding="utf-8"), re.MULTILINE):
                return path.name
        raise ScaffoldError(
            f"there is no sample of {kind}: write a valid one to sample-{_kebab(kind)}.yaml, for the test of the addition"
        )


def add_kind(project: ExistingProject, kind: str, *, group: str = "") -> list[Path]:
    """Add a kind with its controller, sample and tests. Return the files that are new or changed."""
    if kind in project.kinds:
        raise ScaffoldError(
            f"the operator already has a kind {kind}; `kapsa add version` adds a version of it"
        )
    groups = [resource.definition.group for resource in project.kinds.values()]
    noun = _snake(kind)
    checked = OperatorProject(name=_kebab(kind), group=group or next(iter(groups), "example.com"), kind=kind)
    names = {
        **checked.names,
        "package": project.package,
        "plural": pluralize(kind.lower()),
        "resource_module": f"{noun}_resource",
        "noun": noun,
    }
    entry = project.entry.read_text(encoding="utf-8")
    entry = _edited(add_import, entry, f"{project.package}.{noun}_controller", f"{kind}Controller")
    call = f"{kind}Controller()"

    def change(term: Term) -> None:
        controllers = term.argument("controllers")
        if controllers is None or controllers.items is None:
            raise SourceEditError(f"add {call} to the controllers")
        controllers.items.append(Term(call))

    entry = _edited(
        add_to_operator, entry, change, otherwise=f"add {call} to the controllers of the operator"
    )
    new = {
        f"{project.package}/{noun}_resource.py": render_template("resource.py", names),
        f"{project.package}/{noun}_controller.py": render_template("controller.py", names),
        f"sample-{_kebab(kind)}.yaml": render_template("sample.yaml", names),
        f"tests/test_{noun}.py": render_template("test_operator.py", names),
    }
    return _write(project, new, {project.entry: entry})


def add_webhook(
    project: ExistingProject, kind: str, *, form: Literal["validating", "mutating"] = "validating"
) -> list[Path]:
    """Add a webhook for a kind, the Service in front of it, and a test. Return the files."""
    resource = project.resource(kind)
    word = "validator" if form == "validating" else "defaulter"
    noun, name = _snake(kind), f"{kind}{word.capitalize()}"
    names = {
        "kind": kind,
        "package": project.package,
        "module": resource.__module__,
        "sample": project.sample(kind),
    }
    entry = project.entry.read_text(encoding="utf-8")
    entry = _edited(add_import, entry, f"{project.package}.{noun}_{word}", name)

    def change(webhooks: Term) -> None:
        assert webhooks.items is not None
        before_keywords = sum(not item.keyword for item in webhooks.items)
        webhooks.items.insert(before_keywords, Term(f"{name}()"))

    entry = _with_webhooks(project, entry, change, f"add {name}() to the Webhooks of the operator")
    new = {
        f"{project.package}/{noun}_{word}.py": render_template(f"{word}.py", names),
        f"tests/test_{noun}_{word}.py": render_template(f"test_{word}.py", names),
    }
    return _write(project, {**new, **_service(project)}, {project.entry: entry})


def add_version(project: ExistingProject, kind: str, version: str) -> list[Path]:
    """Add a version of a kind, its conversion to and from the stored one, and a test. Return the files."""
    if not _VERSION.fullmatch(version):
        raise ScaffoldError(f"invalid version {version!r}: use one such as v1, v1beta1 or v2alpha1")
    resource = project.resource(kind)
    if version in project.versions[kind]:
        raise ScaffoldError(f"{kind} already has a version {version}")
    noun, name = _snake(kind), f"{kind}{version.capitalize()}"
    spec, status = resource.spec_type.__name__, resource.status_type.__name__
    definition = resource.definition
    names = {
        "kind": resource.__name__,
        "class": name,
        "version": version,
        "hub": definition.version,
        "group": definition.group,
        "plural": definition.plural,
        "module": resource.__module__,
        "package": project.package,
        "noun": noun,
        "spec": spec,
        "status": status,
        "names": ", ".join(sorted((resource.__name__, spec, status))),
        "sample": project.sample(kind),
    }
    entry = project.entry.read_text(encoding="utf-8")
    entry = _edited(add_import, entry, f"{project.package}.{noun}_{version}", f"{name}Converter")

    def change(webhooks: Term) -> None:
        assert webhooks.items is not None
        converters = webhooks.argument("converters")
        if converters is None:
            converters = Term("[", [], "converters")
            webhooks.items.insert(sum(not item.keyword for item in webhooks.items), converters)
        if converters.items is None:
            raise SourceEditError(f"add {name}Converter() to the converters")
        converters.items.append(Term(f"{name}Converter()"))

    entry = _with_webhooks(project, entry, change, f"add {name}Converter() to the converters of the operator")
    stored = project.root / Path(*resource.__module__.split(".")).with_suffix(".py")
    text = stored.read_text(encoding="utf-8")
    hub = _edited(add_class_keyword, text, resource.__name__, "version", "hub=True")
    new = {
        f"{project.package}/{noun}_{version}.py": render_template("version.py", names),
        f"tests/test_{noun}_{version}.py": render_template("test_version.py", names),
    }
    return _write(project, {**new, **_service(project)}, {project.entry: entry, stored: hub})


def _with_webhooks(
    project: ExistingProject, source: str, change: Callable[[Term], None], otherwise: str
) -> str:
    """Return the source with the `Webhooks(...)` of the operator changed, which are added if there are none."""

    def edit(operator: Term) -> None:
        webhooks = operator.argument("webhooks")
        if webhooks is None:
            service = Term(f'"{project.operator}-webhooks"', None, "service")
            webhooks = Term("Webhooks(", [service], "webhooks")
            assert operator.items is not None
            operator.items.append(webhooks)
        if webhooks.items is None or webhooks.text != "Webhooks(":
            raise SourceEditError(otherwise)
        change(webhooks)

    source = _edited(add_import, source, "kapsa.runtime", "Webhooks")
    return _edited(add_to_operator, source, edit, otherwise=otherwise)


def _service(project: ExistingProject) -> dict[str, str]:
    if (project.root / "manifests" / "webhooks.yaml").exists():
        return {}
    return {"manifests/webhooks.yaml": render_template("webhooks.yaml", {"operator": project.operator})}


def _edited(edit: Callable[..., str], *arguments: Any, **options: Any) -> str:
    try:
        return edit(*arguments, **options)
    except SourceEditError as error:
        raise ScaffoldError(
            f"the source of the project has another form than expected: {error} by hand"
        ) from error


def _write(project: ExistingProject, new: dict[str, str], changed: dict[Path, str]) -> list[Path]:
    """Write all files and the manifests, or leave everything as it was."""
    created = {project.root / name: text for name, text in new.items()}
    for path in created:
        if path.exists():
            raise ScaffoldError(f"{path} already exists: rename or delete it first; nothing was written")
    manifests = [project.root / "manifests" / name for name in ("crd.yaml", "rbac.yaml")]
    with _restored([*changed, *manifests], list(created)):
        for path, text in {**created, **changed}.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        write_manifests(project.package, project.root)
    return [*created, *changed, *manifests]


@contextmanager
def _restored(existing: list[Path], created: list[Path]) -> Iterator[None]:
    """Put every file back, and remove new ones, if the block fails."""
    before = {path: path.read_bytes() for path in existing if path.exists()}
    try:
        yield
    except BaseException:
        for path in (*created, *existing):
            path.unlink(missing_ok=True)
        for path, content in before.items():
            path.write_bytes(content)
        raise


def _snake(kind: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind).lower()


def _kebab(kind: str) -> str:
    return _snake(kind).replace("_", "-")
