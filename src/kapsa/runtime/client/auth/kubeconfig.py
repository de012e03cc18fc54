"""Kubeconfig files: several of them merged as client-go merges them, each error naming file, context and field."""

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
    """Where a cluster is and how to know it."""

    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    extensions: tuple[dict[str, Any], ...] | None = None


class AuthProvider(msgspec.Struct, frozen=True):
    """A built-in way to get tokens; only `oidc` is left of them."""

    name: str
    config: dict[str, str] | None = None


class KubeconfigUser(msgspec.Struct, frozen=True, rename="kebab"):
    """Who to be."""

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
    """A cluster, a user and a namespace that go together."""

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
    """One context with everything it names, and the file each part comes from."""

    context: str
    namespace: str
    cluster: KubeconfigCluster
    cluster_file: Path
    user: KubeconfigUser
    user_name: str
    user_file: Path

    def describe(self, field: str = "") -> str:
        """How errors call this: file, context and field."""
        place = f"kubeconfig {self.user_file if field.startswith('user') else self.cluster_file}"
        return f"{place}, context {self.context!r}" + (f", {field}" if field else "")


class Kubeconfig:
    """The merge of one or more kubeconfig files: the first to define a name, or the current context, wins."""

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
        """Read the files. One that does not exist is skipped, as long as another does."""
        paths = list(dict.fromkeys(paths))
        found = [(path, _read(path)) for path in paths if path.exists()]
        if not found:
            raise ConfigError(
                f"no kubeconfig: {', '.join(map(str, paths)) or 'nothing'} does not exist; set KUBECONFIG, or name "
                "another file"
            )
        return cls(found)

    @property
    def contexts(self) -> list[str]:
        return list(self._contexts)

    def select(self, context: str | None = None) -> SelectedContext:
        """The context of that name, or the current one, with what it names."""
        where = f"kubeconfig {', '.join(map(str, self._paths))}"
        name = context or self.current_context
        if not name:
            raise ConfigError(f"{where}: current-context is not set; name one of: {self._known()}")
        if name not in self._contexts:
            raise ConfigError(f"{where}: there is no context {name!r}; there is: {self._known()}")
        path, chosen = self._contexts[name]
        where = f"kubeconfig {path}, context {name!r}"
        if chosen.cluster not in self._clusters:
            raise ConfigError(f"{where}, cluster: {chosen.cluster!r} is not defined")
        cluster_file, cluster = self._clusters[chosen.cluster]
        if chosen.user and chosen.user not in self._users:
            raise ConfigError(f"{where}, user: {chosen.user!r} is not defined")
        user_file, user = self._users.get(chosen.user, (path, KubeconfigUser()))
        if not cluster.server:
            raise ConfigError(f"kubeconfig {cluster_file}, cluster {chosen.cluster!r}, server: it is missing")
        return SelectedContext(
            context=name,
            namespace=chosen.namespace,
            cluster=cluster,
            cluster_file=cluster_file,
            user=user,
            user_name=chosen.user,
            user_file=user_file,
        )

    def _known(self) -> str:
        return ", ".join(sorted(self._contexts)) or "none"


def default_paths(environment: Mapping[str, str] | None = None) -> list[Path]:
    """Where kubeconfig files are looked for: `KUBECONFIG`, several files joined as in PATH; else the home's."""
    environment = os.environ if environment is None else environment
    named = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    return named or [Path(environment.get("HOME", "~")).expanduser() / ".kube" / "config"]


def decode_data(text: str, where: str) -> bytes:
    """The content of a `-data` field."""
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error as error:
        raise ConfigError(f"{where}: it is not base64: {error}") from error


def convert(data: Any, kind: type[T], where: str) -> T:
    """Plain data as a struct, with an error that names the field."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from error


def update_auth_provider(path: Path, user: str, changes: Mapping[str, str]) -> None:
    """Write renewed tokens back to the user's auth-provider, atomically, readable by the owner alone."""
    import yaml

    document = yaml.safe_load(path.read_bytes())
    for entry in document.get("users") or ():
        if entry.get("name") == user:
            entry["user"]["auth-provider"]["config"].update(changes)
    # The name of a symlinked kubeconfig must keep pointing where it points.
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
        raise ConfigError(f"kubeconfig {path}: it can't be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"kubeconfig {path}: it is not YAML: {' '.join(str(error).split())}") from error
    if document is None:
        return _File()
    if not isinstance(document, dict):
        raise ConfigError(f"kubeconfig {path}: it is a {type(document).__name__}, not a mapping")
    return convert(document, _File, f"kubeconfig {path}")
