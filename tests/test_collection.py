"""Collection: a folder whose name pytest skips by default has tests that never run, and nothing reports it."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent


def test_every_file_with_tests_is_in_a_folder_that_pytest_enters(pytestconfig: pytest.Config) -> None:
    skipped = pytestconfig.getini("norecursedirs")
    left_out = [
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("test_*.py")
        if any(fnmatch(part, pattern) for part in path.relative_to(TESTS).parent.parts for pattern in skipped)
    ]
    assert left_out == [], f"pytest does not enter the folders of these files: norecursedirs is {skipped}"
