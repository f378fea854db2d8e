"""How a run starts: with a search, or with the rows of another card (`generate --like CARD`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hgemm_packs.generator.compile import source_folder
from hgemm_packs.generator.compile.pack_writer import read_source
from hgemm_packs.generator.core.spec import Choice, CompiledKernel, Status, Verdict
from hgemm_packs.generator.run import cards
from hgemm_packs.generator.run.cards import Card
from hgemm_packs.generator.run.finals import Judge, Sanitize
from hgemm_packs.generator.run.followers import Followers
from hgemm_packs.generator.run.generate import Budget
from hgemm_packs.generator.search import Strategy, transfer
from hgemm_packs.generator.search.like import Like
from hgemm_packs.generator.store import export
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.generator.workers import gpus
from hgemm_packs.problem import Problem

if TYPE_CHECKING:
    from hgemm_packs.generator.gates.sweep import Waiting

#: What a screen must have a row's kernel ahead of torch by, for nothing else to be tried.
ENOUGH = 1.01
#: What it must have a compiled kernel ahead of those that packs have, for it to be worth its gates.
AHEAD = 1.1
#: Kernels of a problem in the finals, and of those that read ahead in the confirmation.
FINALISTS, DEPENDENT = 1, 1


class Start(NamedTuple):
    """How a run searches: a strategy, what it may cost, what is tried for dependent launch, and
    what is compiled ahead of all questions, for no device need be known for it."""

    strategy: Strategy
    budget: Budget
    followers: Followers
    ahead: Sequence[Choice] = ()


def find_card(name: str, say: Callable[[str], object]) -> Card:
    """The card of that name, with a word about what is known of it. Raises UnknownCard."""
    try:
        card = cards.find_card(name)
    except cards.UnknownCard as error:
        raise cards.UnknownCard(f"--like {name}: {error}") from None
    for words in card.refused:
        say(f"left out: {words}")
    there = f"{len(card.kernels)} kernels in packs here" if card.kernels else "no pack here has any"
    say(f"like {card.profile}: {len(card.rows)} rows, {there}")
    return card


def check_card(name: str) -> None:
    """Raise UnknownCard where `find_card` does, soon for a card of a committed table."""
    if not cards.is_committed(name):
        find_card(name, lambda words: None)


def begin(
    card: Card | None,
    search: Strategy | None,
    budget: Budget,
    behind: transfer.Known,
    problems: Iterable[Problem] = (),
) -> Start:
    """The start of a run: `search` and what earlier runs know of kernels `behind` one another, or a
    card's rows, behind which `search`, if there is one, goes on where none is ahead of torch. What
    is tried first of `problems` and is in no pack is compiled ahead."""
    if card is None:
        assert search is not None
        return Start(search, budget, partial(transfer.move_choices, behind))
    like = Like(card.rows, search)
    few = replace(
        budget,
        patience=1,
        enough=ENOUGH,
        race_width=FINALISTS,
        finalists=FINALISTS,
        dependent=0,
        dependent_confirmed=DEPENDENT,
        ahead=AHEAD,
    )
    first = dict.fromkeys(choice for each in problems for choice in like.first_choices(each))
    missing = [choice for choice in first if choice not in card.kernels]
    return Start(like, few, like.dependent_choices, missing)


def read_earlier(places: Sequence[Path]) -> tuple[transfer.Known, transfer.Known]:
    """What won in these run folders, exports and source manifests, and what read ahead there."""
    tables = [place for place in places if source_folder.is_source(place)]
    named = [transfer.rows(read_source(place))[1] for place in tables]
    found = [export.load(place) for place in places if place not in tables]
    return (
        transfer.unite_choices([transfer.winners(found), *named]),
        transfer.unite_choices([transfer.list_dependent_choices(found), *named]),
    )


@contextlib.contextmanager
def sanitizing(
    count: int, run: Callable[..., Iterable[Mapping[str, Verdict]]], known: Sequence[Path] = ()
) -> Iterator[Sanitize]:
    """The sanitizer gate on `count` GPUs here, by `run`, for kernels that no line of `generate
    sanitize` in files `known` has clean. What it started ahead and nothing needed is ended
    afterwards. Raises OSError where a file cannot be read, when a verdict is asked for."""
    with ThreadPoolExecutor(1, "sanitizer") as thread:
        loaded = thread.submit(_load_gate, known)

        def prepare() -> None:
            from hgemm_packs.generator.gates import sanitizer, sweep

            # `run` says why where they cannot work.
            with contextlib.suppress(sanitizer.SanitizerUnavailable):
                loaded.result()[1].start(sweep.seats(gpus.names()[:count]), sanitizer.OF_TABLES)

        def judge(kernels: Sequence[CompiledKernel]) -> Iterator[Mapping[str, Verdict]]:
            clean, ahead = loaded.result()
            return sanitize_unknown(clean, partial(run, count, ahead=ahead), kernels)

        try:
            yield Sanitize(judge, prepare)
        finally:
            with contextlib.suppress(OSError):  # who asked for a verdict knows it
                loaded.result()[1].close()


def _load_gate(known: Sequence[Path]) -> tuple[set[str], Waiting]:
    """Ids of kernels that are clean on record, and what is started ahead. A thread's: the gate
    imports torch, which takes seconds, and is asked last of all."""
    from hgemm_packs.generator.gates import sanitizer, sweep

    return sanitizer.clean(read_records(known)) if known else set(), sweep.Waiting()


def sanitize_unknown(
    clean: Collection[str], check: Judge, kernels: Sequence[CompiledKernel]
) -> Iterator[Mapping[str, Verdict]]:
    """Verdicts on kernels: that of the record where one is clean, of `check` for all others."""
    from hgemm_packs.generator.gates import sanitizer

    evidence = dict.fromkeys(sanitizer.OF_TABLES, 0)
    known = Verdict(sanitizer.GATE, Status.OK, "", evidence)
    on_record = {kernel.id: known for kernel in kernels if kernel.id in clean}
    if on_record:
        yield on_record
    left = [kernel for kernel in kernels if kernel.id not in on_record]
    checked: Iterable[Mapping[str, Verdict]] = check(left) if left else ()
    yield from checked
