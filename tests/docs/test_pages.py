"""Every example in the README and in docs/ runs as printed, and every link has a target."""

from __future__ import annotations

import ast
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from kapsa.adapters.process.tools import find_tool
from tests.docs.page_run import PageRun
from tests.docs.snippets import FENCE, PageError, snippets

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
MANAGER_PAGES = [
    DOCS / "fleet" / name for name in ("first-rollout.md", "api.md", "administration.md", "installation.md")
]
"""They run a manager with a database, and the real helm, which the other pages do not."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def page_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory in which the page's files can be imported and the `kapsa` command is found.

    The cache directory is its own, too: a devcluster that a page leaves running is found there and stopped.
    """
    directory, cache = tmp_path / "page", tmp_path / "cache"
    directory.mkdir()
    monkeypatch.chdir(directory)
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(directory))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KAPSA_SOURCE", str(ROOT))
    loaded, logging = set(sys.modules), structlog.get_config()
    yield directory
    structlog.configure(**logging)
    for name in set(sys.modules) - loaded:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]
    if (cache / "kapsa" / "devclusters").exists():
        subprocess.run(["kapsa", "devcluster", "down", "--all"], check=False, capture_output=True, timeout=60)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("page", [each for each in PAGES if each not in MANAGER_PAGES], ids=name_of)
def test_every_example_of_the_page_runs(page: Path, page_directory: Path) -> None:
    PageRun(page, page_directory).run()


@pytest.fixture
def helm_directory() -> Path:
    """The directory of the machine's helm, looked up before a page has a cache of its own."""
    return find_tool("helm").path.parent


@pytest.fixture
def manager_directory() -> Iterator[Path]:
    """A directory for a manager's database, which `nobody`, who runs it for root, can enter."""
    directory = Path(tempfile.mkdtemp(prefix="kapsa-test-"))
    directory.chmod(0o711)
    yield directory
    deadline = time.monotonic() + 60  # the manager ends with the page, and its database with the manager
    while (directory / "data" / "postgres" / "postmaster.pid").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", MANAGER_PAGES, ids=name_of)
def test_a_page_that_starts_a_manager_runs_as_printed(
    page: Path,
    helm_directory: Path,
    manager_directory: Path,
    page_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setenv("KAPSA_FLEET_LISTEN_PORT", str(free.getsockname()[1]))
    monkeypatch.setenv("KAPSA_FLEET_DATA_DIRECTORY", str(manager_directory / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(manager_directory / "config"))
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}{os.pathsep}{helm_directory}")
    PageRun(page, page_directory, seconds=240).run()


LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")


def links(page: Path) -> list[tuple[str, str]]:
    """Return the path and the anchor of each link to a page of this project."""
    prose = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))
    return LINK.findall(prose)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    seen: dict[str, int] = {}
    names = set()
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = seen[anchor] = seen.get(anchor, -1) + 1
        names.add(f"{anchor}-{number}" if number else anchor)
    return names


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_of_the_page_has_a_target(page: Path) -> None:
    for path, anchor in links(page):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)} links to {path}, which does not exist"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{name_of(page)} links to {path}#{anchor}: no such heading"


def test_the_overview_links_to_every_page() -> None:
    linked = {(DOCS / path).resolve() for path, _ in links(DOCS / "README.md")}
    listed = linked | {DOCS / "README.md", DOCS / "devcluster-conformance.md"}  # the last is written by a run
    missing = [name_of(page) for page in DOCS.rglob("*.md") if page not in listed]
    assert missing == [], "docs/README.md does not link to these"


def messages_of(package: Path) -> list[str]:
    """Return every string in the source, with `...` for the values of a format string."""
    messages = []
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (str(each.value) if isinstance(each, ast.Constant) else "..." for each in node.values)
                messages.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                messages.append(node.value)
    return messages


def test_every_message_in_troubleshooting_exists_in_the_source() -> None:
    page = (DOCS / "concepts" / "troubleshooting.md").read_text(encoding="utf-8")
    printed = "\0".join(messages_of(ROOT / "src" / "kapsa"))
    headings = re.findall(r"^### `(.+)`$", page, re.MULTILINE)
    unknown = []
    for heading in headings:
        pattern = r"[^\0]*".join(re.escape(part) for part in heading.split("..."))
        if not re.search(pattern, printed):
            unknown.append(heading)
    assert len(headings) > 30
    assert unknown == [], "troubleshooting.md explains messages that nothing prints"


# -- the runner: a wrong page must fail -----------------------------------------------------------------------


def page_with(directory: Path, text: str) -> Path:
    page = directory / "page.md"
    page.write_text(text)
    return page


@pytest.mark.parametrize(
    "block",
    [
        "```python\nassert 1 == 2\n```\n",
        "```sh\nfalse\n```\n",
        "```python\nprint('one')\n```\n\n```text output\ntwo\n```\n",
        "```python\nasync def test_something(harness):\n    assert harness is None\n```\n",
    ],
    ids=["python", "shell", "output", "test"],
)
def test_a_page_with_a_wrong_block_fails(block: str, page_directory: Path) -> None:
    with pytest.raises(AssertionError):
        PageRun(page_with(page_directory, block), page_directory).run()


def test_lines_of_the_output_may_be_omitted(page_directory: Path) -> None:
    block = "```python\nprint('one\\ntwo\\nthree')\n```\n\n```text output\none\n...\nthree\n```\n"
    PageRun(page_with(page_directory, block), page_directory).run()


def test_a_process_left_by_a_block_is_stopped_with_the_page(page_directory: Path) -> None:
    block = "```sh\nsleep 100 > /dev/null 2>&1 & echo $! > pid\n```\n"
    PageRun(page_with(page_directory, block), page_directory).run()
    process = int((page_directory / "pid").read_text())
    state = Path(f"/proc/{process}/stat")
    deadline = time.monotonic() + 5
    while state.exists() and time.monotonic() < deadline:
        # A zombie only waits for its new parent to reap it.
        if state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.01)
    assert not state.exists(), "it is still running"


@pytest.mark.parametrize(
    "block",
    ["```bash\nls\n```\n", "```python norn=why\n```\n", "```python norun\n```\n", "```\nplain\n```\n"],
    ids=["another language", "an unknown attribute", "no reason", "no language"],
)
def test_a_block_that_would_be_ignored_silently_is_rejected(block: str, tmp_path: Path) -> None:
    with pytest.raises(PageError, match=r"page\.md:1"):
        list(snippets(page_with(tmp_path, block)))
