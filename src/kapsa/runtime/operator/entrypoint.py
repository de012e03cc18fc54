"""The program behind `kapsa run MODULE:OPERATOR`. It loads nothing that an operator does not need.

python -m kapsa.runtime.operator.entrypoint myapp:operator --log-format text
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType
from typing import NoReturn

from kapsa.runtime.client.client import Client
from kapsa.runtime.errors import ClientError, ConfigError
from kapsa.runtime.operator.operator import Operator
from kapsa.runtime.telemetry import tracing
from kapsa.runtime.telemetry.health import PortTakenError
from kapsa.runtime.telemetry.logs import adopt_standard_logging, configure

__all__ = ["OperatorNotFoundError", "load_operator", "main"]


class OperatorNotFoundError(Exception):
    """The target does not name an operator."""

    for_the_user = True


def load_operator(target: str) -> Operator:
    """Return the operator named by `MODULE:OPERATOR` or `FILE.py:OPERATOR`.

    The name defaults to `operator`. It may be that of an Operator, or of a function without parameters that returns one.
    """
    module_name, _, attribute = target.partition(":")
    attribute = attribute or "operator"
    folder = Path.cwd()
    if module_name.endswith(".py"):
        path = Path(module_name)
        if not path.is_file():
            raise OperatorNotFoundError(f"file not found: {path}")
        folder, module_name = path.resolve().parent, path.stem
    elif not all(part.isidentifier() for part in module_name.split(".")):
        raise OperatorNotFoundError(
            f"invalid target {target!r}: use a form such as myapp:operator or myapp/myapp.py:operator"
        )
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise _failure(module_name, error) from error
        raise OperatorNotFoundError(
            f"module {module_name!r} not found in {folder} or among the installed packages; run this in the folder "
            "that contains it, or give a path such as myapp/myapp.py:operator"
        ) from None
    except Exception as error:
        raise _failure(module_name, error) from error
    named = getattr(module, attribute, None)
    operator = _call(named, module_name, attribute) if isinstance(named, FunctionType) else named
    if not isinstance(operator, Operator):
        names = [name for name, value in vars(module).items() if isinstance(value, Operator)]
        hint = f"the module has {', '.join(names)}" if names else "the module has no Operator"
        raise OperatorNotFoundError(
            f"{module_name}:{attribute} is not an Operator or a function that returns one; {hint}"
        )
    return operator


def _call(factory: Callable[[], object], module: str, name: str) -> object:
    try:
        return factory()
    except Exception as error:
        raise _failure(f"{module}:{name}", error, "failed") from error


def _failure(module: str, error: Exception, outcome: str = "cannot be imported") -> OperatorNotFoundError:
    """Return the error for a module or function of the user that raised, with the line of the failure."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and not frame.filename.startswith(str(Path(__file__).parents[1]))
    ]
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return OperatorNotFoundError(
        f"{module} {outcome}: {type(error).__name__}: {error}{where}; KAPSA_DEBUG=1 shows the whole traceback"
    )


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"invalid port {port}: use 1 to 65535, or 0 for any free port")
    return port


def _namespace(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", text):
        raise argparse.ArgumentTypeError(f"invalid namespace name {text!r}")
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an operator until SIGTERM or SIGINT.

    A user error is one line; KAPSA_DEBUG=1 shows the traceback.
    """
    options = _parser().parse_args(arguments)
    try:
        configure(level=options.log_level, format=options.log_format)
        operator = load_operator(options.target)
        adopt_standard_logging()  # after the operator's module, which may configure the standard logging itself
        gc.enable()
        gc.freeze()  # loaded modules stay for good, so no collection need visit them
        if options.metrics_port is not None:
            operator.metrics_port = options.metrics_port
        if options.health_port is not None:
            operator.health_port = options.health_port
        if options.debug_port is not None:
            operator.debug_port = options.debug_port
        if options.webhook_url:
            _serve_webhooks_from(operator, options)
        tracing.configure(operator.name)
        client = Client.connect(
            kubeconfig=options.kubeconfig, context=options.context, field_manager=operator.field_manager
        )
        operator.run(client=client, namespaces=options.namespace or None)
    except (OperatorNotFoundError, PortTakenError, ClientError) as error:
        if os.environ.get("KAPSA_DEBUG"):
            raise
        sys.stderr.write(f"kapsa: {error}\n")
        return 1
    return 0


def _serve_webhooks_from(operator: Operator, options: argparse.Namespace) -> None:
    if operator.webhooks is None or not operator.webhooks.served:
        raise ConfigError(f"operator {operator.name} has no webhooks: leave out --webhook-url")
    authority = None
    if options.webhook_ca == "system":
        authority = b""
    elif options.webhook_ca:
        try:
            authority = Path(options.webhook_ca).read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read --webhook-ca {options.webhook_ca}: {error.strerror}") from error
    try:
        operator.webhooks.serve_from(options.webhook_url, port=options.webhook_port, authority=authority)
    except ValueError as error:
        raise ConfigError(f"--webhook-url: {error}") from error


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Report invalid arguments in one line."""
        self.exit(2, f"kapsa: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="kapsa run",
        description="Run an operator until SIGTERM or SIGINT. Running reconciles may finish, then the lease is released.",
    )
    parser.add_argument(
        "target",
        metavar="MODULE:OPERATOR",
        help="An Operator, or a function that returns one, such as myapp:operator.",
    )
    parser.add_argument(
        *("-n", "--namespace"),
        action="append",
        metavar="NAME",
        type=_namespace,
        help="Watch only this namespace. May be repeated.",
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        type=Path,
        help="The kubeconfig of the cluster. Default: KUBECONFIG, the service account of the pod, or ~/.kube/config.",
    )
    parser.add_argument("--context", metavar="NAME", help="The kubeconfig's context to use.")
    parser.add_argument("--metrics-port", metavar="PORT", type=_port, help="The port of /metrics.")
    parser.add_argument("--health-port", metavar="PORT", type=_port, help="The port of /healthz and /readyz.")
    parser.add_argument(
        "--debug-port",
        metavar="PORT",
        type=_port,
        help="Serve what `kapsa inspect` shows on this port of 127.0.0.1. Off by default.",
    )
    parser.add_argument(
        "--webhook-url",
        metavar="URL",
        help="Serve the webhooks from here, at a URL at which the API server reaches this process, such as that of a "
        "tunnel. Their registrations are replaced until the end.",
    )
    parser.add_argument(
        "--webhook-port", metavar="PORT", type=_port, help="With --webhook-url, the port to listen on."
    )
    parser.add_argument(
        "--webhook-ca",
        metavar="FILE",
        help="With --webhook-url, the CA of a tunnel that terminates TLS; 'system' if its certificate is public.",
    )
    parser.add_argument(
        "--log-level",
        default="info",
        choices=["debug", "info", "warning", "error"],
        help="The lowest level to log.",
    )
    parser.add_argument(
        "--log-format", default="json", choices=["json", "text"], help="The format of the log."
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
