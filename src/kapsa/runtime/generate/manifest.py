"""Manifests as YAML that is the same every time and reads well in a review."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml

__all__ = ["to_yaml"]

# Kubernetes' YAML parser reads these as booleans and numbers. PyYAML reads them as text, and so writes them
# unquoted.
_MISREAD = re.compile(r"[yYnN]|[-+]?(\d[\d_]*)?\.?\d*([eE][-+]?\d+)?|[-+]?0[xobXOB][\da-fA-F_]+")


def to_yaml(manifests: Iterable[Any]) -> str:
    """Return manifests as one YAML stream, with keys in the order given."""
    import yaml

    documents = [
        yaml.dump(manifest, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=110)
        for manifest in manifests
    ]
    return "---\n".join(documents)


@functools.cache
def _dumper() -> type[yaml.SafeDumper]:
    """Return the dumper class.

    It is defined late: a running operator never writes YAML and need not load PyYAML.
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True  # anchors would save space at the reader's expense

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)  # indent lists below their key

    def represent_text(dumper: Dumper, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else "'" if _MISREAD.fullmatch(text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent_text)
    return Dumper
