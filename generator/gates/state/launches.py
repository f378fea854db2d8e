"""Launches of one and the same product that must all come to the same bits: in a row, in turn with
other kernels, over whatever those left in shared memory and registers, on a busy GPU, in graphs
and out.

Called by `gate`. What goes on around the kernel is a `Surroundings`: on a GPU that of `neighbours`,
elsewhere a stand-in's. Results are counted on the device and read once a check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch

from hgemm_packs.generator.gates.repeats import capture_work
from hgemm_packs.generator.gates.state.scenes import Scene, StateError

IN_A_ROW = 16640  # launches; a counter of 16384 is found
IN_A_GRAPH = 256
TURNS = 32  # with other kernels, for each way of launching
WHILE_BUSY = 96
#: What shared memory and registers are filled with, by the word; None is random bits. NaN in fp16,
#: bf16 and fp32; all ones, as an absent word of a workspace is; nothing; 1.0 in fp16.
PATTERNS: tuple[int | None, ...] = (0x7FFF7FFF, None, 0xFFFFFFFF, None, 0, None, 0x3C003C00, None)


class Surroundings(Protocol):
    """What else a device does. Each call queues work on the current stream."""

    def fill(self, pattern: int | None) -> None:
        """Fill all shared memory and registers of every SM with a word, or with random bits."""
        ...

    def other(self) -> None:
        """Run another kernel, an honest one."""
        ...

    def busy(self) -> AbstractContextManager[None]:
        """Keep the device's memory and SMs at work from another stream, inside."""
        ...


class Quiet:
    """A device that does nothing else."""

    def fill(self, pattern: int | None) -> None:
        del pattern

    def other(self) -> None:
        pass

    def busy(self) -> AbstractContextManager[None]:
        return nullcontext()


class Tally:
    """Counts elements that differ, on the device, by the name of a check."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._counts: dict[str, torch.Tensor] = {}

    def counter(self, name: str) -> torch.Tensor:
        """The count of a check, to be added to in place, in a graph as well."""
        if name not in self._counts:
            self._counts[name] = torch.zeros((), dtype=torch.int64, device=self._device)
        return self._counts[name]

    def settle(self) -> None:
        """Read all counts. Raises StateError for the first check that has one."""
        if not self._counts:
            return
        found = torch.stack(list(self._counts.values())).tolist()
        for name, count in zip(self._counts, found, strict=True):
            if count:
                raise StateError(f"{name}: {count} elements differ from the first result")
        self._counts.clear()


def in_a_row(scene: Scene, tally: Tally, launches: int = IN_A_ROW) -> None:
    """Nothing but the kernel runs between two looks at its result."""
    each = min(IN_A_GRAPH, launches)
    counter = tally.counter(f"{launches} launches in a row")
    scene.prepare()

    def work() -> None:
        for _ in range(each):
            scene.queue()

    replay = capture_work(work, scene.c.device)
    scene.checker.held.append(replay)
    for _ in range(max(1, launches // each)):
        replay()
        counter.add_(scene.differs())


def _turn(scene: Scene, around: Surroundings, counter: torch.Tensor, pattern: int | None) -> None:
    """Two launches and two looks: behind what fills the SMs, and behind another kernel."""
    around.fill(pattern)
    scene.queue()
    counter.add_(scene.differs())
    around.other()
    scene.queue()
    counter.add_(scene.differs())


def in_turn(scene: Scene, around: Surroundings, tally: Tally, turns: int = TURNS) -> None:
    """Behind other kernels, one by one and in graphs."""
    counter = tally.counter("in turn with other kernels")
    for turn in range(turns):
        _turn(scene, around, counter, PATTERNS[turn % len(PATTERNS)])
    counter = tally.counter("in turn with other kernels, in a graph")
    scene.prepare()

    def work() -> None:
        for pattern in PATTERNS:
            _turn(scene, around, counter, pattern)

    replay = capture_work(work, scene.c.device)
    scene.checker.held.append(replay)
    for _ in range(-(-turns // len(PATTERNS))):
        replay()


def while_busy(
    scenes: Sequence[Scene], around: Surroundings, tally: Tally, launches: int = WHILE_BUSY
) -> None:
    """Beside work on another stream, which holds up some warps, CTAs and loads more than others."""
    for scene in scenes:
        scene.prepare()
    with around.busy():
        for scene in scenes:
            m, n = scene.c.shape
            counter = tally.counter(f"on a busy device, C of {m}x{n}")
            for _ in range(launches):
                scene.queue()
                counter.add_(scene.differs())


def from_what_c_held(
    scene: Scene, tally: Tally, contents: Sequence[tuple[str, Callable[[], torch.Tensor]]]
) -> None:
    """Launches into a C that already holds something."""
    for name, make in contents:
        scene.c.copy_(make())
        scene.queue()
        tally.counter(f"C held {name}").add_(scene.differs())
