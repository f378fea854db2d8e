"""Has every Python below `make sanitize` load the extensions that it built, not those of the tree.

Python imports this at its start, where PYTHONPATH names this folder; nothing else does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

BUILT = Path(__file__).parents[2] / "build" / "sanitized" / "hgemm_packs"


class Sanitized(PathFinder):
    """Finds what was built with the sanitizers."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in ("hgemm_packs._C", "hgemm_packs._cublaslt"):
            return None
        found = super().find_spec(fullname, [str(BUILT)], target)
        assert found is not None, f"{fullname} is not in {BUILT}: run `make sanitize`"
        return found


sys.meta_path.insert(0, Sanitized)
