"""Run code of ours right after a module of a client was imported, without touching its files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from ringfence.errors import UnsupportedDevice

Hook = Callable[[ModuleType], None]


def install_hooks(hooks: Mapping[str, Hook]) -> None:
    """Call ``hooks[name](module)`` when module ``name`` was executed, before anybody else can import from it.

    ``RuntimeError`` if one of the modules was imported already: names were taken from it then.
    """
    late = [name for name in hooks if name in sys.modules]
    if late:
        raise RuntimeError(f"too late to install the shim: {', '.join(late)} was imported already")
    sys.meta_path.insert(0, _Finder(hooks))


def require(owner: Any, *names: str) -> None:
    """Check that a module or class of tinygrad has names; :class:`UnsupportedDevice` names those missing."""
    missing = [name for name in names if not hasattr(owner, name)]
    if missing:
        raise UnsupportedDevice(
            f"this tinygrad cannot be put on a virtual device: {owner.__name__} has no {', '.join(missing)}; "
            "the version that is known to work is 0.14.0"
        )


class _Finder(MetaPathFinder):
    """Finds the hooked modules where they are, and makes their loader call the hook."""

    def __init__(self, hooks: Mapping[str, Hook]) -> None:
        self._hooks = hooks

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        hook = self._hooks.get(fullname)
        if hook is None:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def run(module: ModuleType) -> None:
                execute(module)
                hook(module)

            # On the instance, so that everything else of the loader (sources for tracebacks) stays.
            setattr(spec.loader, "exec_module", run)  # noqa: B010
        return spec
