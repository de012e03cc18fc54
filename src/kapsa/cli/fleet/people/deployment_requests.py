"""The request of a deployment, from options or from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from kapsa.cli.fleet.client.references import complete_clusters, complete_operators
from kapsa.cli.fleet.people.inputs import convert_input, parse_duration, parse_pairs, read_mapping
from kapsa.cli.option_groups import OptionGroup
from kapsa.cli.target import TargetError
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.rollout.deployments import ConflictPolicy, OfflinePolicy
from kapsa.fleet.orchestrator.deployment_requests import DeploymentRequest, StrategyName

__all__ = ["OperatorArgument", "RequestOptions", "VersionArgument", "build_request"]

OperatorArgument = Annotated[
    str, typer.Argument(help="The operator.", autocompletion=complete_operators, show_default=False)
]
VersionArgument = Annotated[str, typer.Argument(help="A registered version of it.", show_default=False)]

_CONFIGS = {
    StrategyName.CANARY: ("canaryConfig", "evaluationPeriod"),
    StrategyName.ROLLING: ("rollingConfig", "validationPeriod"),
    StrategyName.BLUE_GREEN: ("blueGreenConfig", "monitoringPeriod"),
    StrategyName.DIRECT: ("directConfig", ""),
}
"""The field of each strategy's settings, and the setting that is its soak."""


class RequestOptions(OptionGroup, frozen=True, kw_only=True):
    """The options that `plan` and `create` share."""

    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            help="The whole request as YAML or JSON; `-` for standard input. Options win over it.",
        ),
    ] = None
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster", "-c", help="A cluster. Repeatable.", autocompletion=complete_clusters),
    ] = None
    environment: Annotated[
        ClusterEnvironment | None,
        typer.Option(help="All clusters of this environment.", case_sensitive=False),
    ] = None
    label: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", help="All clusters with this label, key=value. Repeatable."),
    ] = None
    strategy: Annotated[
        StrategyName | None, typer.Option(help="The strategy (default: Canary).", case_sensitive=False)
    ] = None
    stages: Annotated[
        str, typer.Option(help="Canary: the cumulative percentages of the stages, such as 10,30,100.")
    ] = ""
    soak: Annotated[
        str, typer.Option(help="The time for which each cluster must be healthy, such as 90s, 5m or 1h30m.")
    ] = ""
    parallel: Annotated[
        int | None, typer.Option(min=1, help="The clusters that are changed at the same time.")
    ] = None
    blue_green: Annotated[
        str, typer.Option(metavar="BLUE:GREEN", help="BlueGreen: the namespaces of the two releases.")
    ] = ""
    manual_switch: Annotated[
        bool, typer.Option("--manual-switch", help="BlueGreen: wait for `kapsa fleet deployments switch`.")
    ] = False
    values: Annotated[Path | None, typer.Option(help="A YAML file with values for this deployment.")] = None
    secret_values: Annotated[
        Path | None, typer.Option(help="A YAML file with values that are sealed and shown to nobody.")
    ] = None
    on_conflict: Annotated[
        ConflictPolicy | None, typer.Option(help="A field that another manager owns (default: fail).")
    ] = None
    on_offline: Annotated[
        OfflinePolicy | None,
        typer.Option(help="A cluster that is unreachable when its turn comes (default: wait)."),
    ] = None
    force_reason: Annotated[
        str,
        typer.Option(
            help="Admins: the reason to deploy a withdrawn version, or to use Direct in production."
        ),
    ] = ""
    override_windows: Annotated[
        str, typer.Option(help="Admins: the reason to set maintenance windows and freezes aside.")
    ] = ""


def build_request(operator: str, version: str, options: RequestOptions) -> DeploymentRequest:
    """Return the request. Raises TargetError with the option that is missing or does not fit."""
    document = {**read_mapping(options.file), **_given(operator, version, options)}
    for field in ("operator", "version"):
        if not document.get(field):
            raise TargetError(f"the {field} is missing: give OPERATOR and VERSION, or --file with both")
    document["targets"] = {**_mapping(document, "targets"), **_targets(options)}
    if not document["targets"]:
        raise TargetError("no clusters selected: pass --cluster, --environment, --label or --file")
    document.setdefault("strategy", StrategyName.CANARY.value)
    name = convert_input(document["strategy"], StrategyName, "strategy")
    if config := _config(options, name):
        field = _CONFIGS[name][0]
        document[field] = {**_mapping(document, field), **config}
    return convert_input(document, DeploymentRequest, str(options.file or "the request"))


def _mapping(document: dict[str, Any], field: str) -> dict[str, Any]:
    value = document.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TargetError(
            f"{field} in --file must be a mapping, got {msgspec.json.encode(value).decode():.60}"
        )
    return value


def _given(operator: str, version: str, options: RequestOptions) -> dict[str, Any]:
    fields = {
        "operator": operator,
        "version": version,
        "strategy": options.strategy,
        "values": read_mapping(options.values),
        "secretValues": read_mapping(options.secret_values),
        "onConflict": options.on_conflict,
        "onOffline": options.on_offline,
        "forceReason": options.force_reason,
        "windowOverrideReason": options.override_windows,
    }
    return {name: msgspec.to_builtins(value) for name, value in fields.items() if value}


def _targets(options: RequestOptions) -> dict[str, Any]:
    fields = {
        "clusters": options.cluster,
        "environment": options.environment and options.environment.value,
        "labels": parse_pairs("--label", options.label),
    }
    return {name: value for name, value in fields.items() if value}


def _config(options: RequestOptions, strategy: StrategyName) -> dict[str, Any]:
    """Return the settings of the strategy that options have. An option of another strategy is refused."""
    config: dict[str, Any] = {}
    _, soak = _CONFIGS[strategy]
    if options.stages:
        _require(strategy, "--stages", StrategyName.CANARY)
        config["percentages"] = _percentages(options.stages)
    if options.soak:
        _require(strategy, "--soak", *(each for each, (_, field) in _CONFIGS.items() if field))
        config[soak] = msgspec.to_builtins(parse_duration("--soak", options.soak))
    if options.parallel:
        _require(strategy, "--parallel", *(each for each in StrategyName if each is not StrategyName.ROLLING))
        config["parallelClusters"] = options.parallel
    if options.blue_green:
        _require(strategy, "--blue-green", StrategyName.BLUE_GREEN)
        blue, colon, green = options.blue_green.partition(":")
        if not (blue and colon and green):
            raise TargetError(f"--blue-green {options.blue_green!r} must be two namespaces: BLUE:GREEN")
        config |= {"blueNamespace": blue, "greenNamespace": green}
    if options.manual_switch:
        _require(strategy, "--manual-switch", StrategyName.BLUE_GREEN)
        config["autoSwitch"] = False
    return config


def _require(strategy: StrategyName, option: str, *allowed: StrategyName) -> None:
    if strategy not in allowed:
        names = " or ".join(f"--strategy {each}" for each in allowed)
        raise TargetError(f"{option} has no effect with strategy {strategy}: leave it out, or use {names}")


def _percentages(text: str) -> list[int]:
    try:
        return [int(part.strip().removesuffix("%")) for part in text.split(",")]
    except ValueError:
        raise TargetError(
            f"--stages {text!r} is not a list of percentages: use one such as 10,30,100"
        ) from None
