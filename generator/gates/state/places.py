"""Operands at every address that a record admits, and at both ends of a mapping, where a byte more
is a fault.

Called by `gate`. A launch lays one operand out anew, so that a verdict names it; all the rest is as
in a launch that float64 has checked, and C must come to the same bits. `Mapping` is memory with
nothing before and behind it: on a GPU that of `mapped`, elsewhere a stand-in's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import torch

from hgemm_packs.generator.gates.checker import Checker
from hgemm_packs.generator.gates.state.scenes import Scene, StateError, middle, of_product, small
from hgemm_packs.measure.kernel_arm import KernelArm
from hgemm_packs.pack.manifest import KernelEntry

LINE = 256  # bytes; an address at a multiple of them is as good as any
FARTHEST = 128  # bytes off LINE
SIDES = ("start", "end")

Operands = dict[str, torch.Tensor]


class Mapped(Protocol):
    """Where operands may lie at the end of all memory."""

    def words(self, count: int) -> torch.Tensor:
        """Memory of at least `count` elements of int16 that begins and ends a mapping: the bytes
        before and behind it are nobody's. The same each time, as a launch left it."""
        ...

    def workspace(
        self, arm: KernelArm, sizes: tuple[int, int], side: str
    ) -> Callable[..., None] | None:
        """The arm with its workspace, for products of M and N, at a side of such memory; None where
        it needs none."""
        ...

    def wait(self) -> None:
        """Wait for all launches. Raises RuntimeError where one has touched what is nobody's."""
        ...


def offsets(align: int) -> list[int]:
    """Bytes off LINE, each the least power of two that divides an address."""
    found = []
    while align <= FARTHEST:
        found.append(align)
        align *= 2
    return found


def _stored(view: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """An operand by rows of memory, and whether these are its columns."""
    turned = view.dim() == 2 and view.stride(0) == 1 and view.stride(1) != 1
    return (view.t(), True) if turned else (view, False)


def lay(view: torch.Tensor, words: torch.Tensor, at: int, lead: int) -> torch.Tensor:
    """`view` laid out in `words` (int16) from element `at` on, with `lead` elements from one row
    of memory to the next; values are copied, all else in `words` becomes NaN."""
    rows, turned = _stored(view)
    memory = words.view(view.dtype)
    memory.fill_(math.nan)
    placed = memory.as_strided(rows.shape, (lead, 1)[: rows.dim()], memory.storage_offset() + at)
    placed.copy_(rows)
    return placed.t() if turned else placed


def _extent(view: torch.Tensor, lead: int) -> int:
    """Elements from the first of an operand to behind its last."""
    rows, _ = _stored(view)
    return rows.shape[-1] if rows.dim() == 1 else (rows.shape[0] - 1) * lead + rows.shape[1]


def _lead(view: torch.Tensor, align: int) -> int:
    """A leading stride at a multiple of `align` bytes and of no more, above the least."""
    rows, _ = _stored(view)
    step = align // 2
    lead = -(-rows.shape[-1] // step) * step + step
    return lead if lead // step % 2 else lead + step


def _operands(scene: Scene) -> Operands:
    found = {"A": scene.a, "B": scene.b, "C": scene.c}
    addend = scene.checker.addend(*scene.c.shape)
    return found if addend is None else {**found, "the addend": addend}


def _align(entry: KernelEntry, name: str) -> int:
    return dict(zip("ABC", entry.align, strict=True)).get(name, 16)


def _launch(
    launch: Callable[..., None], operands: Mapping[str, torch.Tensor], right: torch.Tensor
) -> torch.Tensor:
    """Launch on these operands into C full of NaN; elements of C that are not right."""
    c = operands["C"]
    c.fill_(math.nan)
    launch(*operands.values())
    return (c.view(torch.int16) != right.view(torch.int16)).sum()


def check_bases(run: Checker) -> None:
    """A, B and C in turn at each multiple of bytes that the record admits, leading strides at no
    more than it asks for. Raises StateError."""
    scene = of_product(run, *middle(run.entry))
    scene.begin("before other addresses")
    operands, found = _operands(scene), []
    for name in ("A", "B", "C"):
        view, align = operands[name], _align(run.entry, name)
        lead = _lead(view, align)
        count = _extent(view, lead) + LINE
        memory = torch.empty(count, dtype=torch.int16, device=view.device)
        for off in offsets(align):
            at = (off - memory.data_ptr()) % LINE // 2
            placed = {**operands, name: lay(view, memory, at, lead)}
            wrong = _launch(run.launch, placed, scene.c_right)
            # What lies round C is NaN and stays so; what a kernel made is finite.
            inside = _extent(view, lead)
            wrong = wrong + (_untouched(memory, at, inside, view.dtype) if name == "C" else 0)
            found.append((f"{name} at a multiple of {off} bytes", wrong))
    _raise_for(found)


def _untouched(words: torch.Tensor, at: int, inside: int, dtype: torch.dtype) -> torch.Tensor:
    """Elements before and behind a C that are no longer NaN."""
    memory = words.view(dtype)
    return (~memory[:at].isnan()).sum() + (~memory[at + inside :].isnan()).sum()


def _raise_for(found: list[tuple[str, torch.Tensor]]) -> None:
    counts = torch.stack([count for _, count in found]).tolist()
    for (name, _), count in zip(found, counts, strict=True):
        if count:
            raise StateError(f"{name}: {count} elements differ from the first result")


def check_edges(run: Checker, memory: Mapped) -> None:
    """A, B, C, the addend and the workspace in turn at the start and at the end of a mapping.

    Raises StateError with the operand and the side, after a fault as well: the device's context is
    lost then.
    """
    for sizes in (small, middle):
        scene = of_product(run, *sizes(run.entry))
        scene.begin("before the ends of mappings")
        m, n = scene.c.shape
        problem = f"{m}x{n}x{scene.a.shape[-1]}"
        for name, side, launch, operands in _edges(run, scene, memory):
            told = f"{name} at the {side} of a mapping, {problem}"
            try:
                wrong = int(_launch(launch, operands, scene.c_right))
                memory.wait()
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                raise StateError(f"{told}: {str(error).splitlines()[0]}") from error
            if wrong:
                raise StateError(f"{told}: {wrong} elements differ from the first result")


def _edges(
    run: Checker, scene: Scene, memory: Mapped
) -> Iterator[tuple[str, str, Callable[..., None], Operands]]:
    """(operand, side, what launches, operands) of each launch."""
    operands = _operands(scene)
    for name, view in operands.items():
        align = _align(run.entry, name)
        lead = 1 if view.dim() == 1 else _lead(view, align)
        if name == "the addend" and view.dim() == 2:
            lead = view.shape[1]  # a residual is packed
        extent = _extent(view, lead)
        words = memory.words(extent)
        for side in SIDES:
            behind = (words.numel() - extent) // (align // 2) * (align // 2)
            placed = lay(view, words, 0 if side == "start" else behind, lead)
            yield name, side, run.launch, {**operands, name: placed}
    if isinstance(run.launch, KernelArm):
        for side in SIDES:
            sizes = scene.a.shape[0], scene.b.shape[1]
            launch = memory.workspace(run.launch, sizes, side)
            if launch is not None:
                yield "the workspace", side, launch, operands
