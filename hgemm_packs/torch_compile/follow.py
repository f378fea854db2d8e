"""Waits for torch._dynamo, which most programs never import and which takes a second to import."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from ..settings import LOGGER

DYNAMO = "torch._dynamo"


def follow_dynamo() -> None:
    """Register the operators now if torch._dynamo is there, else when it has been imported."""
    if DYNAMO in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _Finder())


def _register() -> None:
    """A torch that is older than ours, or knows operators of this name already, compiles all the
    same: its graphs break at our calls."""
    try:
        importlib.import_module(f"{__package__}.operators").register()
    except (ImportError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        LOGGER.warning("torch.compile breaks its graphs at calls of hgemm_packs: %s", error)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds torch._dynamo as the others do, and is told when the module has run."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != DYNAMO:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:  # what asks the module for its loader gets torch's
            module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _register()
