"""Completion in the shells: the script, and what it asks the command for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

START = "import sys; from kapsa.cli import main; sys.argv[0] = 'kapsa'; main()"


def kapsa(*arguments: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", START, *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("bash", "complete -o default -F _kapsa_completion kapsa"),
        ("zsh", "compdef _kapsa_completion kapsa"),
        ("fish", "complete --command kapsa"),
    ],
)
def test_the_script_of_a_shell_completes_kapsa(shell: str, line: str) -> None:
    assert line in kapsa("completion", shell)


def test_bash_gets_the_commands_that_begin_like_the_word() -> None:
    printed = kapsa(_KAPSA_COMPLETE="complete_bash", COMP_WORDS="kapsa dev", COMP_CWORD="1")
    assert printed.split() == ["devcluster"]
