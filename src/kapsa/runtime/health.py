"""Probes and metrics over HTTP: `/healthz` says whether to restart us, `/readyz` how every watch is doing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from kapsa.runtime.metrics import CONTENT_TYPE, Metrics

__all__ = ["Check", "Finding", "Health", "PortTakenError", "ProbeServer"]


class Finding(msgspec.Struct, frozen=True):
    """What a check found."""

    ok: bool
    text: str = "ok"
    degraded: bool = False
    """Something is missing that others can do without: said, but no reason to call the whole not ready."""

    def line(self, name: str) -> str:
        mark = "~" if self.ok and self.degraded else "+" if self.ok else "-"
        return f"[{mark}] {name}: {self.text}"


Check = Callable[[], Finding]
Answer = Callable[[web.Request], Awaitable[web.Response]]


class PortTakenError(OSError):
    """A port cannot be listened on."""

    for_the_user = True
    """The command line shows the message, without a traceback."""


class Health:
    """What makes an operator live and ready, by name."""

    def __init__(self) -> None:
        self.live: dict[str, Check] = {}
        self.ready: dict[str, Check] = {}

    def report(self, checks: dict[str, Check]) -> tuple[bool, str]:
        """Whether all is well, and a line for each check."""
        findings = {name: check() for name, check in checks.items()}
        ok = all(finding.ok for finding in findings.values())
        lines = [finding.line(name) for name, finding in findings.items()]
        return ok, "\n".join([*lines, "ok" if ok else "not ok", ""])


class ProbeServer:
    """Serves the probes and the metrics: on one port if both are the same, else on two. None leaves one out."""

    def __init__(
        self,
        health: Health,
        metrics: Metrics,
        *,
        host: str = "0.0.0.0",  # noqa: S104 - the kubelet and Prometheus come from outside the pod
        metrics_port: int | None = 8080,
        health_port: int | None = 8081,
        metrics_path: str = "/metrics",
        liveness_path: str = "/healthz",
        readiness_path: str = "/readyz",
    ) -> None:
        self._health = health
        self._routes: dict[str, list[tuple[str, Answer]]] = {
            "metrics": [(metrics_path, self._serve_metrics)],
            "health": [(liveness_path, self._serve_live), (readiness_path, self._serve_ready)],
        }
        self._metrics = metrics
        self._host = host
        self._ports = {"metrics": metrics_port, "health": health_port}
        self._runners: list[web.AppRunner] = []
        self.ports: dict[str, int] = {}
        """The ports really listened on, by what is served."""

    async def start(self) -> None:
        by_port: dict[int, list[str]] = {}
        for what, port in self._ports.items():
            if port is not None:
                # Port 0 means any free one: then each gets its own.
                by_port.setdefault(port or -len(by_port) - 1, []).append(what)
        for port, served in by_port.items():
            real = await self._listen(max(port, 0), served)
            self.ports |= dict.fromkeys(served, real)

    async def _listen(self, port: int, served: list[str]) -> int:
        app = web.Application()
        for path, answer in (route for what in served for route in self._routes[what]):
            app.router.add_get(path, answer)
        runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await runner.setup()
        self._runners.append(runner)
        site = web.TCPSite(runner, self._host, port)
        try:
            await site.start()
        except OSError as error:
            raise PortTakenError(
                error.errno, f"cannot serve {' and '.join(served)} on port {port}: {error.strerror or error}"
            ) from error
        address: Any = runner.addresses[0]
        return int(address[1])

    async def stop(self) -> None:
        runners, self._runners = self._runners, []
        for runner in runners:
            await runner.cleanup()

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    async def _serve_live(self, _: web.Request) -> web.Response:
        return self._answer(self._health.live)

    async def _serve_ready(self, _: web.Request) -> web.Response:
        return self._answer(self._health.ready)

    def _answer(self, checks: dict[str, Check]) -> web.Response:
        ok, text = self._health.report(checks)
        return web.Response(text=text, status=200 if ok else 503)
