"""The program `kube-apiserver` of the drop-in: it passes its flags and its port to the engine, and waits for a signal.

It runs as a script, with the standard library alone. The engine is in the program `etcd`, as the state of a real
cluster is: it has loaded by the time envtest starts this program, and the objects outlive it.
"""

import os
import signal
import socket
import sys

HELP = "kube-apiserver of kapsa's drop-in for envtest: the embedded engine, without controllers."
"""No flag but those of a current kube-apiserver: envtest looks for --insecure-port here."""
ENGINE_SOCKET = "engine.sock"
STOP_SECONDS = 10


def flag(arguments: list[str], name: str, default: str) -> str:
    """Return the last value of a flag of the form --name=value."""
    values = [each.partition("=")[2] for each in arguments if each.startswith(f"--{name}=")]
    return values[-1] if values else default


def listen(host: str, port: str) -> socket.socket:
    """Return a listener. Exit with a message when the address cannot be used."""
    if not port.isdigit():
        sys.exit(f"kube-apiserver: --secure-port must be a number, got {port!r}")
    try:
        return socket.create_server(
            (host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=1024
        )
    except OSError as error:
        sys.exit(f"kube-apiserver: cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}")


def connect(etcd: str) -> socket.socket:
    """Return a connection to the engine of an etcd. Exit with a message when there is none."""
    try:
        directory = engine_directory(etcd)
        engine = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # The path of a socket must be short, and that of a directory may be long.
        started_in = os.getcwd()  # noqa: PTH109
        os.chdir(directory)
        engine.connect(ENGINE_SOCKET)
        os.chdir(started_in)
    except (OSError, ValueError) as error:
        sys.exit(
            f"kube-apiserver: --etcd-servers must name the etcd of kapsa's drop-in for envtest; "
            f"there is none at {etcd or '(no address)'}: {getattr(error, 'strerror', None) or error}"
        )
    return engine


def engine_directory(etcd: str) -> str:
    """Return the directory of an etcd's engine. Raises OSError or ValueError when this is not the drop-in's etcd."""
    host, _, port = etcd.split(",")[0].partition("://")[2].strip("/").rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=10) as connection:
        connection.sendall(b"GET /kapsa/engine HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n")
        with connection.makefile("rb") as reader:
            head, _, body = reader.read(65536).partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise ValueError("its answer is that of another etcd")
    return os.fsdecode(body)


def main(arguments: list[str]) -> None:
    """Serve until a signal arrives."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    listener = listen(flag(arguments, "bind-address", "127.0.0.1"), flag(arguments, "secure-port", "6443"))
    engine = connect(flag(arguments, "etcd-servers", ""))
    stopped = []

    def stop(*_: object) -> None:
        stopped.append(True)
        signal.alarm(STOP_SECONDS)
        engine.shutdown(socket.SHUT_WR)

    signal.signal(signal.SIGTERM, stop)
    request = b"\0".join(os.fsencode(each) for each in (os.getcwd(), *arguments))  # noqa: PTH109
    socket.send_fds(engine, [len(request).to_bytes(4, "big")], [listener.fileno()])
    engine.sendall(request)
    listener.close()
    while output := engine.recv(65536):
        sys.stderr.buffer.write(output)
        sys.stderr.flush()
    sys.exit(0 if stopped else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
