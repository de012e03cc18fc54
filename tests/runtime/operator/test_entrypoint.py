"""The operator as a program: started, probed, stopped by a signal."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from kapsa.devcluster import DevCluster
from kapsa.runtime import Client, Operator
from kapsa.runtime.operator.entrypoint import OperatorNotFoundError, load_operator, main
from kapsa.runtime.testing import Harness
from tests.eventually import eventually
from tests.runtime.sample_app import Recorder

PROGRAM = '''
import asyncio
from kapsa.runtime import Controller, CustomResource, LeaderElection, Operator, Spec, Status

class ThingSpec(Spec):
    seconds: float = 0.0

class Thing(CustomResource[ThingSpec, Status], group="example.com", version="v1"):
    """Takes its time."""

class ThingController(Controller[Thing]):
    async def reconcile(self, thing, ctx):
        ctx.event("Normal", "Began", "on it")
        await asyncio.sleep(thing.spec.seconds)
        ctx.condition("Done", True, reason="Slept")

operator = Operator(controllers=[ThingController()], leader_election="things", metrics_port=0)
'''

MAKER = '''
import asyncio
from kapsa.runtime import Controller, CustomResource, Operator, Spec, Status

class MakerSpec(Spec):
    pass

class Maker(CustomResource[MakerSpec, Status], group="example.com", version="v1"):
    """Makes three children, and takes a moment for each."""

class MakerController(Controller[Maker]):
    owns = ("v1/ConfigMap",)

    async def reconcile(self, maker, ctx):
        for number in range(3):
            await ctx.apply(
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{maker.name}-{number}"}}
            )
            await asyncio.sleep(0.01)
        ctx.condition("Ready", True, reason="Made")

operator = Operator(controllers=[MakerController()], metrics_port=None, health_port=None)
'''

RESTLESS = """
from kapsa.runtime import Controller, Operator, Requeue

class RestlessController(Controller):
    resource = "v1/ConfigMap"
    runs = 0

    async def reconcile(self, resource, ctx):
        self.runs += 1
        if self.runs == 200:
            print("restless", flush=True)
        return Requeue(after=0)

operator = Operator(
    controllers=[RestlessController()], metrics_port=None, health_port=None, leader_election="restless"
)
"""

FAILING = """
from kapsa.runtime import Controller, Operator

class FailingController(Controller):
    resource = "v1/ConfigMap"

    async def reconcile(self, resource, ctx):
        if resource["metadata"]["name"] == "broken":
            raise RuntimeError("boom")

