"""The ends of the types' ranges: overflow, ties, subnormal numbers, zeros and their signs.

Where sums are exact in fp32 in any order, each element has one right result.
"""

from __future__ import annotations

import torch

from hgemm_packs.generator.families.computed import GATED
from hgemm_packs.generator.gates.checker import Checker
from hgemm_packs.generator.gates.values.drawn import (
    integers,
    problem,
    shuffled,
    signs,
    uniform,
)

#: Factors whose products add up to the least number that rounds to an infinity, and what is added
#: to that: 65520 in fp16, 2^128 - 2^119 in bf16, each a tie.
LEAST_INFINITE = {
    "f16": ((256.0, 255.0), (16.0, 15.0)),
    "bf16": ((2.0**64, 255 * 2.0**56), (2.0**64, 2.0**55)),
}
BESIDE = {
    "f16": (0.0, -16.0, -1.0, -0.5, 0.0, 0.5, 1.0, 16.0),
    "bf16": tuple(x * 2.0**110 for x in (0.0, -512.0, -1.0, -0.5, 0.0, 0.5, 1.0, 512.0)),
}
#: Scales of A and B: sums among the type's subnormal numbers, then operands that are.
SCALES = {
    "f16": ((2.0**-12, 2.0**-10), (2.0**-19, 2.0**8), (2.0**8, 2.0**-19)),
    "bf16": ((2.0**-66, 2.0**-66), (2.0**-130, 2.0**110), (2.0**110, 2.0**-130)),
}
#: Gated columns are multiplied once more.
GATED_SCALES = {
    "f16": ((2.0**-6, 2.0**-5), (2.0**-19, 2.0**12), (2.0**12, 2.0**-19)),
    "bf16": ((2.0**-34, 2.0**-33), (2.0**-130, 2.0**124), (2.0**124, 2.0**-130)),
}
FAINT = 60, 87  # of which exponentials float32 has the inverse
#: Sums of K products of these integers are mostly between powers of two that the type holds every
#: other or every fourth integer of.
TIED = {"f16": 24, "bf16": 8}


def _scaled(run: Checker, rows: int, columns: int, scale: float) -> torch.Tensor:
    """Normal numbers times `scale`, rounded once: not twice, by way of a normal number."""
    values = torch.randn((rows, columns), generator=run.generator, device=run.device)
    return (values.double() * scale).to(run.dtype)


def check_range(run: Checker) -> None:
    """Sums that are subnormal numbers of the type, and operands that are: nothing is flushed to
    zero."""
    e = run.entry
    m, n, k = problem(run, 136)
    scales = GATED_SCALES if e.epilogue == GATED else SCALES
    addend = run.addend(m, n)
    for name, (of_a, of_b) in zip(("small", "small A", "small B"), scales[e.dtype], strict=True):
        stored = run.store(_scaled(run, m, k, of_a), _scaled(run, k, n, of_b))
        if addend is not None:  # else sums drown in it
            addend.mul_(of_a * of_b)
            run.keep(*stored)
        run.product(name, *stored)
        if addend is not None:
            run.rewrite_addend()


