"""The README's example and the operators in examples/ pass pyright's default mode, which editors use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.snippets import snippets

ROOT = Path(__file__).resolve().parents[2]
WRONG = """
from kapsa.runtime import Context, Controller, CustomResource, Spec, Status

class Thing(CustomResource[Spec, Status], group="example.com", version="v1"):
    pass

class ThingController(Controller[Thing]):
    async def reconcile(self, thing: Thing, ctx: Context[Thing]) -> None:
        ctx.status.misspelled = 1
"""


def errors_in(*paths: Path, directory: Path) -> list[str]:
    """Return the file and the message of each error."""
    configuration = {
        "include": [str(path) for path in paths],
        "extraPaths": [str(ROOT / "src")],
        "typeCheckingMode": "standard",  # basedpyright's own default is stricter
    }
    (directory / "pyrightconfig.json").write_text(json.dumps(configuration))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "basedpyright", "--outputjson"),
            *("--project", str(directory), "--pythonpath", sys.executable),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stderr
    result = json.loads(done.stdout)
    assert result["summary"]["filesAnalyzed"] >= len(paths)
    errors = [each for each in result["generalDiagnostics"] if each["severity"] == "error"]
    return [f"{Path(each['file']).name}: {each['message']}" for each in errors]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_pyright_accepts_the_readme_and_the_examples_and_reports_a_misspelled_field(tmp_path: Path) -> None:
    blocks = [each.body for each in snippets(ROOT / "README.md") if each.language == "python"]
    assert blocks
    (tmp_path / "readme.py").write_text("\n\n".join(blocks))
    (tmp_path / "wrong.py").write_text(WRONG)
    examples = sorted((ROOT / "examples").glob("*/*.py"))
    assert examples
    errors = errors_in(tmp_path / "readme.py", tmp_path / "wrong.py", *examples, directory=tmp_path)
    assert [each for each in errors if not each.startswith("wrong.py")] == []
    assert any('Cannot assign to attribute "misspelled"' in each for each in errors)
