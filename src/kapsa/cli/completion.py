"""`kapsa completion`: print the script that completes commands, options and names in a shell."""

from __future__ import annotations

import enum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]

__all__ = ["command"]


class Shell(enum.StrEnum):
    """A shell that completions exist for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def command(shell: Annotated[Shell, typer.Argument(help="The shell to complete in.")]) -> None:
    """Print the completion script of a shell.

    bash: `source <(kapsa completion bash)` in ~/.bashrc. zsh: `source <(kapsa completion zsh)` in ~/.zshrc, after
    compinit. fish: `kapsa completion fish | source` in ~/.config/fish/config.fish.
    """
    typer.echo(get_completion_script(prog_name="kapsa", complete_var="_KAPSA_COMPLETE", shell=shell.value))
