"""The runbooks of the fleet manager: every reason that its code gives has a section, and no section is left over."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import typer

from kapsa.cli.fleet.command import app as fleet
from kapsa.fleet.domain.health.memory import HealthLimits
from kapsa.fleet.domain.health.verdicts import CheckKind, Evidence
from kapsa.fleet.domain.health.webhooks import ProbeFacts, ProbeOutcome, judge_probes

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "fleet" / "runbooks"
SOURCE = ROOT / "src" / "kapsa" / "fleet"
REPORTING = (
    "domain/health/*.py",
    "domain/rollout/*.py",
    "infrastructure/health/*.py",
    "infrastructure/operations/**/*.py",
    "infrastructure/preflight/*.py",
    "orchestrator/*.py",
    "orchestrator/rollout/**/*.py",
)
"""The modules that give a reason to a check, a problem of a plan, or a cluster of a deployment."""
WORD = re.compile(r"[A-Z][A-Za-z]*[a-z][A-Za-z]*")
PASSED_ON = {"ProgressDeadlineExceeded", "ReplicaFailure"}
"""Reasons of a Deployment's own conditions, which are passed on."""
NOT_REASONS = {
    *("AbortRequested", "Paused", "PhaseChanged", "Resumed", "Retried", "RollbackRequested", "Stalled"),
    *("StagePassed", "StepChanged", "SwitchRequested"),
    *("CustomResourceDefinition", "DaemonSet", "Deployment", "MutatingWebhookConfiguration", "Service"),
    *("StatefulSet", "ValidatingWebhookConfiguration", "Webhook", "Conversion"),
    *("Certificate", "Failed", "Slow", "Timeout"),
    *("DoesNotExist", "Exists", "In", "NotIn", "FieldManagerConflict", "NamesAccepted", "Succeeded"),
    *("All", "Current", "Helm", "Passed"),
}
"""Events of a deployment's history, kinds, parts of the words of probes, words of Kubernetes, and success."""
ALERTS = "alerts.md"
"""Its sections are named after alerts, which are not words of the code."""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fleet_runbooks", ROOT / "tools" / "fleet_runbooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ignored(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a node whose strings are never reasons: enums, annotations, comparisons, manifests."""
    match node:
        case ast.ClassDef():
            members = [each for each in node.body if isinstance(each, ast.Assign)]
            return [*members, *node.keywords]
        case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.Compare():
            return [node]
        case ast.Call(func=ast.Name(id="TypeVar")):
            return [node]
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            annotations = [each.annotation for each in node.args.args]
            return [each for each in (node.returns, *annotations) if each is not None]
        case ast.Dict():
            named = zip(node.keys, node.values, strict=True)
            return [
                value
                for key, value in named
                if isinstance(key, ast.Constant) and key.value in ("kind", "strategy")
            ]
    return []


def words_of(file: Path) -> Iterator[str]:
    """Yield every string of a module that looks like a reason."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    parts = itertools.chain.from_iterable(ignored(node) for node in ast.walk(tree))
    skipped = {id(each) for part in parts for each in ast.walk(part)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in skipped
            and WORD.fullmatch(node.value)
        ):
            yield node.value


def probe_reasons() -> set[str]:
    """Return the words of probes, which are put together: those that the probers can meet."""
    met = {
        CheckKind.WEBHOOKS: {ProbeOutcome.MISSING, ProbeOutcome.NO_ENDPOINTS},
        CheckKind.CONVERSION: {ProbeOutcome.CHANGED},
    }
    both = {ProbeOutcome.ANSWERED, ProbeOutcome.FAILED, ProbeOutcome.BLOCKED}
    texts = ("x509: expired", "context deadline exceeded", "refused")
    reasons = set()
    for kind, outcomes in met.items():
        for outcome, text in itertools.product(outcomes | both, texts):
            probe = ProbeFacts(kind, "probe", outcome, text, seconds=5.0)
            check = judge_probes(kind, [probe], HealthLimits(), settled=True)
            assert check is not None
            assert check.evidence is not Evidence.HEALTHY
            reasons.add(check.reason)
    return reasons


def reasons_in_source() -> set[str]:
    files = {file for pattern in REPORTING for file in SOURCE.glob(pattern)}
    words = {word for file in files for word in words_of(file)}
    assert words >= NOT_REASONS, f"no longer in the source: {sorted(NOT_REASONS - words)}"
    return (words - NOT_REASONS) | probe_reasons() | PASSED_ON


def sections(tool: ModuleType) -> dict[str, str]:
    listed = [tool.sections(page) for page in tool.pages() if page.name != ALERTS]
    joined = {word: body for each in listed for word, body in each.items()}
    assert len(joined) == sum(map(len, listed)), "a reason has two sections"
    return joined


def test_every_reason_has_a_section(tool: ModuleType) -> None:
    reasons = reasons_in_source()
    assert len(reasons) > 70
    assert sorted(reasons - sections(tool).keys()) == []


def test_no_section_explains_what_nothing_reports(tool: ModuleType) -> None:
    assert sorted(sections(tool).keys() - reasons_in_source()) == []


def test_every_section_says_what_it_means_what_to_look_at_what_to_do_and_who_to_call(
    tool: ModuleType,
) -> None:
    for page in tool.pages():
        for word, body in tool.sections(page).items():
            parts = re.findall(r"^- \*\*(\w+)\*\*: \S", body, re.MULTILINE)
            assert parts == ["Means", "Look", "Do", "Call"], f"{page.name}: {word} has {parts}"


def test_the_index_is_what_the_pages_say(tool: ModuleType) -> None:
    written = (PAGES / "README.md").read_text(encoding="utf-8")
    assert written == tool.render(), f"docs/fleet/runbooks/README.md is out of date: run `{tool.COMMAND}`"


def test_every_problem_in_the_table_of_plans_is_one_that_a_plan_can_have(tool: ModuleType) -> None:
    page = (ROOT / "docs" / "fleet" / "rollouts.md").read_text(encoding="utf-8")
    table = page.partition("| problem | meaning |")[2].partition("\n\n")[0]
    listed = set(re.findall(r"`([A-Z]\w+)`", " ".join(row.split("|")[1] for row in table.splitlines()[2:])))
    assert listed == tool.sections(PAGES / "plans.md").keys()


# -- commands on the pages ------------------------------------------------------------------------------------

COMMAND = re.compile(r"\bkapsa fleet ([^`\n|;&>()#]*)")


def commands_on(page: Path) -> list[list[str]]:
    """Return the words of each `kapsa fleet` command on a page."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    return [match[1].split() for match in COMMAND.finditer(text)]


PROGRAM = typer.main.get_command(fleet)


def problem_of(words: list[str]) -> str:
    """Return the first word of a command that the program does not accept, empty if there is none."""
    command = PROGRAM
    while isinstance(command, typer.core.TyperGroup):
        if not words or not re.fullmatch(r"[a-z-]+", words[0]):
            return ""
        name, *words = words
        if name not in command.commands:
            return name
        command = command.commands[name]
    options = {option for parameter in command.params for option in parameter.opts}
    return next((word for word in words if re.match(r"-[-a-z]", word) and word not in options), "")


FLEET_PAGES = sorted((ROOT / "docs" / "fleet").rglob("*.md"))


@pytest.mark.parametrize("page", FLEET_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_on_a_page_exists_with_its_options(page: Path) -> None:
    wrong = [" ".join(words) for words in commands_on(page) if problem_of(words)]
    assert wrong == []


def test_a_command_that_does_not_exist_is_noticed() -> None:
    assert problem_of(["clusters", "adopt", "CLUSTER", "OPERATOR", "--dry-run"]) == ""
    assert problem_of(["clusters", "adopted", "CLUSTER"]) == "adopted"
    assert problem_of(["deployments", "create", "--clusters", "dev"]) == "--clusters"
