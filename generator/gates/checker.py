"""One launch against float64: operands in padded storage, C between guards, the rounding model.

The numeric gate is written in terms of a `Checker`. Runs on any device; comparisons are queued on
it and read together, so that a check costs launches and no round trips.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable

import torch

from hgemm_packs.generator.families.computed import GATED
from hgemm_packs.generator.gates.comparisons import (
    CHANGED,
    DIFFER,
    DIRTY,
    TOUCHED,
    WRONG,
    Queued,
)
from hgemm_packs.generator.gates.comparisons import Numeric as Numeric
from hgemm_packs.generator.gates.comparisons import NumericError as NumericError
from hgemm_packs.generator.gates.rounding import HELD, Accepted, finish_exactly, most_error
from hgemm_packs.measure.kernel_arm import KernelArm
from hgemm_packs.measure.operands import DTYPES
from hgemm_packs.pack.manifest import DimRange, KernelEntry
from hgemm_packs.problem import WITHOUT_ADDEND, columns_of

GUARD = 16  # rows before and after C, columns behind it
MOST_COLUMNS = 1 << 18  # of any problem of the gate but those that fill a card
GUARD_BITS = 0x7FDA  # a NaN in fp16 and in bf16 that no kernel produces

#: Of (a, b, c), and of the addend where the kernel adds one.
Launch = Callable[..., None]
Place = tuple[torch.Tensor, torch.Tensor]  # bits of a whole buffer, C inside it


def sizes(rule: DimRange, values: Iterable[int]) -> list[int]:
    """`values` rounded up to what the kernel admits, rising and without repeats."""
    step = rule.multiple_of
    low, high = -(-rule.min // step) * step, rule.max // step * step
    return sorted({min(max(low, -(-v // step) * step), high) for v in values})


def size(rule: DimRange, value: int) -> int:
    """`value` rounded up to what the kernel admits."""
    return sizes(rule, [value])[0]


def _apart(align: int) -> int:
    """Elements that an address is off 16 bytes, and a stride off a multiple of 8, for both to be at
    multiples of `align` bytes and of no more."""
    return align // 2 % 8


def operand(
    values: torch.Tensor, transposed: bool, align: int = 16, further: int = 8, lead: int = 0
) -> torch.Tensor:
    """`values` [rows, columns] stored with a leading stride of at least `further` above the
    minimum, at a multiple of `align` bytes, as the stride is, and of no more, or with a stride of
    `lead`; NaN in the padding."""
    rows, columns = values.shape
    outer, inner = (columns, rows) if transposed else (rows, columns)
    shift = _apart(align)
    lead = lead or -(-inner // 8) * 8 + further + shift
    size = shift + outer * lead
    buffer = torch.full((size,), float("nan"), dtype=values.dtype, device=values.device)
    stored = buffer[shift:].view(outer, lead)
    view = stored.t()[:rows] if transposed else stored[:, :columns]
    return view.copy_(values)


def make_guarded_place(
    m: int, n: int, dtype: torch.dtype, device: torch.device, align: int = 16, lead: int = 0
) -> Place:
    """A NaN-filled C [m, n] between guards; address and stride as of an operand."""
    shift = _apart(align)
    rows, lead = m + 2 * GUARD, lead or -(-n // 8) * 8 + GUARD + shift
    memory = torch.full((shift + rows * lead,), GUARD_BITS, dtype=torch.int16, device=device)
    bits = memory[shift:].view(rows, lead)
    return bits, bits.view(dtype)[GUARD : GUARD + m, :n]


def storage_bits(view: torch.Tensor) -> torch.Tensor:
    """All that `view` is a part of, padding included, as int16."""
    return torch.empty(0, dtype=torch.int16, device=view.device).set_(view.untyped_storage())


def fit_shape(entry: KernelEntry, m: int, n: int, max_ctas: int | None) -> tuple[int, int]:
    """M and N with fewer tiles where CTAs wait for each other and only `max_ctas` run at once."""
    if not entry.cooperative or max_ctas is None:
        return m, n
    most = max(1, max_ctas // (math.prod(entry.cluster) * entry.grid.slices))
    rows, columns = -(-m // entry.grid.tile_m), -(-n // entry.grid.tile_n)
    while rows * columns > most:
        if rows >= columns:
            rows, m = rows - 1, m - entry.grid.tile_m
        else:
            columns, n = columns - 1, n - entry.grid.tile_n
    return m, n


class Checker:
    """Runs the checks of one kernel; `launch(a, b, c)` queues it on the current stream. `max_ctas`
    is how many of its CTAs run at a time, where a driver has said so."""

    def __init__(
        self,
        entry: KernelEntry,
        launch: Launch,
        device: torch.device,
        seed: int,
        max_ctas: int | None = None,
    ) -> None:
        self.entry, self.launch, self.device = entry, launch, device
        self.max_ctas = max_ctas
        self.arms = [launch] if isinstance(launch, KernelArm) else []
        self.dtype = DTYPES[entry.dtype]
        self.generator = torch.Generator(device).manual_seed(seed)
        self.result = Numeric()
        self.inputs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._addends = self.normal(1, MOST_COLUMNS if self.adds else 0)[0]
        self.held: list[object] = []  # what queued work still needs
        self._last: tuple[torch.Tensor, torch.Tensor, Accepted] | None = None

    def normal(self, rows: int, columns: int, mean: float = 0.0) -> torch.Tensor:
        shape = (rows, columns)
        values = torch.randn(shape, generator=self.generator, device=self.device)
        return (values + mean).to(self.dtype)

    def shape(self, m: int, n: int) -> tuple[int, int]:
        """M and N that the kernel admits, from `m` and `n` on; fewer tiles where it must."""
        e = self.entry
        return fit_shape(e, size(e.m, m), size(e.n, n), self.max_ctas)

    def store(
        self, a: torch.Tensor, b: torch.Tensor, align: tuple[int, int] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Both as the kernel's layout stores them, with strides that differ where both have rows of
        K, at multiples of `align` bytes, by default those of the record; the next launches must not
        change them."""
        layout = self.entry.layout
        of_a, of_b = align or self.entry.align[:2]
        stored = operand(a, layout[0] == "t", of_a), operand(b, layout[1] == "t", of_b, 16)
        self.keep(*stored)
        return stored

    def keep(self, *stored: torch.Tensor) -> None:
        """Remember operands as they are now."""
        bits = map(storage_bits, (*stored, *([self._addends] if self.adds else ())))
        self.inputs = [(each, each.clone()) for each in bits]

    @property
    def adds(self) -> bool:
        """Whether the kernel takes an addend."""
        return self.entry.epilogue not in WITHOUT_ADDEND

    @property
    def by_elements(self) -> bool:
        """Whether a part of C is what the kernel makes of that part of A and B: a residual is
        packed, and the halves of gated columns are those of all."""
        return self.entry.epilogue not in ("residual", GATED)

    def addend(self, m: int, n: int) -> torch.Tensor | None:
        """What the kernel adds to a product of M x N: a bias [N], or a residual [M, N], the same
        from check to check; None where it adds nothing. Larger ones than before are new."""
        if not self.adds:
            return None
        of_rows = self.entry.epilogue == "residual"
        count = m * n if of_rows else n
        if self._addends.numel() < count:
            self._addends = self.normal(1, count)[0]
        return self._addends[:count].view(m, n) if of_rows else self._addends[:count]

    def rewrite_addend(self) -> None:
        """Other values at the same address."""
        self._addends.copy_(self.normal(1, self._addends.numel())[0])

    def queue(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        """Launch once, with an addend where the kernel takes one."""
        self.queue_by(self.launch, a, b, c)

    def queue_by(self, launch: Launch, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        """The same by another arm of the kernel."""
        addend = self.addend(*c.shape)
        launch(a, b, c, *(() if addend is None else (addend,)))

    def run(
        self,
        name: str,
        a: torch.Tensor,
        b: torch.Tensor,
        exact: torch.Tensor,
        off: torch.Tensor,
        allowed: float = HELD,
        before: torch.Tensor | None = None,
        into: Place | None = None,
    ) -> torch.Tensor:
        """Launch once and queue the comparison; returns C.

        The error as a whole may be `allowed` times that of rounding alone; C must be `before`, if
        given, in every bit. `into` is written as it is, with what an earlier launch left there and
        in the kernel's workspace.
        """
        place = into or self.place(a, b)
        self.queue(a, b, place[1])
        self.judge(name, a, b, place, exact, off, allowed, before)
        return place[1]

    def prepare(self, c: torch.Tensor) -> None:
        """What launches into `c` need of memory, ahead of a capture or of another stream."""
        for arm in self.arms:
            arm.prepare(c)

    def twin(self) -> Launch:
        """The kernel for launches at the same time as `launch`."""
        if not isinstance(self.launch, KernelArm):
            return self.launch
        self.arms.append(self.launch.twin())
        return self.arms[-1]

    def place(self, a: torch.Tensor, b: torch.Tensor) -> Place:
        """A fresh C for a @ b."""
        columns = columns_of(b.shape[1], self.entry.epilogue)
        align = self.entry.align[2]
        return make_guarded_place(a.shape[0], columns, self.dtype, self.device, align)

    def judge(
        self,
        name: str,
        a: torch.Tensor,
        b: torch.Tensor,
        place: Place,
        exact: torch.Tensor,
        off: torch.Tensor,
        allowed: float = HELD,
        before: torch.Tensor | None = None,
    ) -> None:
        """Queue the comparison of a launch that has been queued; see `run`. `exact` and `off` may
        have more rows and columns than C, which the first are of."""
        (_, k), (bits, c) = a.shape, place
        m, n = c.shape
        right = self._accepted(exact, off).part(m, n)
        inside = bits[GUARD : GUARD + m, :n]
        written = inside != GUARD_BITS
        counts = [
            (WRONG, (right.are_right(inside) & written).sum()),
            (TOUCHED, (bits != GUARD_BITS).sum()),
            (TOUCHED, -written.sum()),
            *((CHANGED, (now != then).sum()) for now, then in self.inputs),
        ]
        if before is not None:
            counts.append((DIFFER, (c.view(torch.int16) != before.view(torch.int16)).sum()))
        dirty = (arm.count_dirty() for arm in self.arms)
        counts += [(DIRTY, count) for count in dirty if isinstance(count, torch.Tensor)]
        *norms, normal = right.facts()
        self.result.pending.append(
            Queued(
                f"{name} {a.shape[0]}x{b.shape[1]}x{k}",
                (right.error(c), *norms),
                normal,
                counts,
                {WRONG: m * n},
                functools.partial(most_error, k=k, held=allowed),
            )
        )

    def bound(self, name: str, value: torch.Tensor, limit: float) -> None:
        """Queue that a float64 number is at most `limit`."""
        nothing, one = torch.zeros_like(value), torch.ones_like(value)
        norms, none = (value, nothing, one), nothing.long()
        self.result.pending.append(Queued(name, norms, none, (), {}, lambda ideal, count: limit))

    def _accepted(self, exact: torch.Tensor, off: torch.Tensor) -> Accepted:
        """That of the last comparison where it was with the same reference."""
        if self._last is None or self._last[0] is not exact or self._last[1] is not off:
            self._last = exact, off, Accepted(exact, off, self.dtype)
        return self._last[2]

    def reference(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(what the kernel is to make of a @ b in float64, how far float32 may be from it) of
        stored operands, as `rounding.are_right` takes them."""
        wide_a, wide_b = a.double(), b.double()
        product, magnitude = wide_a @ wide_b, wide_a.abs() @ wide_b.abs()
        addend = self.addend(*product.shape)
        return finish_exactly(self.entry, product, magnitude, a.shape[1], addend)

    def expect_exact(
        self, product: torch.Tensor, with_addend: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The same of a product that every partial sum holds exactly: a plain kernel has no error
        at all, nor has one that only adds if sums are exact `with_addend` too."""
        addend = self.addend(*product.shape)
        exact, off = finish_exactly(self.entry, product, product.abs(), 0, addend)
        adds_only = self.entry.epilogue in ("bias", "residual") and with_addend
        known = self.entry.epilogue == "none" or adds_only
        return exact, torch.zeros_like(off) if known else off

    def product(
        self,
        name: str,
        a: torch.Tensor,
        b: torch.Tensor,
        allowed: float = HELD,
        runs: int = 1,
        into: Place | None = None,
    ) -> None:
        """Check C = A @ B for stored operands, `runs` times; the reference is float64."""
        exact, off = self.reference(a, b)
        before = None
        for _ in range(runs):
            before = self.run(name, a, b, exact, off, allowed, before, into)

    def settle(self) -> Numeric:
        """Read all queued verdicts; raises NumericError for the first that fails."""
        self.result.settle()
        self._last = None
        self.held.clear()
        return self.result
