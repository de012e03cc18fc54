"""The program `etcd` of the drop-in: it holds the state, and the engine that serves it.

It runs as a script. A thread answers health checks while the engine loads: envtest comes back 100 ms after its first
check and then starts `kube-apiserver`, which passes its port to the engine through a socket in the data directory.
"""

import gc
import os
import signal
import socket
import sys
import threading

USED = ("data-dir", "listen-client-urls")
WITHOUT_EFFECT = ("advertise-client-urls", "listen-peer-urls", "name", "unsafe-no-fsync")
REFUSED = ("auth-token", "cert-file", "client-cert-auth", "client-crl-file", "key-file", "trusted-ca-file")
"""Flags that would change who may connect: this program answers everybody on its port."""
HELP = "etcd of kapsa's drop-in for envtest; its state is in memory.\n\n" + "\n".join(
    f"  --{name}" for name in sorted((*USED, *WITHOUT_EFFECT))
)
ENGINE_SOCKET = "engine.sock"
ROOT = os.path.abspath(__file__ + "/../../../..")  # noqa: PTH100  pathlib takes longer to import than all of this


def parse_flags(arguments: list[str]) -> dict[str, str]:
    """Return the flags by name. Exit with a message for one that would change who may connect."""
    flags: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.lstrip("-").partition("=")
        if name.removeprefix("peer-") in REFUSED:
            sys.exit(f"etcd: --{name} is not supported: this etcd is part of kapsa's drop-in for envtest")
        if not equals:
            value = "true" if name == "unsafe-no-fsync" else next(rest, "")
        if name not in USED and name not in WITHOUT_EFFECT:
            sys.stderr.write(f"etcd: --{name} has no effect: this etcd keeps its state in memory\n")
        flags[name] = value
    return flags


def address(flags: dict[str, str]) -> tuple[str, int]:
    """Return the host and port to listen on. Exit with a message for an address that cannot be served."""
    url = flags.get("listen-client-urls", "http://127.0.0.1:2379").split(",")[0]
    scheme, _, rest = url.partition("://")
    host, _, port = rest.strip("/").rpartition(":")
    if scheme != "http" or not port.isdigit():
        sys.exit(f"etcd: --listen-client-urls must be http://HOST:PORT, got {url!r}")
    return host.strip("[]"), int(port)


def listen(host: str, port: int) -> socket.socket:
    """Return a listener for health checks. Exit with a message when the address cannot be used."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        sys.exit(f"etcd: cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}")


def listen_in(directory: str) -> socket.socket:
    """Return a listener in the data directory, which becomes the working directory: the path of a socket is short.

    Only processes of this user can connect. Exit with a message when the directory cannot be used.
    """
    engine = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)  # noqa: PTH103
        os.chdir(directory)
        if os.path.exists(ENGINE_SOCKET):  # noqa: PTH110
            _remove_stale(directory)
        others = os.umask(0o177)
        engine.bind(ENGINE_SOCKET)
        os.umask(others)
        engine.listen()
    except OSError as error:
        sys.exit(f"etcd: cannot use --data-dir {directory}: {os.strerror(error.errno or 0)}")
    return engine


def _remove_stale(directory: str) -> None:
    """Remove the socket of a process that has ended. Exit with a message when it has not."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        if probe.connect_ex(ENGINE_SOCKET) == 0:
            sys.exit(
                f"etcd: --data-dir {directory} is in use by another etcd; stop it, or choose another directory"
            )
    os.unlink(ENGINE_SOCKET)  # noqa: PTH108


def answer_checks(listener: socket.socket) -> None:
    """Answer one request after the other, forever."""
    while True:
        connection, _ = listener.accept()
        try:
            answer(connection)
        except OSError:
            continue


def answer(connection: socket.socket) -> None:
    """Answer one request and close the connection."""
    with connection:
        connection.settimeout(2)
        request = b""
        while b"\r\n\r\n" not in request and len(request) < 65536:
            data = connection.recv(65536)
            if not data:
                return
            request += data
        path = [*request.split(b" ", 2), b"", b""][1].partition(b"?")[0]
        bodies = {
            b"/health": b'{"health":"true","reason":""}',
            b"/version": b'{"etcdserver":"3.6.0","etcdcluster":"3.6.0"}',
            b"/kapsa/engine": os.fsencode(os.getcwd()),  # noqa: PTH109
        }
        body = bodies.get(path, b"404 page not found\n")
        status = b"200 OK" if path in bodies else b"404 Not Found"
        head = b"HTTP/1.1 %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(body))
        connection.sendall(head + body)


def main(arguments: list[str]) -> None:
    """Serve until a signal arrives."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    flags = parse_flags(arguments)
    listener = listen(*address(flags))
    engine = listen_in(flags.get("data-dir", "default.etcd"))
    threading.Thread(target=answer_checks, args=(listener,), daemon=True).start()
    sys.path.insert(0, ROOT)
    # Modules are never garbage: to look for some while they load takes a tenth of the time.
    gc.disable()
    from kapsa.devcluster.envtest.engine import run

    gc.freeze()
    gc.enable()
    run(engine)


if __name__ == "__main__":
    main(sys.argv[1:])
