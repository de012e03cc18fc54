"""Kubeconfig files: merging and default paths."""

from pathlib import Path

import pytest

from kapsa.runtime.client.auth.kubeconfig import Kubeconfig, default_paths
from kapsa.runtime.errors import ConfigError
from tests.runtime.client.kubeconfigs import config, write


def test_the_kubeconfig_variable_lists_files_and_home_is_the_fallback(tmp_path: Path) -> None:
    assert default_paths({"KUBECONFIG": "/a::/b", "HOME": "/h"}) == [Path("/a"), Path("/b")]
    assert default_paths({"HOME": "/h"}) == [Path("/h/.kube/config")]


def test_the_first_file_that_defines_a_name_or_the_current_context_wins(tmp_path: Path) -> None:
    first = config(user={"token": "one"})
    del first["current-context"]
    second = config(cluster={"server": "https://other", "tls-server-name": "x"}, user={"username": "two"})
    second["contexts"].append({"name": "prod", "context": {"cluster": "p", "user": "u"}})
    second["clusters"].append({"name": "p", "cluster": {"server": "https://prod"}})
    merged = Kubeconfig.load([write(tmp_path / "a", first), write(tmp_path / "b", second)])
    assert merged.contexts == ["dev", "prod"]
    dev = merged.select()
    assert (dev.cluster.server, dev.cluster.tls_server_name) == ("https://api:6443", "")
    assert (dev.user.token, dev.user.username) == ("one", "")
    assert merged.select("prod").cluster.server == "https://prod"


def test_a_missing_or_empty_file_among_several_is_skipped(tmp_path: Path) -> None:
    existing = write(tmp_path / "existing", config())
    empty = write(tmp_path / "empty", "")
    assert Kubeconfig.load([tmp_path / "missing", empty, existing]).select().context == "dev"


def test_the_error_without_any_file_names_the_paths(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"kubeconfig not found: .*missing; set KUBECONFIG"):
        Kubeconfig.load([tmp_path / "missing"])
