"""`kapsa crd`: the CustomResourceDefinitions of a module's resource classes."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from kapsa.cli.target import TargetError, find

__all__ = ["command"]


def command(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE[:NAME]",
            help="A module or .py file, optionally with a resource class or operator in it.",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write all CRDs to one file.")
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--directory", "-d", metavar="DIR", help="Write each CRD to a file of its own, named after it."
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if a file is out of date.")
    ] = False,
) -> None:
    """Generate the CustomResourceDefinitions of a module's resource classes as YAML."""
    from kapsa.cli.output import write
    from kapsa.runtime import SchemaError, custom_resource_definitions, to_yaml

    if output and directory:
        raise TargetError("--output and --directory cannot be combined: give one of them")
    if check and not (output or directory):
        raise TargetError("--check needs a file or directory to compare with: give --output or --directory")
    module, named = find(target)
    try:
        definitions = custom_resource_definitions(_resource_classes(target, module, named))
    except SchemaError as error:
        raise TargetError(str(error)) from error
    if directory is None:
        write(to_yaml(definitions), output, check=check)
        return
    for definition in definitions:
        write(to_yaml([definition]), directory / f"{definition['metadata']['name']}.yaml", check=check)


def _resource_classes(target: str, module: ModuleType, named: Any) -> list[Any]:
    from kapsa.runtime import CustomResource

    def is_kind(value: Any) -> bool:
        return isinstance(value, type) and issubclass(value, CustomResource) and "definition" in vars(value)

    if named is None:
        classes = {id(value): value for value in vars(module).values() if is_kind(value)}
    elif is_kind(named):
        classes = {id(named): named}
    else:
        resources = getattr(named, "resources", ())
        classes = {id(value): value for value in resources if is_kind(value)}
    if not classes:
        raise TargetError(
            f"{target} has no resource class: define one that derives from CustomResource[YourSpec, YourStatus], "
            "with a group and a version"
        )
    return list(classes.values())