def check_overflow(run: Checker) -> None:
    """Sums at, round and far beyond the least that rounds to an infinity, of either sign; partial
    sums beyond it that come back; operands as large as can be."""
    dtype = run.entry.dtype
    m, n, k = problem(run, 136)
    pairs = LEAST_INFINITE[dtype]
    if k >= 6:
        a, b = (
            torch.zeros(shape, dtype=torch.float64, device=run.device) for shape in ((m, k), (k, n))
        )
        at = shuffled(run, k)[:6].tolist()
        sign = signs(run, m, 1)[:, 0].double()
        for place, (x, y) in zip(at, pairs, strict=False):
            a[:, place], b[place] = sign * x, y
        beside = torch.tensor(BESIDE[dtype], dtype=torch.float64, device=run.device)
        unit = 2.0**55 if dtype == "bf16" else 1.0
        b[at[2]] = beside.repeat(-(-n // len(beside)))[:n] / unit
        a[:, at[2]] = sign * unit
        if dtype == "f16":  # partial sums that fp16 does not hold
            a[:, at[3]], a[:, at[4]] = 256.0, -256.0
            b[at[3]] = b[at[4]] = 240.0
        stored = run.store(a.to(run.dtype), b.to(run.dtype))
        run.run("overflow", *stored, *run.expect_exact(a @ b))
    largest = torch.finfo(run.dtype).max
    # Terms of a row have one sign, that no partial sum overflows fp32 and comes back.
    sign = signs(run, m, 1)
    few = uniform(run, m, k) < 1 / 16
    a = torch.where(few, largest, uniform(run, m, k)) * sign
    b = uniform(run, k, n) / 4
    run.product("large operands", *run.store(a.to(run.dtype), b.to(run.dtype)))


def check_faint_gates(run: Checker) -> None:
    """Gates that leave next to nothing, of halves near the largest that float32 holds: what they
    come to is an ordinary number, and so is all that lies between where the gate comes first."""
    m, n, k = problem(run, 136)
    if run.entry.epilogue != GATED or run.entry.dtype != "bf16" or k < 2:
        return
    a, b = (
        torch.zeros(shape, dtype=torch.float64, device=run.device) for shape in ((m, k), (k, n))
    )
    of_gate, of_up = shuffled(run, k)[:2].tolist()
    gates = torch.randint(*FAINT, (n // 2,), generator=run.generator, device=run.device)
    a[:, of_gate], b[of_gate, : n // 2] = 1.0, -gates.double()
    a[:, of_up] = signs(run, m, 1)[:, 0].double() * 2.0**64
    b[of_up, n // 2 :] = 2.0**62 * torch.exp2(uniform(run, 1, n // 2).round()).double()
    run.run("faint gates", *run.store(a.to(run.dtype), b.to(run.dtype)), *run.expect_exact(a @ b))


def check_ties(run: Checker) -> None:
    """Integers that are halfway between two numbers of the type, and those beside: nearest even,
    never up, away from zero, towards it or by chance."""
    m, n, k = problem(run, 136)
    most = TIED[run.entry.dtype]
    x, y = integers(run, most, m, k), integers(run, most, k, n)
    scale = 2.0 ** -int(torch.randint(0, 5, (1,), generator=run.generator, device=run.device))
    exact = (x.double() @ y.double()) * scale
    stored = run.store((x * scale).to(run.dtype), y.to(run.dtype))
    addend = run.addend(m, n)
    if addend is not None:  # that sums are exact with it, too
        addend.copy_(torch.round(addend))
        run.keep(*stored)
    run.run("ties", *stored, *run.expect_exact(exact, with_addend=True))
    if addend is not None:
        run.rewrite_addend()


def check_zeros(run: Checker) -> None:
    """Zeros of either sign times anything, and sums that cancel, are +0; a sum below zero that is
    too small for the type is -0."""
    m, n, k = problem(run, 136)
    addend = run.addend(m, n)
    if addend is not None:
        addend.zero_()

    def zeros(rows: int, columns: int) -> torch.Tensor:
        return (signs(run, rows, columns) * 0.0).to(run.dtype)

    run.product("zero A", *run.store(zeros(m, k), run.normal(k, n)))
    run.product("zero B", *run.store(run.normal(m, k), zeros(k, n)))

    half = k // 2
    if half:
        order = shuffled(run, 2 * half)
        x, y = integers(run, 8, m, half), integers(run, 8, half, n)
        a, b = (torch.zeros(s, dtype=run.dtype, device=run.device) for s in ((m, k), (k, n)))
        a[:, : 2 * half] = torch.cat([x, -x], dim=1).to(run.dtype)[:, order]
        b[: 2 * half] = torch.cat([y, y]).to(run.dtype)[order]
        exact = torch.zeros((m, n), dtype=torch.float64, device=run.device)
        run.run("cancelled", *run.store(a, b), *run.expect_exact(exact))

    a, b = zeros(m, k), zeros(k, n)
    tiny = torch.finfo(run.dtype).smallest_normal
    at = int(torch.randint(k, (1,), generator=run.generator, device=run.device))
    a[:, at] = (signs(run, m, 1)[:, 0] * tiny).to(run.dtype)
    b[at] = (signs(run, 1, n)[0] * (2.0**-13 if run.entry.dtype == "f16" else 2.0**-10)).to(
        run.dtype
    )
    run.run("underflow", *run.store(a, b), *run.expect_exact(a.double() @ b.double()))
    if addend is not None:
        run.rewrite_addend()
