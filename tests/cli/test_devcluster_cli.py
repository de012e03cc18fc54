"""`kapsa devcluster` as a user runs it: in processes of its own, from several terminals."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.devcluster.real.process_watch import is_running, program, until, until_gone
from tests.process_table import process_table

pytestmark = pytest.mark.sampled(12, of="module")

KAPSA = [sys.executable, "-c", "from kapsa.cli import main; main()"]


class Terminal:
    """A terminal with its own working and cache directories."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kubeconfig = directory / "dev.kubeconfig"
        self.env = {**os.environ, "XDG_CACHE_HOME": str(directory / "cache")}
        self.env.pop("KUBEBUILDER_ASSETS", None)
        self.started: list[subprocess.Popen[str]] = []

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [*KAPSA, "devcluster", *(str(argument) for argument in arguments)]
        return subprocess.run(
            command, cwd=self.directory, env=self.env, capture_output=True, text=True, timeout=60, check=False
        )

    def up(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a cluster in the foreground and wait until it is ready."""
        command = [*KAPSA, "devcluster", "up", f"--kubeconfig={self.kubeconfig}", *arguments]
        process = subprocess.Popen(
            command, cwd=self.directory, env=self.env, stderr=subprocess.PIPE, text=True
        )
        self.started.append(process)
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("ready in"):
                return process
        raise AssertionError(f"it ended with {process.wait()}")

    @property
    def state(self) -> list[str]:
        return sorted(path.name for path in (self.directory / "cache" / "kapsa" / "devclusters").glob("*"))

    def server(self) -> str:
        text = self.kubeconfig.read_text()
        return next(line.split()[-1] for line in text.splitlines() if "server:" in line)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    for process in terminal.started:
        process.kill()
        process.communicate()


def _accepts(server: str) -> bool:
    host, _, port = server.rpartition("/")[2].partition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5):
            return True
    except ConnectionRefusedError:
        return False


def test_down_in_another_terminal_stops_it_and_leaves_nothing(terminal: Terminal) -> None:
    process = terminal.up()
    server = terminal.server()
    assert _accepts(server)
    assert terminal.kubeconfig.stat().st_mode & 0o777 == 0o600
    answer = terminal.run("down", "--kubeconfig", terminal.kubeconfig)
    assert (answer.returncode, answer.stderr) == (0, f"{terminal.kubeconfig}: stopped\n")
    assert process.wait() == 0
    assert not _accepts(server)
    assert not terminal.kubeconfig.exists()
    assert terminal.state == []


def test_the_kubeconfig_has_a_client_certificate(terminal: Terminal) -> None:
    terminal.up()
    assert terminal.server().startswith("https://")
    assert "client-certificate-data" in terminal.kubeconfig.read_text()


def test_without_tls_the_kubeconfig_has_no_credentials(terminal: Terminal) -> None:
    terminal.up("--no-tls")
    assert terminal.server().startswith("http://")
    assert "client-certificate-data" not in terminal.kubeconfig.read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_it_and_leaves_nothing(terminal: Terminal, number: signal.Signals) -> None:
    process = terminal.up()
    process.send_signal(number)
    assert process.wait() == 0
    assert not terminal.kubeconfig.exists()
    assert terminal.state == []


def test_a_second_cluster_with_the_same_kubeconfig_is_refused(terminal: Terminal) -> None:
    process = terminal.up()
    for detach in ([], ["--detach"]):
        answer = terminal.run("up", "--kubeconfig", terminal.kubeconfig, *detach)
        assert answer.returncode == 1
        assert answer.stderr.count("\n") == 1
        assert f"kapsa: a devcluster (pid {process.pid}) already uses {terminal.kubeconfig}" in answer.stderr
    assert _accepts(terminal.server()), "the first one goes on"


def test_a_detached_cluster_runs_until_down(terminal: Terminal) -> None:
    answer = terminal.run("up", "--detach", "--kubeconfig", terminal.kubeconfig)
    assert answer.returncode == 0, answer.stderr
    server = terminal.server()
    assert _accepts(server)
    answer = terminal.run("down", "--all")
    assert answer.stderr == f"{terminal.kubeconfig}: stopped\n"
    assert not _accepts(server)
    assert terminal.state == []


def test_a_detached_cluster_that_cannot_start_reports_why(terminal: Terminal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = terminal.run("up", "--detach", "--kubeconfig", terminal.kubeconfig, "--port", port)
    assert answer.returncode == 1
    assert f"kapsa: port {port} on 127.0.0.1 cannot be used: Address already in use" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert terminal.state == []


def test_down_removes_the_files_of_a_killed_cluster(terminal: Terminal) -> None:
    process = terminal.up()
    process.kill()
    process.wait()
    assert terminal.kubeconfig.exists()
    answer = terminal.run("down", "--kubeconfig", terminal.kubeconfig)
    assert (answer.returncode, answer.stderr) == (
        0,
        f"{terminal.kubeconfig}: was not running; removed its files\n",
    )
    assert not terminal.kubeconfig.exists()
    assert terminal.state == []


def test_after_a_crash_up_works_with_the_same_kubeconfig(terminal: Terminal) -> None:
    first = terminal.up()
    first.kill()
    first.wait()
    terminal.up()
    assert _accepts(terminal.server())


def test_a_stale_record_never_ends_a_process_that_got_its_pid(terminal: Terminal) -> None:
    first = terminal.up()
    first.kill()
    first.wait()
    record = next((terminal.directory / "cache" / "kapsa" / "devclusters").glob("*.json"))
    with subprocess.Popen(["sleep", "60"]) as bystander:
        record.write_text(json.dumps({**json.loads(record.read_text()), "pid": bystander.pid}))
        assert terminal.run("down", "--all").returncode == 0
        assert is_running(bystander.pid)
        bystander.kill()


def test_a_kubeconfig_that_was_not_made_here_is_never_touched(terminal: Terminal) -> None:
    terminal.kubeconfig.write_text("apiVersion: v1\nkind: Config\n")
    for detach in ([], ["--detach"]):
        answer = terminal.run("up", "--kubeconfig", terminal.kubeconfig, *detach)
        assert answer.returncode == 1
        assert answer.stderr.count("\n") == 1
        assert "was not made by kapsa devcluster; choose another file with --kubeconfig" in answer.stderr
    assert terminal.kubeconfig.read_text() == "apiVersion: v1\nkind: Config\n"
    assert terminal.state == []


def test_down_without_a_cluster_reports_that_none_is_running(terminal: Terminal) -> None:
    answer = terminal.run("down", "--kubeconfig", terminal.kubeconfig)
    assert answer.returncode == 1
    assert answer.stderr.startswith("kapsa: no devcluster uses ")
    answer = terminal.run("down", "--all")
    assert (answer.returncode, answer.stderr) == (0, "no devcluster is running\n")


def test_a_kubeconfig_in_a_missing_directory_is_reported_in_one_line(terminal: Terminal) -> None:
    answer = terminal.run("up", "--kubeconfig", terminal.directory / "nowhere" / "file")
    assert answer.returncode == 1
    assert answer.stderr.count("\n") == 1
    assert "does not exist; create it, or choose another file" in answer.stderr


def test_a_missing_go_is_reported_in_one_line(terminal: Terminal) -> None:
    terminal.env["PATH"] = str(terminal.directory)
    answer = terminal.run("up", "--engine", "real", "--kubeconfig", terminal.kubeconfig)
    assert answer.returncode == 1
    *_, last = answer.stderr.splitlines()
    assert last.startswith(
        "kapsa: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok: not in"
    )
    assert "Install Go" in last
    assert "Traceback" not in answer.stderr
    assert terminal.state == []


def test_a_failed_build_is_reported_in_one_line(terminal: Terminal) -> None:
    program(terminal.directory / "go", "#!/bin/sh\necho 'go: no such tool \"compile\"'\nexit 2\n")
    terminal.env["PATH"] = f"{terminal.directory}:/bin"
    answer = terminal.run("build")
    assert answer.returncode == 1
    *_, last = answer.stderr.splitlines()
    assert last.startswith('kapsa: building etcd failed: go: no such tool "compile" (full log: ')
    assert "Traceback" not in answer.stderr


def test_an_interrupted_start_leaves_nothing(terminal: Terminal) -> None:
    """The executables start and never become ready."""
    for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"):
        program(terminal.directory / "assets" / name, "#!/bin/sh\nexec sleep 600\n")
    terminal.env["KUBEBUILDER_ASSETS"] = str(terminal.directory / "assets")
    command = [*KAPSA, "devcluster", "up", "--engine=real", f"--kubeconfig={terminal.kubeconfig}"]
    process = subprocess.Popen(command, env=terminal.env, stderr=subprocess.PIPE, text=True)
    terminal.started.append(process)
    until(lambda: len(_descendants(process.pid)) == 3)
    pids = _descendants(process.pid)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == "starting the real engine\ninterrupted; cleaning up\n"
    until_gone(pids, terminal.kubeconfig)
    assert terminal.state == []


def test_a_cache_that_cannot_be_written_is_reported_in_one_line(terminal: Terminal) -> None:
    terminal.env["XDG_CACHE_HOME"] = "/dev/null/nowhere"
    answer = terminal.run("up", "--kubeconfig", terminal.kubeconfig)
    assert answer.returncode == 1
    assert answer.stderr.count("\n") == 1
    assert answer.stderr.startswith("kapsa: the devcluster's files cannot be written: ")


# A command with a cluster of its own

PYTHON = [sys.executable, "-c"]
READ = "import os, re; print(re.search('server: (.*)', open(os.environ['KUBECONFIG']).read())[1])"


def test_run_gives_a_command_a_cluster_and_takes_its_exit_code(terminal: Terminal) -> None:
    answer = terminal.run("run", "--", *PYTHON, f"{READ}; raise SystemExit(7)")
    assert answer.returncode == 7, answer.stderr
    assert answer.stdout.startswith("http")
    assert answer.stderr == "", "the streams are the command's"
    assert not _accepts(answer.stdout.strip())
    assert terminal.state == []


def test_the_command_of_run_may_have_options_like_ours(terminal: Terminal) -> None:
    answer = terminal.run("run", "--no-tls", "--no-controllers", "echo", "--port", "x", "--", "--help")
    assert (answer.returncode, answer.stdout) == (0, "--port x -- --help\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_run_passes_signals_on(terminal: Terminal, number: signal.Signals) -> None:
    trap = f"import signal, sys, time; signal.signal({int(number)}, lambda *_: sys.exit(40)); print('set', flush=True); time.sleep(60)"
    process = subprocess.Popen(
        [*KAPSA, "devcluster", "run", "--", *PYTHON, trap],
        env=terminal.env,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    terminal.started.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "set\n"
    process.send_signal(number)
    assert process.wait(timeout=30) == 40


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux ends a process with its parent")
def test_a_killed_run_leaves_no_command(terminal: Terminal) -> None:
    process = subprocess.Popen(
        [
            *KAPSA,
            "devcluster",
            "run",
            "--",
            *PYTHON,
            "import os, time; print(os.getpid(), flush=True); time.sleep(60)",
        ],
        env=terminal.env,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    terminal.started.append(process)
    assert process.stdout is not None
    command = int(process.stdout.readline())
    process.kill()
    process.wait(timeout=30)
    until(lambda: not is_running(command))


def test_run_reports_the_signal_that_ended_its_command(terminal: Terminal) -> None:
    answer = terminal.run("run", "--", *PYTHON, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert answer.returncode == 128 + signal.SIGKILL


def test_run_without_an_existing_command_starts_nothing(terminal: Terminal) -> None:
    answer = terminal.run("run", "--", "no-such-program")
    assert answer.returncode == 1
    assert answer.stderr == (
        "kapsa: no-such-program: no such command, or not executable; "
        "write `kapsa devcluster run -- COMMAND ARGUMENT...`\n"
    )
    answer = terminal.run("run")
    assert answer.returncode == 2
    assert "Missing argument" in answer.stderr


def test_run_reports_a_busy_port_in_one_line(terminal: Terminal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = terminal.run("run", "--port", port, "--", "true")
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"kapsa: port {port} on 127.0.0.1 cannot be used: Address already in use")
    assert answer.stderr.count("\n") == 1


def test_a_cluster_serves_https_or_http_as_its_flags_tell(terminal: Terminal) -> None:
    for flag, scheme in (("--tls", "https://"), ("--no-tls", "http://")):
        answer = terminal.run("run", flag, "--", *PYTHON, READ)
        assert answer.stdout.startswith(scheme), answer.stderr


def test_options_that_the_real_engine_does_not_have_are_refused(terminal: Terminal) -> None:
    for option in (["--no-tls"], ["--data", "x"]):
        for command in (["up"], ["run", "--", "true"]):
            answer = terminal.run(command[0], "--engine", "real", *option, *command[1:])
            assert answer.returncode == 1
            assert answer.stderr.endswith("or use --engine embedded\n")


def test_a_cluster_without_controllers_creates_no_pods(terminal: Terminal) -> None:
    terminal.up("--no-controllers", "--no-tls")
    with urllib.request.urlopen(f"{terminal.server()}/api/v1/nodes") as nodes:
        assert json.load(nodes)["items"] == []


def test_data_outlives_the_cluster_and_belongs_to_one_at_a_time(terminal: Terminal) -> None:
    data = terminal.directory / "data"
    process = terminal.up("--data", str(data), "--no-tls")
    answer = terminal.run("run", "--data", data, "--", "true")
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"kapsa: {data} is used by process {process.pid} (")
    body = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kept"}}).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{terminal.server()}/api/v1/namespaces", body, headers)
    with urllib.request.urlopen(request) as created:
        uid = json.load(created)["metadata"]["uid"]
    process.kill()
    process.wait()
    terminal.up("--data", str(data), "--no-tls")
    with urllib.request.urlopen(f"{terminal.server()}/api/v1/namespaces/kept") as kept:
        assert json.load(kept)["metadata"]["uid"] == uid


def test_help_lists_the_commands_and_their_options(terminal: Terminal) -> None:
    answer = terminal.run("--help")
    for command in ("up", "run", "down", "build"):
        assert f"\n  {command} " in answer.stdout
    answer = terminal.run("run", "--help")
    for option in ("--engine", "--no-controllers", "--no-tls", "--data", "--port", "--nodes"):
        assert option in answer.stdout
    answer = terminal.run("rum")
    assert answer.returncode == 2
    assert "No such command 'rum'" in answer.stderr


@pytest.mark.real
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("ending", ["down", "interrupt", "kill"])
def test_a_real_cluster_leaves_nothing_however_it_ends(terminal: Terminal, ending: str) -> None:
    terminal.env = dict(os.environ)
    process = terminal.up("--engine=real")
    pids = _descendants(process.pid)
    assert len(pids) == 6, "the supervisor and five components"
    if ending == "down":
        assert terminal.run("down", "--kubeconfig", terminal.kubeconfig).returncode == 0
    else:
        process.send_signal(signal.SIGINT if ending == "interrupt" else signal.SIGKILL)
    process.wait()
    until_gone(pids, terminal.kubeconfig)
    if ending == "kill":
        assert terminal.run("down", "--kubeconfig", terminal.kubeconfig).returncode == 0


@pytest.mark.real
@pytest.mark.timeout(1800)
def test_a_real_cluster_that_loses_a_component_ends_with_one_line(terminal: Terminal) -> None:
    terminal.env = dict(os.environ)
    process = terminal.up("--engine=real")
    pids = _descendants(process.pid)
    etcd = next(pid for pid in pids if Path(f"/proc/{pid}/comm").read_text().strip() == "etcd")
    os.kill(etcd, signal.SIGKILL)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 1
    assert rest.splitlines()[-1].startswith("kapsa: etcd ended with signal 9")
    until_gone(pids, terminal.kubeconfig)


def _descendants(ancestor: int) -> list[int]:
    parents = {process.pid: process.parent for process in process_table()}
    descendants: list[int] = []
    generation = [ancestor]
    while generation := [pid for pid, parent in parents.items() if parent in generation]:
        descendants += generation
    return descendants
