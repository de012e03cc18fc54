"""A checkout that a test writes its files into, and a renderer with the real tools."""

from __future__ import annotations

import pytest

from kapsa.environments.render.renderer import Renderer
from tests.adapters.checkouts import checkout

__all__ = ["checkout"]


@pytest.fixture
def renderer() -> Renderer:
    return Renderer(timeout=30)
