"""Numeric gate: one kernel against float64, over every place where a GEMM kernel can go wrong.

Each check launches the kernel through the launcher on operands with leading strides above the
minimum, into a C that is NaN inside and fenced by guard bands outside, and returns its relative
error; any element out of bounds of the rounding model, any guard touched and any unwritten element
is a failure. Needs a GPU; never times anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from hgemm_packs.manifest import KernelEntry

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
HALF_ULP = {"f16": 2.0**-11, "bf16": 2.0**-8}
GUARD = 16  # rows before and after C, columns behind it
GUARD_BITS = 0x7E5A  # a NaN no kernel produces
LARGE_WAVES = 3  # tiles of the multi-wave problem, in multiples of the SM count

Launch = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]


class NumericError(AssertionError):
    """A kernel computed something else than A @ B; the message names the check and the problem."""


@dataclass(slots=True)
class Numeric:
    """Verdict over all checks of one kernel."""

    max_rel_err: float = 0.0
    shapes_tested: int = 0
    pending: list[tuple[str, torch.Tensor]] = field(default_factory=list)


def operand(values: torch.Tensor, transposed: bool) -> torch.Tensor:
    """`values` [rows, columns] stored with a leading stride 8 above the minimum; NaN in the
    padding."""
    rows, columns = values.shape
    shape = (columns, rows + 8) if transposed else (rows, columns + 8)
    buffer = torch.full(shape, float("nan"), dtype=values.dtype, device=values.device)
    view = buffer.t()[:rows] if transposed else buffer[:, :columns]
    return view.copy_(values)


def guarded(
    m: int, n: int, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """(whole buffer as int16 bits, C [m, n] inside it)."""
    bits = torch.full((m + 2 * GUARD, n + GUARD), GUARD_BITS, dtype=torch.int16, device=device)
    return bits, bits.view(dtype)[GUARD : GUARD + m, :n]


def _report(
    name: str, got: torch.Tensor, bits: torch.Tensor, exact: torch.Tensor, slack: torch.Tensor
) -> torch.Tensor:
    """[relative error, elements out of bounds, guard elements touched] as one device tensor."""
    m, n = got.shape
    wide = got.double()
    error = (wide - exact).abs()
    bad = (~(error <= slack)).sum()  # NaN compares false: an unwritten element counts
    touched = (bits != GUARD_BITS).sum() - (bits[GUARD : GUARD + m, :n] != GUARD_BITS).sum()
    scale = exact.norm().clamp_min(1e-300)
    return torch.stack([error.norm() / scale, bad.double(), touched.double()])


def _slack(exact: torch.Tensor, magnitude: torch.Tensor, k: int, dtype: str) -> torch.Tensor:
    """Largest error that fp32 accumulation in any order and one rounding to `dtype` can make.

    `magnitude` is |A| @ |B|. Tensor cores truncate when they align addends, hence 2^-22 and not
    2^-24 a step of 16.
    """
    return 1.001 * HALF_ULP[dtype] * exact.abs() + (k / 16 + 4) * 2.0**-22 * magnitude + 2.0**-24


class Checker:
    """Runs the checks of one kernel; `launch(a, b, c)` queues it on the current stream."""

    def __init__(self, entry: KernelEntry, launch: Launch, device: torch.device, seed: int) -> None:
        self.entry, self.launch, self.device = entry, launch, device
        self.dtype = DTYPES[entry.dtype]
        self.generator = torch.Generator(device).manual_seed(seed)
        self.result = Numeric()

    def normal(self, rows: int, columns: int, mean: float = 0.0) -> torch.Tensor:
        shape = (rows, columns)
        values = torch.randn(shape, generator=self.generator, device=self.device)
        return (values + mean).to(self.dtype)

    def store(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        layout = self.entry.layout
        return operand(a, layout[0] == "t"), operand(b, layout[1] == "t")

    def run(
        self, name: str, a: torch.Tensor, b: torch.Tensor, exact: torch.Tensor, slack: torch.Tensor
    ) -> torch.Tensor:
        """Launch once and queue the comparison; returns C."""
        (m, k), n = a.shape, b.shape[1]
        bits, c = guarded(m, n, self.dtype, self.device)
        self.launch(a, b, c)
        self.result.pending.append((f"{name} {m}x{n}x{k}", _report(name, c, bits, exact, slack)))
        return c

    def product(self, name: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Check C = A @ B for stored operands; the reference is float64."""
        wide_a, wide_b = a.double(), b.double()
        exact = wide_a @ wide_b
        slack = _slack(exact, wide_a.abs() @ wide_b.abs(), a.shape[1], self.entry.dtype)
        return self.run(name, a, b, exact, slack)

    def settle(self) -> Numeric:
        """Read all queued verdicts; raises NumericError for the first that fails."""
        if self.result.pending:
            rows = torch.stack([row for _, row in self.result.pending]).tolist()
            for (name, _), (relative, bad, touched) in zip(self.result.pending, rows, strict=True):
                if bad or touched or relative != relative:
                    raise NumericError(
                        f"{name}: {int(bad)} elements wrong, {int(touched)} guards touched, "
                        f"relative error {relative:.2e}"
                    )
                self.result.max_rel_err = max(self.result.max_rel_err, relative)
            self.result.shapes_tested += len(rows)
            self.result.pending.clear()
        return self.result


