"""The command lines of a real control plane's processes, as pure data."""

from pathlib import Path

import msgspec

LOCALHOST = "127.0.0.1"
SERVICE_NETWORK = "10.96.0.0/16"
POD_NETWORK = "10.244.0.0/16"
ISSUER = "https://kubernetes.default.svc.cluster.local"
SERVER_NAMES = (
    "localhost",
    LOCALHOST,
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "10.96.0.1",
)

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KWOK = "kwok"

KUBERNETES = (API_SERVER, CONTROLLER_MANAGER, SCHEDULER)
ALL_COMPONENTS = (ETCD, *KUBERNETES, KWOK)
API_COMPONENTS = (ETCD, API_SERVER)

_IDLE_CONTROLLERS = (
    # Controllers for clouds and disks, which this cluster lacks. All supported minors accept the names.
    "cloud-node-lifecycle-controller",
    "node-ipam-controller",
    "node-route-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-expander-controller",
    "service-lb-controller",
)


class Files(msgspec.Struct, frozen=True):
    """The paths of one cluster's files."""

    directory: Path

    def __truediv__(self, name: str) -> str:
        return str(self.directory / name)

    @property
    def etcd_address(self) -> str:
        # A socket file needs no port that another cluster could take, and other users cannot open it.
        return f"unix://{self / 'etcd.sock'}"

    def kubeconfig(self, component: str) -> Path:
        return self.directory / f"{component}.kubeconfig"


def etcd(files: Files) -> list[str]:
    # It has no peers and nothing uses its address, but it requires one with a port.
    advertised = "unix://devcluster:1"
    return [
        "--name=devcluster",
        f"--data-dir={files / 'etcd'}",
        f"--listen-client-urls={files.etcd_address}",
        f"--advertise-client-urls={advertised}",
        f"--listen-peer-urls=unix://{files / 'etcd-peer.sock'}",
        f"--initial-advertise-peer-urls={advertised}",
        f"--initial-cluster=devcluster={advertised}",
        # Its data is discarded with the cluster, so it need not survive a power cut.
        "--unsafe-no-fsync=true",
        "--log-level=warn",
        "--snapshot-count=100000",
        "--quota-backend-bytes=8589934592",
    ]


def api_server(files: Files, port: int) -> list[str]:
    return [
        f"--etcd-servers={files.etcd_address}",
        f"--bind-address={LOCALHOST}",
        # Otherwise it looks for the address of the default route, and does not start on a machine without one.
        f"--advertise-address={LOCALHOST}",
        f"--secure-port={port}",
        f"--tls-cert-file={files / 'server.crt'}",
        f"--tls-private-key-file={files / 'server.key'}",
        f"--client-ca-file={files / 'ca.crt'}",
        f"--service-account-key-file={files / 'service-account.crt'}",
        f"--service-account-signing-key-file={files / 'service-account.key'}",
        f"--service-account-issuer={ISSUER}",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
        # The API server listens on a loopback address, which Endpoints must not contain.
        "--endpoint-reconciler-type=none",
        "--profiling=false",
    ]


def environment(component: str) -> dict[str, str]:
    """Return the environment variables that a component gets in addition to PATH and HOME."""
    # Trades memory for CPU, the resource that tests wait for (bench/NOTES.md).
    return {"GOGC": "200"} if component == API_SERVER else {}


def controller_manager(files: Files) -> list[str]:
    return [
        f"--kubeconfig={files.kubeconfig(CONTROLLER_MANAGER)}",
        f"--controllers=*,{','.join(f'-{name}' for name in _IDLE_CONTROLLERS)}",
        "--secure-port=0",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={files / 'service-account.key'}",
        f"--root-ca-file={files / 'ca.crt'}",
        f"--cluster-signing-cert-file={files / 'ca.crt'}",
        f"--cluster-signing-key-file={files / 'ca.key'}",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        "--profiling=false",
    ]


def scheduler(files: Files) -> list[str]:
    return [
        f"--kubeconfig={files.kubeconfig(SCHEDULER)}",
        "--secure-port=0",
        "--leader-elect=false",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        "--profiling=false",
    ]


def kwok(files: Files) -> list[str]:
    return [
        f"--kubeconfig={files.kubeconfig(KWOK)}",
        f"--config={files / 'stages.yaml'}",
        f"--cidr={POD_NETWORK}",
        "--manage-all-nodes=true",
        "--node-lease-duration-seconds=40",
    ]
