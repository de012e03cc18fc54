"""`kapsa bundle`: a Helm chart and plain manifests that install an operator, from what it declares."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kapsa.cli.target import TargetError

if TYPE_CHECKING:
    from kapsa.runtime.generate.bundle.facts import BundleFacts

__all__ = ["command"]


def command(
    target: Annotated[
        str,
        typer.Argument(metavar="MODULE:OPERATOR", help="An operator in a module, such as myapp:operator."),
    ],
    image: Annotated[
        str,
        typer.Option("--image", help="The image, whose entry point runs the operator (`kapsa run ...`)."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write plain manifests to a file (default: standard output, unless --chart is given).",
        ),
    ] = None,
    chart: Annotated[
        Path | None,
        typer.Option("--chart", metavar="DIR", help="Write a Helm chart to a directory."),
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            "--name", help="The name of chart, Deployment and roles (default: the operator's name)."
        ),
    ] = "",
    namespace: Annotated[
        str,
        typer.Option("--namespace", "-n", help="The namespace in plain manifests (default: NAME-system)."),
    ] = "",
    version: Annotated[str, typer.Option("--version", help="The version of the chart.")] = "0.1.0",
    replicas: Annotated[
        int | None,
        typer.Option(
            "--replicas",
            min=1,
            max=10,
            help="Replicas (default: 2, or 1 without leader election and sharding).",
        ),
    ] = None,
    certificate_secret: Annotated[
        str,
        typer.Option(
            "--certificate-secret",
            metavar="NAME",
            help="The Secret with the certificates of the webhooks, if the operator sets cert_dir.",
        ),
    ] = "",
    service_monitor: Annotated[
        bool,
        typer.Option("--service-monitor", help="Add a ServiceMonitor to plain manifests; the chart has one."),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if a file is out of date.")
    ] = False,
) -> None:
    """Generate what installs an operator: CRDs, RBAC, Deployment, Services, ServiceMonitor.

    \b
    kapsa bundle myapp:operator --image registry.example.com/myapp:1.0 | kubectl apply --server-side -f -
    kapsa bundle myapp:operator --image registry.example.com/myapp:1.0 --chart charts/myapp
    """
    from kapsa.cli.output import write, write_tree
    from kapsa.runtime import to_yaml
    from kapsa.runtime.generate.bundle.chart import HEADER, OPTIONAL, chart_files
    from kapsa.runtime.generate.bundle.facts import OperatorImage
    from kapsa.runtime.generate.bundle.manifests import plain_manifests
    from kapsa.runtime.generate.bundle.workload import InstallationSettings
    from kapsa.runtime.operator.bundle_source import bundle_facts
    from kapsa.runtime.operator.entrypoint import load_operator

    if check and output is None and chart is None:
        raise TargetError("--check needs files to compare with: give --output or --chart")
    facts = bundle_facts(load_operator(target), name=name)
    reference = OperatorImage.parse(image)
    count = _replicas(facts, replicas)
    _check_certificates(facts, certificate_secret)
    if chart is not None:
        files = chart_files(
            facts, reference, version=version, replicas=count, certificate_secret=certificate_secret
        )
        write_tree(files, chart, header=HEADER, obsolete=set(OPTIONAL) - set(files), check=check)
    if output is not None or chart is None:
        settings = InstallationSettings(
            namespace=_namespace(facts.home(namespace)),
            labels={},
            image=str(reference),
            replicas=count,
            certificate_secret=certificate_secret,
        )
        write(to_yaml(plain_manifests(facts, settings, monitor=service_monitor)), output, check=check)


def _replicas(facts: BundleFacts, requested: int | None) -> int:
    if facts.elects:
        return requested or 2
    if requested is not None and requested > 1:
        raise TargetError(
            f"{facts.name} elects no leader, so {requested} replicas would reconcile the same resources: set "
            "leader_election or sharding, or leave out --replicas"
        )
    return 1


def _check_certificates(facts: BundleFacts, secret: str) -> None:
    directory = facts.webhooks.certificate_directory if facts.webhooks is not None else ""
    if directory and not secret:
        raise TargetError(
            f"the webhooks read their certificates from {directory}: name the Secret to mount there with "
            "--certificate-secret"
        )
    if secret and not directory:
        raise TargetError(
            f"{facts.name} makes its certificates itself: leave out --certificate-secret, or set cert_dir"
        )


def _namespace(name: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
        raise TargetError(
            f"invalid namespace name {name!r}: use lower case letters, digits and dashes, at most 63"
        )
    return name