def _multiples(rule_min: int, step: int, values: Iterator[int] | range | list[int]) -> list[int]:
    """`values` rounded up to what the kernel admits, without repeats."""
    return sorted({max(rule_min, -(-v // step) * step) for v in values})


def check_remainders(run: Checker) -> None:
    """Every remainder of tile_m and tile_n, in the steps the kernel admits, two tiles each way."""
    e = run.entry
    tile_m, tile_n = e.grid.tile_m, e.grid.tile_n
    ms = _multiples(e.m.min, e.m.multiple_of, range(1, tile_m + 2))
    ns = _multiples(e.n.min, e.n.multiple_of, range(tile_n, 2 * tile_n + 1))
    k = _multiples(e.k.min, e.k.multiple_of, [72])[0]
    a, b = run.store(run.normal(ms[-1], k), run.normal(k, ns[-1]))
    wide_a, wide_b = a.double(), b.double()
    exact, magnitude = wide_a @ wide_b, wide_a.abs() @ wide_b.abs()
    slack = _slack(exact, magnitude, k, e.dtype)
    for i in range(max(len(ms), len(ns))):
        m, n = ms[i % len(ms)], ns[i % len(ns)]
        run.run("remainders", a[:m], b[:, :n], exact[:m, :n], slack[:m, :n])


def ring_depth(entry: KernelEntry) -> int:
    """K in elements that one pass over the kernel's pipeline covers: its ring, or one round of
    loads."""
    genome = entry.genome
    if "stages" in genome:
        return int(genome["stages"]) * int(genome["tile_k"])
    return 32 * int(genome.get("warps_k", 1)) * int(genome.get("unroll", 1))


def check_depth(run: Checker) -> None:
    """K of every 8 up to two k-tiles, then round each multiple of the ring, and deep."""
    e = run.entry
    ring, tile_k = ring_depth(e), int(e.genome.get("tile_k", 32))
    around = [ring * i + d for i in (1, 2, 3) for d in (-tile_k, -8, 0, 8, tile_k)]
    ks = _multiples(e.k.min, e.k.multiple_of, [*range(8, 2 * tile_k + 1, 8), *around, 4096])
    m = _multiples(e.m.min, e.m.multiple_of, [e.grid.tile_m + 1])[0]
    n = _multiples(e.n.min, e.n.multiple_of, [e.grid.tile_n + 8])[0]
    for k in ks:
        if k >= 8:
            run.product("depth", *run.store(run.normal(m, k), run.normal(k, n)))
    k = ks[-1]
    run.product("large mean", *run.store(run.normal(m, k, 1.0), run.normal(k, n, 1.0)))


def check_waves(run: Checker, sm_count: int) -> None:
    """More tiles than three waves, of uneven count, so that persistent loops and rasters are
    exercised."""
    e = run.entry
    side = 1
    while side * (side + 1) < LARGE_WAVES * 2 * sm_count:
        side += 1
    m = _multiples(e.m.min, e.m.multiple_of, [side * e.grid.tile_m - 3])[0]
    n = _multiples(e.n.min, e.n.multiple_of, [(side + 1) * e.grid.tile_n - 8])[0]
    for k in _multiples(e.k.min, e.k.multiple_of, [64, ring_depth(e) + 8]):
        run.product("waves", *run.store(run.normal(m, k), run.normal(k, n)))


def check_accumulator(run: Checker) -> None:
    """Integers whose partial sums pass 2048 by far and cancel: fp32 in any order is exact, fp16 is
    not."""
    e = run.entry
    for k in _multiples(e.k.min, e.k.multiple_of, [64, 256, 1024, 4096]):
        half = k // 2 // 8 * 8
        m = _multiples(e.m.min, e.m.multiple_of, [e.grid.tile_m])[0]
        n = _multiples(e.n.min, e.n.multiple_of, [e.grid.tile_n])[0]

        def integers(*shape: int) -> torch.Tensor:
            return torch.randint(
                -32, 33, shape, generator=run.generator, device=run.generator.device
            )

        x, y = integers(m, half), integers(half, n)
        sparse = torch.zeros_like(x)
        picks = torch.randint(half, (m, min(8, half)), generator=run.generator, device=x.device)
        sparse.scatter_(1, picks, 1)
        rest = k - 2 * half
        a = torch.cat([x, sparse - x, torch.zeros(m, rest, device=x.device)], dim=1).to(run.dtype)
        b = torch.cat([y, y, torch.zeros(rest, n, device=x.device)]).to(run.dtype)
        exact = sparse.double() @ y.double()
        run.run("accumulator", *run.store(a, b), exact, torch.zeros_like(exact))


def check_specials(run: Checker) -> None:
    """NaN and Inf stay in their own row and column; inputs are unchanged; two runs agree bit for
    bit."""
    e = run.entry
    m = _multiples(e.m.min, e.m.multiple_of, [e.grid.tile_m + 5])[0]
    n = _multiples(e.n.min, e.n.multiple_of, [e.grid.tile_n + 8])[0]
    k = _multiples(e.k.min, e.k.multiple_of, [200])[0]
    values_a, values_b = run.normal(m, k), run.normal(k, n)
    a, b = run.store(values_a, values_b)
    first, second = run.product("repeat", a, b), run.product("repeat", a, b)
    same = bool((first.view(torch.int16) == second.view(torch.int16)).all())
    kept = torch.equal(a, values_a) and torch.equal(b, values_b)
    row, column = m - 2 if m > 1 else 0, n - 3
    values_a[row, k - 1], values_b[0, column] = float("nan"), float("inf")
    a, b = run.store(values_a, values_b)
    _, c = guarded(m, n, run.dtype, run.device)
    run.launch(a, b, c)
    expected = a.double() @ b.double()
    spread = not torch.equal(torch.isfinite(c), torch.isfinite(expected))
    if not same or not kept or spread:
        raise NumericError(
            f"specials {m}x{n}x{k}: repeatable {same}, inputs kept {kept}, "
            f"NaN and Inf contained {not spread}"
        )


def check(
    entry: KernelEntry, launch: Launch, device: torch.device, sm_count: int, seed: int
) -> Numeric:
    """All checks of one kernel on `device`. Raises NumericError for the first failure.

    `launch` is the kernel; the gate itself runs on any device, so that its own tests need no GPU.
    """
    run = Checker(entry, launch, device, seed)
    for one in (check_remainders, check_depth, check_accumulator, check_specials):
        one(run)
        run.settle()
    check_waves(run, sm_count)
    return run.settle()
