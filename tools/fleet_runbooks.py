"""Writes the index of docs/fleet/runbooks from the sections of its pages; `--check` reports a stale index.

Run: .venv/bin/python tools/fleet_runbooks.py
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "fleet" / "runbooks"
INDEX = PAGES / "README.md"
COMMAND = ".venv/bin/python tools/fleet_runbooks.py"
SECTION = re.compile(
    r"^#{2,3} (?P<word>\w+)\n(?P<body>- \*\*Means\*\*: .*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL
)
MEANS = re.compile(r"- \*\*Means\*\*: (.+)")
ABOUT = """\
When something is wrong, the manager gives a reason, such as `OOMKilled`. Look it up here: each section says what it means, what to look at, what to do, and who to call.

```sh norun="needs a manager with something wrong"
kapsa fleet deployments ls                  # what is paused, rolling back or failed
kapsa fleet deployments describe ID         # the cause, and the reason of each cluster
kapsa fleet operators health OPERATOR       # the reason of each check that is not healthy
kapsa fleet clusters ls                     # clusters that do not answer
```

**Three things that are always safe**: looking around; `kapsa fleet deployments pause ID`, which keeps further clusters from starting; `kapsa fleet clusters freeze CLUSTER --until 2h --reason REASON`, which keeps a cluster as it is. A failing version is rolled back all the same.

**Two things to leave alone**: Helm on a cluster whose deployment is `RollingBack`, and CRDs. Deleting a CRD deletes every resource of its kind.

In the commands, `ID` is a deployment (its first characters are enough), `CLUSTER` a registered cluster, for which your kubeconfig has a context of the same name, and `RELEASE` and `NAMESPACE` are those of `kapsa fleet operators describe OPERATOR`. Problems of the manager itself are on the page for [administrators](../administration.md#when-the-manager-has-a-problem)."""


def sections(page: Path) -> dict[str, str]:
    """Return the body of each section of a page that explains a word."""
    text = page.read_text(encoding="utf-8")
    return {match["word"]: match["body"] for match in SECTION.finditer(text)}


def pages() -> list[Path]:
    """Return the pages with sections, in the order of their names."""
    return [page for page in sorted(PAGES.glob("*.md")) if page != INDEX]


def render() -> str:
    """Return the index."""
    rows = sorted(
        (word.lower(), f"| [`{word}`]({page.name}#{word.lower()}) | {meaning(body)} |")
        for page in pages()
        for word, body in sections(page).items()
    )
    made = f"<!-- Made by `{COMMAND}`: change the sections of the pages, or the tool. -->"
    table = "\n".join(["| reason | means |", "|---|---|", *(row for _, row in rows)])
    listed = "\n".join(f"- [{title(page)}]({page.name})" for page in pages())
    return "\n\n".join([made, "# Runbooks", ABOUT, listed, "## All reasons", table]) + "\n"


def title(page: Path) -> str:
    """Return the title of a page, without the word that all of them begin with."""
    first = page.read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("# Runbook: ")


def meaning(body: str) -> str:
    """Return the first sentence of what a word means."""
    match = MEANS.search(body)
    assert match is not None
    return re.split(r"(?<=[a-z`)])\. ", match[1])[0].rstrip(".")


def main() -> None:
    """Write the index, or check it."""
    text = render()
    if "--check" not in sys.argv:
        INDEX.write_text(text, encoding="utf-8")
    elif INDEX.read_text(encoding="utf-8") != text:
        sys.exit(f"{INDEX.relative_to(ROOT)} is out of date: run {COMMAND}")


if __name__ == "__main__":
    main()
