"""Searches: strategies behind one ask/tell interface. `STRATEGIES` names them."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from hgemm_packs.generator.search.base import Strategy

Factory = Callable[[int], Strategy]


def _lazy(module: str) -> Factory:
    """The module's `make`, imported when first called: rivals need packages that ours do not."""

    def make(seed: int) -> Strategy:
        found: Strategy = importlib.import_module(f"{__name__}.{module}").make(seed)
        return found

    return make


#: name -> factory(seed). Those of optuna and cma raise ModuleNotFoundError without the extra.
STRATEGIES: dict[str, Factory] = {
    "portfolio": _lazy("portfolio"),
    "prior": _lazy("prior"),
    "policy": _lazy("policy"),
    "islands": _lazy("islands"),
    "cost": _lazy("cost"),
    "exhaustive": _lazy("rivals.exhaustive"),
    "random": _lazy("rivals.random_search"),
    "tpe": _lazy("rivals.tpe"),
    "cma": _lazy("rivals.cma"),
}
DEFAULT = "portfolio"

__all__ = ["DEFAULT", "STRATEGIES", "Factory", "Strategy"]
