"""The program `etcd` of the drop-in: it answers health checks until a signal ends it.

It runs as a script and imports next to nothing, because envtest starts it twice for each control plane.
"""

import os
import signal
import socket
import sys

USED = ("listen-client-urls",)
WITHOUT_EFFECT = ("advertise-client-urls", "data-dir", "listen-peer-urls", "name", "unsafe-no-fsync")
REFUSED = ("auth-token", "cert-file", "client-cert-auth", "client-crl-file", "key-file", "trusted-ca-file")
"""Flags that would change who may connect: this program serves everybody on its port."""


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
            sys.stderr.write(f"etcd: --{name} has no effect: this etcd keeps no state\n")
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
        }
        body = bodies.get(path, b"404 page not found\n")
        status = b"200 OK" if path in bodies else b"404 Not Found"
        head = b"HTTP/1.1 %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(body))
        connection.sendall(head + body)


def main(arguments: list[str]) -> None:
    """Serve until a signal arrives."""
    if {"-h", "--help"} & set(arguments):
        names = "".join(f"  --{name}\n" for name in sorted((*USED, *WITHOUT_EFFECT)))
        sys.stdout.write(f"etcd of kapsa's drop-in for envtest; it keeps no state.\n\n{names}")
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    host, port = address(parse_flags(arguments))
    try:
        listener = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        sys.exit(f"etcd: cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}")
    while True:
        connection, _ = listener.accept()
        try:
            answer(connection)
        except OSError:
            continue


if __name__ == "__main__":
    main(sys.argv[1:])