operator = Operator(
    controllers=[FailingController()], metrics_port=None, health_port=None, check_rights=False
)
"""

LEAVES_OUT = (
    "cryptography",
    "opentelemetry",
    "rich",
    "greenlet",
    "difflib",
    "typer",
    "click",
    "yaml",
    "kapsa.devcluster",
    "kapsa.cli",
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "things.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "things", raising=False)
    return tmp_path


async def is_ready(port: int, text: str) -> bool:
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/readyz") as response,
        ):
            return text in await response.text()
    except aiohttp.ClientError:
        return False


async def test_sigterm_lets_the_program_finish_its_work_and_release_the_lease(
    project: Path, unused_tcp_port: int
) -> None:
    async with DevCluster() as cluster:
        harness = Harness(cluster)
        sys.path.insert(0, str(project))
        await harness.install(load_operator("things:operator").resources[0])
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kapsa.runtime.operator.entrypoint", "things:operator"),
            *(f"--kubeconfig={cluster.kubeconfig}", f"--health-port={unused_tcp_port}"),
            cwd=project,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            await eventually(
                lambda: is_ready(unused_tcp_port, "[+] controller thing: working"),
                bool,
                "a working controller",
            )
            thing = {
                "apiVersion": "example.com/v1",
                "kind": "Thing",
                "metadata": {"name": "slow", "namespace": "default"},
                "spec": {"seconds": 1.0},
            }
            await harness.client.create(thing)
            await eventually(lambda: harness.events(reason="Began"), bool, "a run that has begun")
            program.send_signal(signal.SIGTERM)
            _, said = await asyncio.wait_for(program.communicate(), 30)
            assert program.returncode == 0, said.decode()
        finally:
            if program.returncode is None:
                program.kill()
                await program.wait()
        done = await harness.client.get("example.com/v1/Thing", "slow", namespace="default")
        assert done["status"]["conditions"][0]["reason"] == "Slept"
        lease = await harness.client.get("coordination.k8s.io/v1/Lease", "things", namespace="default")
        assert lease["spec"]["holderIdentity"] == ""


async def test_sigterm_ends_a_program_whose_resources_always_ask_for_the_next_run(project: Path) -> None:
    (project / "restless.py").write_text(RESTLESS)
    async with DevCluster() as cluster:
        client = Harness(cluster).client
        for name in ("one", "two"):
            manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
            await client.create(manifest, namespace="default")
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kapsa.runtime.operator.entrypoint", "restless:operator"),
            f"--kubeconfig={cluster.kubeconfig}",
            cwd=project,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            assert program.stdout is not None
            await asyncio.wait_for(program.stdout.readuntil(b"restless"), 30)
            program.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(program.wait(), 15) == 0
        finally:
            if program.returncode is None:
                program.kill()
                await program.wait()
        lease = await client.get("coordination.k8s.io/v1/Lease", "restless", namespace="default")
        assert lease["spec"]["holderIdentity"] == ""


async def test_a_traceback_without_uvloop_shows_the_failure_alone(project: Path) -> None:
    (project / "failing.py").write_text(FAILING)
    (project / "uvloop.py").write_text("raise ModuleNotFoundError('uvloop is hidden', name='uvloop')")
    async with DevCluster() as cluster:
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "broken"}}
        await Harness(cluster).client.create(manifest, namespace="default")
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kapsa.runtime.operator.entrypoint", "failing:operator"),
            f"--kubeconfig={cluster.kubeconfig}",
            cwd=project,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            assert program.stderr is not None
            logged = await asyncio.wait_for(program.stderr.readuntil(b"RuntimeError: boom"), 30)
            program.send_signal(signal.SIGTERM)
            _, rest = await asyncio.wait_for(program.communicate(), 30)
        finally:
            if program.returncode is None:
                program.kill()
                await program.wait()
    text = (logged + rest).decode()
    assert "RuntimeError: boom" in text
    assert "ModuleNotFoundError" not in text


async def test_an_operator_process_killed_at_any_time_reaches_the_same_state(project: Path) -> None:
    """A sample with real processes and SIGKILL of what the crash sweeps do on virtual time."""
    (project / "maker.py").write_text(MAKER)
    async with DevCluster() as cluster:
        harness = Harness(cluster)
        sys.path.insert(0, str(project))
        await harness.install(load_operator("maker:operator").resources[0])
        for number in range(20):
            await harness.client.create(
                {
                    "apiVersion": "example.com/v1",
                    "kind": "Maker",
                    "metadata": {"name": f"m{number}", "namespace": "default"},
                    "spec": {},
                }
            )
        made: list[dict[str, str]] = []
        for least in (1, 30, 61):  # of 60 children; the last one is let finish
            program = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "kapsa.runtime.operator.entrypoint", "maker:operator"),
                f"--kubeconfig={cluster.kubeconfig}",
                cwd=project,
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                await eventually(partial(enough, harness, least), bool, f"{least} writes")
            finally:
                program.kill()
                await program.wait()
            made.append(await children(harness))
        assert 1 <= len(made[0]) < len(made[1]) < 60, "killed in the middle"
        names = {f"m{number}-{child}" for number in range(20) for child in range(3)}
        assert made[-1].keys() == names
        assert made[-1].items() >= made[1].items() >= made[0].items(), "nothing was made twice"


async def children(harness: Harness) -> dict[str, str]:
    """Return the UIDs of the children by name."""
    configs = [each["metadata"] for each in await harness.client.list("v1/ConfigMap", namespace="default")]
    return {each["name"]: each["uid"] for each in configs if each["name"].startswith("m")}


async def enough(harness: Harness, least: int) -> bool:
    if least <= 60:
        return len(await children(harness)) >= least
    makers = await harness.client.list("example.com/v1/Maker", namespace="default")
    return all("status" in each for each in makers)


async def test_an_operator_process_loads_only_what_it_needs(project: Path) -> None:
    look = f"import sys, things; print([name for name in {LEAVES_OUT!r} if name in sys.modules])"
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        f"import kapsa.runtime.operator.entrypoint; {look}",
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await program.communicate()
    assert said.decode().strip() == "[]"


def test_an_operator_is_found_by_module_or_file(project: Path) -> None:
    assert load_operator("things").name == "things"
    assert load_operator("things.py:operator").name == "things"


def test_a_function_that_returns_an_operator_is_called_when_it_is_loaded(project: Path) -> None:
    (project / "factory.py").write_text("import things\n\ndef make():\n    return things.operator\n")
    assert load_operator("factory:make").name == "things"


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("nothing:operator", "module 'nothing' not found in .* run this in the folder that contains it"),
        (
            "things:nope",
            "things:nope is not an Operator or a function that returns one; the module has operator",
        ),
        (
            "json:operator",
            "json:operator is not an Operator or a function that returns one; the module has no Operator",
        ),
        (":operator", "invalid target ':operator': use a form such as myapp:operator"),
        ("nothing.py:operator", "file not found: nothing.py"),
        ("lost:operator", "lost cannot be imported: ModuleNotFoundError: No module named 'away'"),
        ("broken:operator", r"broken cannot be imported: SyntaxError: .* \(broken.py, line 1\)"),
        ("raising:operator", r"raising cannot be imported: ZeroDivisionError: .* \(raising.py:2\)"),
        ("factories:broken", r"factories:broken failed: ZeroDivisionError: .* \(factories.py:2\)"),
        ("factories:empty", "factories:empty is not an Operator or a function that returns one"),
    ],
)
def test_an_invalid_target_lists_the_operators_of_the_module(
    project: Path, target: str, complaint: str
) -> None:
    modules = {
        "lost": "import away",
        "broken": "def (",
        "raising": "one = 1\none / 0",
        "factories": "def broken():\n    1 / 0\n\ndef empty():\n    return None\n",
    }
    for name, text in modules.items():
        (project / f"{name}.py").write_text(text)
    with pytest.raises(OperatorNotFoundError, match=complaint):
        load_operator(target)


@pytest.mark.parametrize(
    ("argument", "complaint"),
    [
        ("--metrics-port=99999", "argument --metrics-port: invalid port 99999: use 1 to 65535"),
        ("--health-port=-5", "argument --health-port: invalid port -5"),
        ("--namespace=Bad Name", "argument -n/--namespace: invalid namespace name 'Bad Name'"),
    ],
)
def test_an_invalid_argument_is_reported_in_one_line(
    argument: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["things:operator", argument])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"kapsa: {complaint}")
    assert said.count("\n") == 1


def test_an_operator_that_configures_the_standard_logging_gets_its_own_lines(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = "import logging\nlogging.basicConfig(level=logging.INFO)\n"
    (project / "things.py").write_text(own + PROGRAM)
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setenv("KUBECONFIG", str(project / "missing"))
    monkeypatch.setattr(gc, "freeze", lambda: None)
    assert main(["things:operator"]) == 1
    assert [type(each) for each in root.handlers] == [logging.StreamHandler]
    assert root.isEnabledFor(logging.INFO)


def test_a_user_error_is_reported_in_one_line(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(project / "missing"))
    monkeypatch.delenv("KAPSA_DEBUG", raising=False)
    monkeypatch.setattr(gc, "freeze", lambda: None)  # for a process of its own, not for that of the tests
    assert main(["things:operator"]) == 1
    message = f"kubeconfig not found: {project / 'missing'}; set KUBECONFIG, or pass the path of a kubeconfig"
    assert capsys.readouterr().err == f"kapsa: {message}\n"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--webhook-url=https://laptop"], "operator things has no webhooks: leave out --webhook-url"),
        (
            ["--webhook-url=http://laptop", "--webhook-port=1"],
            "--webhook-url: invalid webhook URL 'http://laptop': use https://HOST[:PORT][/PATH]",
        ),
        (
            ["--webhook-url=https://laptop", "--webhook-ca=nowhere.pem"],
            "cannot read --webhook-ca nowhere.pem: No such file or directory",
        ),
    ],
)
def test_a_webhook_url_that_cannot_be_served_is_reported_in_one_line(
    project: Path,
    options: list[str],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "no webhooks" not in complaint:
        (project / "things.py").write_text(
            PROGRAM.replace(
                "import asyncio", "import asyncio\nfrom kapsa.runtime import ValidatingWebhook, Webhooks"
            )
            .replace("operator = Op", "class Check(ValidatingWebhook[Thing]):\n    pass\n\noperator = Op")
            .replace("metrics_port=0", 'metrics_port=0, webhooks=Webhooks(Check(), service="things")')
        )
    monkeypatch.setattr(gc, "freeze", lambda: None)
    assert main(["things:operator", *options]) == 1
    assert capsys.readouterr().err == f"kapsa: {complaint}\n"


def test_the_command_loads_no_more_than_the_program(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target module prints what is loaded by then, and has no operator, so the program ends there."""
    heavy = [name for name in LEAVES_OUT if name != "kapsa.cli"]
    (project / "looking.py").write_text(
        f"import sys; print([name for name in {heavy!r} if name in sys.modules])"
    )
    command = [sys.executable, "-c", "from kapsa.cli import main; main()", "run", "looking:operator"]
    program = subprocess.run([*command, "-n", "shop"], capture_output=True, text=True, check=False)
    assert program.stdout.strip() == "[]"
    assert (
        program.stderr
        == "kapsa: looking:operator is not an Operator or a function that returns one; the module has no Operator\n"
    ), program.stderr
    assert program.returncode == 1


async def test_an_unreachable_server_is_retried_and_reported(unused_tcp_port: int, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        f"""
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{unused_tcp_port}"}}}}]
users: [{{name: u, user: {{}}}}]
"""
    )
    operator = Operator(controllers=[Recorder()], metrics_port=None, health_port=None, check_rights=False)
    client = Client.connect(kubeconfig=kubeconfig)
    async with client, operator.running(client) as run:
        (informer,) = run.cache.informers

        async def in_trouble() -> bool:
            return bool(informer.trouble)

        await eventually(in_trouble, bool, "a watch that failed")
        assert str(unused_tcp_port) in informer.trouble
        ready, report = run.health.report(run.health.ready)
        assert not ready
        assert str(unused_tcp_port) in report
