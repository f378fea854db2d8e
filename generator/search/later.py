"""A strategy that is made while something else goes on: some import packages for seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Outcome, Proposal
from hgemm_packs.generator.search.base import Strategy


class Later:
    """The strategy that `make` returns, made by a thread. Who asks or tells waits for it, and gets
    what `make` raised. `name`: the strategy's."""

    def __init__(self, name: str, make: Callable[[], Strategy]) -> None:
        self.name = name
        thread = ThreadPoolExecutor(1, "strategy")
        self._made = thread.submit(make)
        thread.shutdown(wait=False)

    def ask(self, space: Space, n: int) -> list[Proposal]:
        return self._made.result().ask(space, n)

    def tell(self, space: Space, outcomes: Sequence[Outcome]) -> None:
        self._made.result().tell(space, outcomes)
