"""A small kopf operator, run by kopf itself: it copies spec to status and records its calls."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import kopf

CALLS = Path(os.environ.get("KOPF_CALLS", os.devnull))


def record(line: str) -> None:
    with CALLS.open("a") as calls:
        calls.write(f"{line}\n")


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.level = 20


@kopf.on.create("kopf.kapsa.dev", "v1", "kites")
async def created(spec: kopf.Spec, patch: kopf.Patch, name: str | None, **_: Any) -> None:
    record(f"created {name}")
    patch.status["length"] = spec["length"]


@kopf.on.update("kopf.kapsa.dev", "v1", "kites", field="spec.length")
async def lengthened(old: Any, new: Any, patch: kopf.Patch, name: str | None, **_: Any) -> None:
    record(f"updated {name} {old} {new}")
    patch.status["length"] = new


@kopf.on.resume("kopf.kapsa.dev", "v1", "kites")
async def resumed(name: str | None, **_: Any) -> None:
    record(f"resumed {name}")


@kopf.on.delete("kopf.kapsa.dev", "v1", "kites")
async def deleted(name: str | None, **_: Any) -> None:
    record(f"deleted {name}")


@kopf.on.timer("kopf.kapsa.dev", "v1", "kites", interval=0.5)
async def ticked(name: str | None, **_: Any) -> None:
    record(f"ticked {name}")
