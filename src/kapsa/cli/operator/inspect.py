"""`kapsa inspect`: the queues, runs and caches of a running operator, from its debug endpoint."""

from __future__ import annotations

import http.client
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

import typer

from kapsa.cli.tables import (
    OutputFormat,
    OutputOption,
    format_age,
    format_duration,
    print_document,
    print_fields,
    print_table,
)
from kapsa.cli.target import TargetError

if TYPE_CHECKING:
    from kapsa.runtime.operator.inspection import (
        CacheReport,
        ControllerReport,
        InspectionReport,
        KeyReport,
    )

__all__ = ["command"]

_TIMEOUT = 30.0
"""Seconds for an answer. An operator whose event loop is blocked gives none."""
_MOST_BYTES = 64 * 1024 * 1024


def command(
    key: Annotated[
        str,
        typer.Argument(metavar="[NAMESPACE/NAME]", help="A resource, for its state and its last runs."),
    ] = "",
    port: Annotated[
        int, typer.Option("--port", "-p", min=1, max=65535, help="The operator's debug port.")
    ] = 8082,
    controller: Annotated[
        str, typer.Option("--controller", "-c", metavar="NAME", help="Only this controller.")
    ] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Keys to show of each list.")] = 20,
    form: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show what a running operator does: its queues, why each key is in them, what it waits for, its caches.

    \b
    kapsa run myapp:operator --debug-port 8082       # off by default, and on 127.0.0.1 only
    kapsa inspect                                    # all controllers and caches
    kapsa inspect default/web                        # one resource, with its last runs
    kubectl port-forward deployment/myapp-operator 8082   # the same in a cluster
    """
    import msgspec

    from kapsa.runtime.operator.inspection import InspectionReport

    asked = {"key": key, "controller": controller, "limit": str(limit)}
    body = _fetch(port, {name: value for name, value in asked.items() if value})
    try:
        report = msgspec.json.decode(body, type=InspectionReport)
    except msgspec.MsgspecError as error:
        raise TargetError(
            f"127.0.0.1:{port} does not answer as an operator's debug endpoint does ({error}); use the same version of "
            "Kapsa as the operator"
        ) from error
    if controller and not report.controllers:
        raise TargetError(f"{report.operator} has no controller {controller!r}: see `kapsa inspect`")
    if form in (OutputFormat.JSON, OutputFormat.YAML):
        print_document(report, form)
    elif form is OutputFormat.NAME:
        typer.echo("\n".join(each.key for part in report.controllers for each in part.keys))
    elif key:
        _print_key(report)
    else:
        _print_operator(report)


def _fetch(port: int, query: dict[str, str]) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT)
    try:
        connection.request("GET", f"/debug?{urlencode(query)}")
        response = connection.getresponse()
        body = response.read(_MOST_BYTES)
    except ConnectionRefusedError as error:
        raise TargetError(
            f"nothing listens on 127.0.0.1:{port}: start the operator with `kapsa run --debug-port {port}`, or for one "
            f"in a cluster, run `kubectl port-forward deployment/NAME {port}`"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise TargetError(
            f"127.0.0.1:{port} does not answer: {str(error) or type(error).__name__}; is the operator's event loop blocked?"
        ) from error
    finally:
        connection.close()
    if response.status != 200:
        raise TargetError(
            f"127.0.0.1:{port} answers {response.status} {response.reason}: is it the debug port of an operator?"
        )
    return body


def _print_operator(report: InspectionReport) -> None:
    print_fields([*_heading(report)])
    typer.echo()
    headers = ["CONTROLLER", "KIND", "WORKERS", "RUNNING", "WAITING", "DELAYED", "GIVEN UP", "STATE"]
    here = [part for part in report.controllers if _concerns(report, part)]
    empty = "no controllers" if not report.controllers else "this replica holds no shard"
    print_table(headers, map(_controller_row, here), empty=empty)
    queued = [(_title(part), each) for part in report.controllers for each in part.keys]
    _section("Queues", ["CONTROLLER", "KEY", "STATE", "TIME", "WAITS FOR", "WHY", "LAST ERROR"], (
        [name, each.key, each.state, _seconds(each.seconds), each.waits_for, "; ".join(each.reasons), each.error]
        for name, each in queued
    ))  # fmt: skip
    headers = ["WATCH", "STATE", "OBJECTS", "LAST PROGRESS", "LISTED", "RELISTS", "TROUBLE"]
    _section("Caches", headers, map(_cache_row, report.caches))
    now = datetime.now(UTC)
    _section("Last errors", ["AGE", "CONTROLLER", "KEY", "ERROR"], (
        [format_age(error.at, now), _title(part), error.key, error.text]
        for part in report.controllers
        for error in part.errors
    ))  # fmt: skip


def _heading(report: InspectionReport) -> Iterable[tuple[str, object]]:
    yield "Operator", report.operator
    yield "Identity", report.identity
    yield "Leads", {True: "yes", False: "no: another replica does", None: ""}[report.leads]
    if (shards := report.shards) is not None:
        held = ", ".join(map(str, shards.held)) or "none"
        yield "Shards", f"holds {held} of {shards.count}, {len(shards.replicas)} replicas"


def _concerns(report: InspectionReport, part: ControllerReport) -> bool:
    """Return whether a controller does something here: not if another replica holds its shard."""
    held = report.shards is None or part.shard is None or part.shard in report.shards.held
    return held or bool(part.running or part.waiting or part.delayed or part.given_up)


def _controller_row(part: ControllerReport) -> Sequence[object]:
    counts = (part.workers, part.running, part.waiting, part.delayed, part.given_up)
    return [_title(part), part.kind, *counts, part.state]


def _title(part: ControllerReport) -> str:
    """Return the name of a controller with its shard and cluster, if it has them."""
    return _qualified(part.name if part.shard is None else f"{part.name} shard {part.shard}", part.cluster)


def _qualified(name: str, cluster: str) -> str:
    """Return a name with its cluster, if the operator has several."""
    return f"{name} in {cluster}" if cluster else name


def _cache_row(cache: CacheReport) -> Sequence[object]:
    listed = "never" if cache.listed is None else f"{format_duration(cache.listed)} ago"
    progress = f"{format_duration(cache.age)} ago"
    return [
        _qualified(cache.watch, cache.cluster),
        cache.state,
        cache.objects,
        progress,
        listed,
        cache.relists,
        cache.trouble,
    ]


def _section(title: str, headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    listed = list(rows)
    if listed:
        typer.echo(f"\n{title}")
        print_table(headers, listed, empty="")


def _print_key(report: InspectionReport) -> None:
    for number, part in enumerate(report.controllers):
        if number:
            typer.echo()
        for each in part.keys:
            _print_one(part, each)


def _print_one(part: ControllerReport, each: KeyReport) -> None:
    print_fields(
        [
            ("Controller", _title(part)),
            ("Resource", f"{part.kind} {each.key}"),
            ("State", each.state if each.cached else f"{each.state}; the cache has no such resource"),
            ("Waits for", each.waits_for),
            ("Due in" if each.state == "delayed" else "Since", _seconds(each.seconds)),
            ("Why", "; ".join(each.reasons)),
            ("Failures", each.failures or ""),
            ("Last error", each.error),
        ]
    )
    now = datetime.now(UTC)
    _section("Last runs", ["ENDED", "RESULT", "TOOK", "WAITED", "AGAIN IN", "WHY", "ERROR"], (
        [
            f"{format_age(run.ended, now)} ago",
            run.result,
            f"{run.seconds * 1000:.1f} ms",
            f"{run.waited * 1000:.1f} ms",
            "" if run.again_after is None else format_duration(run.again_after),
            "; ".join(run.reasons),
            run.error,
        ]
        for run in each.runs
    ))  # fmt: skip


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}s" if 0 < seconds < 10 else format_duration(seconds) if seconds else ""
