"""The object that a MODULE or MODULE:NAME argument refers to."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["TargetError", "find", "load_module"]


class TargetError(Exception):
    """An argument that does not refer to anything usable."""

    for_the_user = True


def load_module(name: str) -> ModuleType:
    """Import a module by its dotted name, also from the current directory, or by the path of its .py file."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    if name.endswith(".py"):
        return _load_file(Path(name))
    if not all(part.isidentifier() for part in name.split(".")):
        raise TargetError(f"{name!r} is not a module name: use one such as myapp or shop.operators")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise TargetError(
                f"there is no module {name!r} in this directory or among the installed packages; "
                "run the command in its directory, or give a path such as myapp/myapp.py"
            ) from None
        raise TargetError(f"{name} cannot be imported: {error}") from error
    except Exception as error:
        raise _broken(name, error) from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise TargetError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _broken(str(path), error) from error
    return module


def _broken(name: str, error: Exception) -> TargetError:
    """Return the error for a module whose import fails, with the line that failed."""
    ours = ("importlib", __file__)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(part in frame.filename for part in ours)
    ]
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    what = f"{type(error).__name__}: {error}{where}"
    return TargetError(f"{name} cannot be imported: {what}; KAPSA_DEBUG=1 shows the full traceback")


def find(target: str) -> tuple[ModuleType, Any]:
    """Return the module of MODULE[:NAME], and the object NAME in it, or None without a NAME."""
    module_name, _, attribute = target.partition(":")
    module = load_module(module_name)
    if not attribute:
        return module, None
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise TargetError(f"{module_name} has no {attribute!r}")
        value = getattr(value, part)
    return module, value
