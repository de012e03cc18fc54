"""`kapsa crd`: the CustomResourceDefinitions of a module's resource classes."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType, ModuleType
from typing import Annotated, Any, NoReturn

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
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            help="The namespace of the operator that converts between versions (default: NAME-system).",
        ),
    ] = "",
    max_description_length: Annotated[
        int | None,
        typer.Option(
            "--max-description-length",
            metavar="N",
            min=0,
            help="Cut descriptions to N characters, 0 for none (default: whole, or what kubectl apply accepts).",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if a file is out of date.")
    ] = False,
) -> None:
    """Generate the CustomResourceDefinitions of a module's resource classes as YAML.

    A kind with several versions gets the conversion webhook of the operator in the target.
    """
    from kapsa.cli.output import write
    from kapsa.runtime import SchemaError, to_yaml

    if output and directory:
        raise TargetError("--output and --directory cannot be combined: give one of them")
    if check and not (output or directory):
        raise TargetError("--check needs a file or directory to compare with: give --output or --directory")
    module, named = find(target)
    try:
        definitions = _definitions(target, module, named, namespace, max_description_length)
    except SchemaError as error:
        raise TargetError(str(error)) from error
    if directory is None:
        write(to_yaml(definitions), output, check=check)
        return
    for definition in definitions:
        write(to_yaml([definition]), directory / f"{definition['metadata']['name']}.yaml", check=check)


def _definitions(
    target: str, module: ModuleType, named: Any, namespace: str, length: int | None
) -> list[dict[str, Any]]:
    from kapsa.runtime import Operator

    if isinstance(named, FunctionType):
        from kapsa.runtime.operator.entrypoint import load_operator

        named = load_operator(target)
    if isinstance(named, Operator):
        definitions = named.definitions(namespace=namespace, max_description_length=length)
        return definitions or _refuse(target)
    classes = _resource_classes(target, module, named)
    names = {cls.definition.crd_name for cls in classes}
    operator = _converting_operator(module, names) or Operator(controllers=[])
    definitions = operator.definitions(namespace=namespace, also=classes, max_description_length=length)
    return [each for each in definitions if each["metadata"]["name"] in names]


def _converting_operator(module: ModuleType, names: set[str]) -> Any:
    """Return the operator in the module that converts one of these kinds; None if there is none."""
    from kapsa.runtime import Operator

    for value in vars(module).values():
        webhooks = value.webhooks if isinstance(value, Operator) else None
        if webhooks is not None and names & set(webhooks.conversions.crds):
            return value
    return None


def _resource_classes(target: str, module: ModuleType, named: Any) -> list[Any]:
    from kapsa.runtime import CustomResource

    def is_kind(value: Any) -> bool:
        return isinstance(value, type) and issubclass(value, CustomResource) and "definition" in vars(value)

    values = vars(module).values() if named is None else (named,)
    classes = {id(value): value for value in values if is_kind(value)}
    return list(classes.values()) or _refuse(target)


def _refuse(target: str) -> NoReturn:
    raise TargetError(
        f"{target} has no resource class: define one that derives from CustomResource[YourSpec, YourStatus], "
        "with a group and a version"
    )
