"""The plugin of helm that emits the approved manifest, whatever the chart renders to now.

A chart may make a certificate at each render. What was approved is one render of it, and that one is applied.
"""

import sys
from pathlib import Path

import msgspec

__all__ = ["INTERPRETER_VARIABLE", "PLUGIN", "interpreter", "write_plugin"]

PLUGIN = "kapsa"
INTERPRETER_VARIABLE = "KAPSA_INTERPRETER"
"""A variable, since helm splits commands at blanks, which a path may have."""
_MANIFEST = "manifest.yaml"
_PROGRAM = """\
import shutil, sys
sys.stdin.buffer.read()
with open(sys.argv[1], "rb") as approved:
    shutil.copyfileobj(approved, sys.stdout.buffer)
"""
_METADATA = {
    "apiVersion": "v1",
    "type": "postrenderer/v1",
    "name": PLUGIN,
    "version": "1.0.0",
    "runtime": "subprocess",
    "config": {},
    "runtimeConfig": {
        "platformCommand": [
            {
                "command": f"${{{INTERPRETER_VARIABLE}}}",
                "args": ["-I", "-S", "${HELM_PLUGIN_DIR}/emit.py", f"${{HELM_PLUGIN_DIR}}/{_MANIFEST}"],
            }
        ]
    },
}


def interpreter() -> str:
    """Return the program that runs the plugin: the one that runs this process."""
    return sys.executable


def write_plugin(directory: Path, manifest: bytes) -> None:
    """Write the plugin that emits a manifest below a directory of plugins."""
    plugin = directory / PLUGIN
    plugin.mkdir()
    (plugin / "plugin.yaml").write_bytes(msgspec.json.encode(_METADATA))
    (plugin / "emit.py").write_text(_PROGRAM)
    (plugin / _MANIFEST).write_bytes(manifest)
