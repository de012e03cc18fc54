"""The program `kube-apiserver` of the drop-in.

It runs as a script and opens its port before it imports the engine: a health check that comes early then waits for the
answer, instead of failing and coming back 100 ms later.
"""

import os
import signal
import socket
import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[3])


def listen(arguments: list[str]) -> socket.socket | None:
    """Return a listener on the address of the flags; None if they name none."""
    flags = dict(argument.removeprefix("--").split("=", 1) for argument in arguments if "=" in argument)
    host, port = flags.get("bind-address", "127.0.0.1"), flags.get("secure-port", "")
    if not port.isdigit():
        return None
    try:
        return socket.create_server(
            (host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=1024
        )
    except OSError as error:
        sys.exit(f"kube-apiserver: cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}")


def main(arguments: list[str]) -> None:
    """Serve until a signal arrives."""
    if ROOT not in sys.path:
        sys.path.insert(0, ROOT)
    if {"-h", "--help"} & set(arguments):
        # No flag but those of a current kube-apiserver: envtest looks for --insecure-port here.
        sys.stdout.write(
            "kube-apiserver of kapsa's drop-in for envtest: the embedded engine, without controllers.\n"
        )
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    listener = listen(arguments)
    from kapsa.devcluster.envtest.engine import run

    sys.exit(run(arguments, listener))


if __name__ == "__main__":
    main(sys.argv[1:])
