"""Kubeconfig files, merged as client-go merges them. Each error names file, context and field."""

import base64
import binascii
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kapsa.runtime.client.auth.exec_plugin import ExecConfig
from kapsa.runtime.errors import ConfigError

__all__ = ["Kubeconfig", "KubeconfigCluster", "KubeconfigUser", "SelectedContext", "default_paths"]

T = TypeVar("T")


class KubeconfigCluster(msgspec.Struct, frozen=True, rename="kebab"):
    """A `cluster` of a kubeconfig: the address of the API server and its certificate authority."""

    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    extensions: tuple[dict[str, Any], ...] | None = None


class AuthProvider(msgspec.Struct, frozen=True):
    """A built-in source of tokens; only `oidc` still exists."""

    name: str
    config: dict[str, str] | None = None


class KubeconfigUser(msgspec.Struct, frozen=True, rename="kebab"):
    """A `user` of a kubeconfig: the credentials, and the user to impersonate."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    username: str = ""
    password: str = ""
    as_user: str = msgspec.field(name="as", default="")
    as_uid: str = ""
    as_groups: tuple[str, ...] | None = None
    as_user_extra: dict[str, tuple[str, ...]] | None = None
    auth_provider: AuthProvider | None = None
    exec_config: ExecConfig | None = msgspec.field(name="exec", default=None)


class KubeconfigContext(msgspec.Struct, frozen=True):
    """A `context` of a kubeconfig: the names of a cluster and a user, and a namespace."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: KubeconfigCluster = KubeconfigCluster()


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: KubeconfigUser | None = None


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: KubeconfigContext = KubeconfigContext()


class _File(msgspec.Struct, frozen=True):
    clusters: tuple[_NamedCluster, ...] | None = None
    users: tuple[_NamedUser, ...] | None = None
    contexts: tuple[_NamedContext, ...] | None = None
    current_context: str = msgspec.field(name="current-context", default="")


class SelectedContext(msgspec.Struct, frozen=True):
    """One context with the cluster and the user that it names, and the file that defines each."""

    context: str
    namespace: str
    cluster: KubeconfigCluster
    cluster_file: Path
    user: KubeconfigUser
    user_name: str
    user_file: Path

    def describe(self, field: str = "") -> str:
        """Return file, context and field as error messages name them."""
        file = self.user_file if field.startswith("user") else self.cluster_file
        return f"kubeconfig {file}, context {self.context!r}" + (f", {field}" if field else "")


class Kubeconfig:
    """One or more kubeconfig files merged: the first file that defines a name or the current context wins."""

    def __init__(self, files: Iterable[tuple[Path, _File]]) -> None:
        self._clusters: dict[str, tuple[Path, KubeconfigCluster]] = {}
        self._users: dict[str, tuple[Path, KubeconfigUser]] = {}
        self._contexts: dict[str, tuple[Path, KubeconfigContext]] = {}
        self._paths: list[Path] = []
        self.current_context = ""
        for path, file in files:
            self._paths.append(path)
            for cluster in file.clusters or ():
                self._clusters.setdefault(cluster.name, (path, cluster.cluster))
            for user in file.users or ():
                self._users.setdefault(user.name, (path, user.user or KubeconfigUser()))
            for context in file.contexts or ():
                self._contexts.setdefault(context.name, (path, context.context))
            self.current_context = self.current_context or file.current_context

    @classmethod
    def load(cls, paths: Iterable[Path]) -> "Kubeconfig":
        """Read the files, skipping those that do not exist unless none does."""
        paths = list(dict.fromkeys(paths))
        files = [(path, _read(path)) for path in paths if path.exists()]
        if not files:
            raise ConfigError(
                f"kubeconfig not found: {', '.join(map(str, paths))}; "
                "set KUBECONFIG, or pass the path of a kubeconfig"
            )
        return cls(files)

    @property
    def contexts(self) -> list[str]:
        return list(self._contexts)

    def select(self, context: str | None = None) -> SelectedContext:
        """Return the context with this name, or the current one, with its cluster and its user."""
        location = f"kubeconfig {', '.join(map(str, self._paths))}"
        name = context or self.current_context
        if not name:
            raise ConfigError(f"{location}: current-context is not set; choose one of: {self._names()}")
        if name not in self._contexts:
            raise ConfigError(f"{location}: context {name!r} does not exist; choose one of: {self._names()}")
        path, chosen = self._contexts[name]
        location = f"kubeconfig {path}, context {name!r}"
        if chosen.cluster not in self._clusters:
            raise ConfigError(f"{location}: cluster {chosen.cluster!r} is not defined")
        cluster_file, cluster = self._clusters[chosen.cluster]
        if chosen.user and chosen.user not in self._users:
            raise ConfigError(f"{location}: user {chosen.user!r} is not defined")
        user_file, user = self._users.get(chosen.user, (path, KubeconfigUser()))
        if not cluster.server:
            raise ConfigError(f"kubeconfig {cluster_file}, cluster {chosen.cluster!r}: server is missing")
        return SelectedContext(
            context=name,
            namespace=chosen.namespace,
            cluster=cluster,
            cluster_file=cluster_file,
            user=user,
            user_name=chosen.user,
            user_file=user_file,
        )

    def _names(self) -> str:
        return ", ".join(sorted(self._contexts)) or "none"


def default_paths(environment: Mapping[str, str] | None = None) -> list[Path]:
    """Return the files that `KUBECONFIG` lists, separated as in PATH; `~/.kube/config` if it is not set."""
    environment = os.environ if environment is None else environment
    listed = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    return listed or [Path(environment.get("HOME", "~")).expanduser() / ".kube" / "config"]


def decode_data(text: str, where: str) -> bytes:
    """Decode a `-data` field."""
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error as error:
        raise ConfigError(f"{where} is not base64: {error}") from error


def convert(data: Any, kind: type[T], where: str) -> T:
    """Convert plain data to a struct. Raises `ConfigError` that names the field."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from error


def update_auth_provider(path: Path, user: str, changes: Mapping[str, str]) -> None:
    """Write renewed tokens back to the user's auth-provider, atomically and readable only by the owner."""
    import yaml

    document = yaml.safe_load(path.read_bytes())
    for entry in document.get("users") or ():
        if entry.get("name") == user:
            entry["user"]["auth-provider"]["config"].update(changes)
    # A kubeconfig that is a symlink must remain one.
    target = path.resolve()
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    fresh.touch(mode=0o600)
    try:
        fresh.write_text(yaml.safe_dump(document, sort_keys=False))
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)


def _read(path: Path) -> _File:
    import yaml

    try:
        document = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read kubeconfig {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"kubeconfig {path} is not YAML: {' '.join(str(error).split())}") from error
    if document is None:
        return _File()
    if not isinstance(document, dict):
        raise ConfigError(f"kubeconfig {path} must be a mapping, got {type(document).__name__}")
    return convert(document, _File, f"kubeconfig {path}")
