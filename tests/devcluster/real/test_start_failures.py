"""A control plane that cannot start reports why in one line and leaves nothing behind."""

import errno
import shutil
import socket
from pathlib import Path

import pytest

from kapsa.devcluster import certificates
from kapsa.devcluster.certificates import PemPair
from kapsa.devcluster.errors import ComponentFailed, DevClusterError, PortBusy
from kapsa.devcluster.real import supervisor
from kapsa.devcluster.real.control_plane import RealControlPlane
from tests.devcluster.real.process_watch import program


@pytest.mark.usefixtures("scratch")
async def test_the_log_of_a_component_that_dies_is_quoted(binaries: dict[str, Path]) -> None:
    program(
        binaries["etcd"],
        '#!/bin/sh\necho \'{"level":"fatal","msg":"cannot open data","error":"disk on fire"}\'\nexit 1\n',
    )
    with pytest.raises(ComponentFailed) as caught:
        await RealControlPlane(binaries=binaries).start()
    assert str(caught.value) == "etcd ended with exit code 1: cannot open data: disk on fire"


@pytest.mark.usefixtures("scratch")
async def test_a_missing_executable_is_reported_with_its_path(binaries: dict[str, Path]) -> None:
    binaries["etcd"].unlink()
    with pytest.raises(ComponentFailed, match=r"cannot start etcd: .*No such file.*bin/etcd"):
        await RealControlPlane(binaries=binaries).start()


@pytest.mark.usefixtures("scratch")
async def test_a_busy_port_is_reported_in_one_line(binaries: dict[str, Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            PortBusy, match=f"port {port} on 127.0.0.1 cannot be used: Address already in use"
        ):
            await RealControlPlane(binaries=binaries, port=port).start()


async def test_another_port_is_chosen_if_the_first_is_taken_before_its_use(
    scratch: Path, binaries: dict[str, Path]
) -> None:
    ports = scratch.parent / "ports"
    program(
        binaries["kube-apiserver"],
        f"""#!/bin/sh
for argument; do case "$argument" in --secure-port=*) echo "$argument" >> {ports};; esac; done
[ "$(wc -l < {ports})" -ge 3 ] && {{ echo "E1115 1 1 a.go:1] on to the next problem"; exit 1; }}
echo "E1115 1 1 a.go:1] failed to listen on 127.0.0.1: bind: address already in use"; exit 1
""",
    )
    with pytest.raises(ComponentFailed, match="on to the next problem"):
        await RealControlPlane(binaries=binaries).start()
    tried = ports.read_text().split()
    assert len(set(tried)) == 3, "each attempt uses another port"


@pytest.mark.usefixtures("scratch")
async def test_the_start_fails_if_no_port_is_free(binaries: dict[str, Path]) -> None:
    program(binaries["kube-apiserver"], "#!/bin/sh\necho 'bind: address already in use'; exit 1\n")
    with pytest.raises(PortBusy, match="no free port"):
        await RealControlPlane(binaries=binaries).start()


@pytest.mark.usefixtures("scratch")
async def test_a_full_disk_is_reported_in_one_line(
    binaries: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: PemPair, directory: Path, name: str) -> tuple[Path, Path]:
        raise OSError(errno.ENOSPC, "No space left on device", str(directory / name))

    monkeypatch.setattr(certificates.PemPair, "write", fail)
    with pytest.raises(DevClusterError, match="no space left for the cluster's files") as caught:
        await RealControlPlane(binaries=binaries).start()
    assert "\n" not in str(caught.value)


def test_a_cluster_is_kept_in_memory_only_if_there_is_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(supervisor, "_SHARED_MEMORY", tmp_path / "shm")
    assert supervisor.scratch_directory() == tmp_path, "there is no memory file system"
    (tmp_path / "shm").mkdir()
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=64 << 20))
    assert supervisor.scratch_directory() == tmp_path, "it is as small as a container's"
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=4 << 30))
    assert supervisor.scratch_directory() == tmp_path / "shm"
