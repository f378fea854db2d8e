"""What a child process of the tests runs, because it may hang: cooperative kernels on a device that
is not free, and chains of dependent launches.

`python -m tests.gpu.at_once streams|chain ...`, started by test_at_once.py, prints "done" and what
it ran. Kernels are those of the packs on HGEMM_PACKS_PATH, on problems made for them.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch

from hgemm_packs import launcher, select
from hgemm_packs.generator.gates.checker import size
from hgemm_packs.measure.kernel_arm import KernelArm
from hgemm_packs.measure.operands import DTYPES
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest import KernelEntry
from hgemm_packs.problem import Problem
from tests import reference

if TYPE_CHECKING:
    from hgemm_packs._C import Kernel

Packed = tuple[Pack, KernelEntry]
Shape = tuple[int, int, int]

LAUNCHES = 300  # of each pair of kernels
KERNELS = 6  # cooperative ones, as different as the packs have them
OCCUPANT_K = 1 << 17  # half a millisecond or so for each CTA
REPEATS = 12  # of a chain, each on new values
ROWS = 200
WIDTHS = (1024, 512, 2048, 4096, 256, 128, 64)


def kernels() -> list[Packed]:
    return [(pack, entry) for pack in select.find_packs().packs for entry in pack.manifest.kernels]


def parties(entry: KernelEntry) -> int:
    """CTAs of a tile."""
    return math.prod(entry.cluster) * entry.grid.slices


def cooperative() -> list[Packed]:
    """Kernels whose CTAs wait for each other, spread over clusters, slices and shared memory."""
    found = [each for each in kernels() if each[1].cooperative and not each[1].grid.persistent]
    found.sort(key=lambda each: (each[1].cluster, each[1].grid.slices, each[1].smem_bytes))
    steps = min(KERNELS, len(found))
    return [found[len(found) * i // steps] for i in range(steps)]


def filling(entry: KernelEntry, ctas: int) -> Shape:
    """A problem whose grid is as many CTAs as `ctas` has room for, all tiles along M."""
    tiles = max(1, ctas // parties(entry))
    return tiles * entry.grid.tile_m, entry.grid.tile_n, size(entry.k, 1)


def occupying(entry: KernelEntry, ctas: int) -> Shape:
    """A quarter of `ctas`, for a long while."""
    tiles = max(1, ctas // 4 // parties(entry))
    return tiles * entry.grid.tile_m, entry.grid.tile_n, OCCUPANT_K


def occupant() -> Packed | None:
    """The kernel with most shared memory that anybody may launch: nobody fits beside its CTAs."""
    fits = [
        each
        for each in kernels()
        if not (each[1].cooperative or each[1].grid.persistent or each[1].workspace_bytes)
        and each[1].k.admits(OCCUPANT_K)
        and math.prod(each[1].cluster) == 1
        and each[1].m.admits(64 * each[1].grid.tile_m)
    ]
    return max(fits, key=lambda each: each[1].smem_bytes, default=None)


def loaded(one: Packed, pdl: bool) -> Kernel:
    pack, entry = one
    return launcher.load(0, entry, pack.image(entry), pdl)


class Job:
    """A kernel, its operands, and a C for each of its launches."""

    def __init__(self, one: Packed, pdl: bool, seed: int) -> None:
        kernel, self.entry = loaded(one, pdl), one[1]
        m, n, k = filling(self.entry, kernel.max_ctas)
        dtype = DTYPES[self.entry.dtype]
        self.arm = KernelArm(kernel)
        self.a, self.b = reference.cancelling(
            m, n, k, self.entry.layout, dtype, device="cuda", seed=seed
        )
        self.outs = torch.full((LAUNCHES // 2, m, n), math.nan, dtype=dtype, device="cuda")
        self.share = parties(self.entry) * (m // self.entry.grid.tile_m) / kernel.max_ctas
        self.arm(self.a, self.b, self.outs[0])  # the workspace is made here

    def launch(self, i: int) -> None:
        self.arm(self.a, self.b, self.outs[i])

    def judge(self) -> None:
        same = bool((self.outs == self.outs[0]).all())
        assert same, f"{self.entry.name}: launches of one product differ"
        reference.assert_exact(self.outs[0], self.a, self.b)
        assert int(self.arm.count_dirty()) == 0, f"{self.entry.name}: words are not absent"


class Occupant:
    """Launches that keep a part of the device busy, on a stream of their own."""

    def __init__(self) -> None:
        one = occupant()
        assert one is not None, "no kernel of the packs can keep a part of the device busy"
        kernel, entry = loaded(one, False), one[1]
        m, n, k = occupying(entry, kernel.max_ctas)
        a = torch.zeros((m, k), dtype=DTYPES[entry.dtype], device="cuda")
        b = torch.zeros((k, n), dtype=DTYPES[entry.dtype], device="cuda")
        self.a, self.b = (
            reference.stored(matrix, letter)
            for matrix, letter in zip((a, b), entry.layout, strict=True)
        )
        self.c = torch.full((m, n), math.nan, dtype=a.dtype, device="cuda")
        self.arm, self.stream = KernelArm(kernel), torch.cuda.Stream()

    def launch(self) -> None:
        with torch.cuda.stream(self.stream):
            self.arm(self.a, self.b, self.c)


def run_streams(pdl: bool, streams: int) -> int:
    """Pairs of cooperative kernels, launched in turn on one stream or on two; returns pairs."""
    chosen, busy = cooperative(), Occupant()
    pairs = [(one, one) for one in chosen] + list(itertools.pairwise(chosen))
    for pair in pairs:
        jobs = [Job(one, pdl, seed) for seed, one in enumerate(pair)]
        assert all(job.share > 0.5 for job in jobs), [job.share for job in jobs]
        own = [torch.cuda.Stream() for _ in range(streams)]
        torch.cuda.synchronize()
        for i in range(LAUNCHES // 2):
            if i % 10 == 0:
                busy.launch()
            for j, job in enumerate(jobs):
                with torch.cuda.stream(own[j % streams]):
                    job.launch(i)
        torch.cuda.synchronize()
        for job in jobs:
            job.judge()
    assert bool((busy.c == 0).all())
    return len(pairs)


def chained(entry: KernelEntry, max_ctas: int) -> tuple[int, int] | None:
    """Rows and width of square weights that a kernel takes, so that its C can be its next A."""
    for width in WIDTHS:
        columns = -(-width // entry.grid.tile_n)
        m = size(entry.m, ROWS)
        if entry.cooperative:
            m = min(m, max_ctas // parties(entry) // columns * entry.grid.tile_m)
        if m and entry.admits(Problem(m, width, width, entry.layout, entry.dtype)) is None:
            return m, width
    return None


def links() -> Iterator[tuple[Packed, tuple[int, int]]]:
    """Kernels that can follow themselves: of each family two of each type, cooperative or not."""
    seen: dict[tuple[str, str, bool], int] = {}
    for pack, entry in kernels():
        kind = (entry.family, entry.dtype, entry.cooperative)
        if entry.layout[0] != "n" or seen.get(kind, 0) == 2:
            continue
        ctas = loaded((pack, entry), True).max_ctas if entry.cooperative else 0
        shape = chained(entry, ctas)
        if shape is not None:
            seen[kind] = seen.get(kind, 0) + 1
            yield (pack, entry), shape


class Chain:
    """ours, elementwise, ours, a foreign kernel, ours: each reads what the one before has written.
    Ours are launched dependently."""

    def __init__(self, one: Packed, m: int, width: int) -> None:
        entry, dtype = one[1], DTYPES[one[1].dtype]
        self.arm = KernelArm(loaded(one, True))
        self.name = f"{entry.name} {m}x{width}"
        generator = torch.Generator("cuda").manual_seed(m + width)
        self._generator = generator

        def weights(letter: str) -> torch.Tensor:
            made = torch.randn((width, width), generator=generator, device="cuda")
            return reference.stored((made / width**0.5).to(dtype), letter)

        self.weights = [weights(entry.layout[1]) for _ in range(3)]
        self.foreign = weights("n")
        self.x = torch.zeros((m, width), dtype=dtype, device="cuda")
        self.new = torch.zeros_like(self.x)
        self.steps = [torch.zeros_like(self.x) for _ in range(5)]

    def run(self) -> None:
        y = self.steps
        for one in y:
            one.fill_(math.nan)
        self.x.copy_(self.new)  # elementwise, right ahead of the first
        self.arm(self.x, self.weights[0], y[0])
        torch.mul(y[0], -2.0, out=y[1])
        self.arm(y[1], self.weights[1], y[2])
        torch.mm(y[2], self.foreign, out=y[3])
        self.arm(y[3], self.weights[2], y[4])

    def judge(self) -> None:
        y = self.steps
        assert torch.equal(self.x, self.new), self.name
        reference.assert_product(y[0], self.x, self.weights[0])
        assert torch.equal(y[1], y[0] * -2.0), self.name
        reference.assert_product(y[2], y[1], self.weights[1])
        assert torch.isfinite(y[3]).all(), self.name
        reference.assert_product(y[4], y[3], self.weights[2])
        # The foreign kernel may round as it likes: it must have read this y[2] and no other.
        exact = reference.product(y[2], self.foreign)
        off = float((y[3].double() - exact).norm() / exact.norm())
        assert off < 0.02, f"{self.name}: foreign kernel off by {off:.1e}"

    def repeat(self, work: Callable[[], None]) -> None:
        for _ in range(REPEATS):
            self.new.copy_(torch.randn(self.x.shape, generator=self._generator, device="cuda"))
            work()
            self.judge()


def run_chains() -> int:
    """Eager and replayed chains; returns kernels."""
    count = 0
    stream = torch.cuda.Stream()
    for one, (m, width) in links():
        chain = Chain(one, m, width)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            chain.repeat(chain.run)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(3):  # the next chain follows the last one's end
                chain.run()
        chain.repeat(graph.replay)
        torch.cuda.synchronize()
        assert int(chain.arm.count_dirty()) == 0, chain.name
        count += 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("streams", "chain"))
    parser.add_argument("--pdl", action="store_true")
    parser.add_argument("--streams", type=int, default=2)
    args = parser.parse_args()
    if args.what == "streams" and not cooperative():
        print("none")
        return
    done = run_chains() if args.what == "chain" else run_streams(args.pdl, args.streams)
    print("done", done)


if __name__ == "__main__":
    main()
