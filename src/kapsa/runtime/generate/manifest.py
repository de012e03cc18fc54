"""Manifests as YAML that is the same every time and reads well in a review."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

__all__ = ["to_yaml"]


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Anchors would save space and cost the reader."""
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent lists below their key."""
        super().increase_indent(flow, False)


# Kubernetes' YAML parser reads these as booleans and numbers where PyYAML reads, and therefore writes, plain text.
_MISREAD = re.compile(r"[yYnN]|[-+]?(\d[\d_]*)?\.?\d*([eE][-+]?\d+)?|[-+]?0[xobXOB][\da-fA-F_]+")


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if _MISREAD.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def to_yaml(manifests: Iterable[Any]) -> str:
    """One YAML stream, keys in the order they were given."""
    documents = [
        yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
        for manifest in manifests
    ]
    return "---\n".join(documents)
