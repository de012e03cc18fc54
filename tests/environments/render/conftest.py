"""A checkout that a test writes its files into, and a renderer with the real tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kapsa.environments.checkout import Checkout
from kapsa.environments.render import Renderer

Writes = Callable[[Mapping[str, str]], Checkout]


@pytest.fixture
def checkout(tmp_path: Path) -> Writes:
    """Makes a checkout of these files."""
    root = (tmp_path / "checkout").resolve()
    root.mkdir()

    def write(files: Mapping[str, str]) -> Checkout:
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return Checkout("0123456789abcdef0123456789abcdef01234567", root)

    return write


@pytest.fixture
def renderer() -> Renderer:
    return Renderer(timeout=30)
