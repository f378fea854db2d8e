"""Programmatic dependent launch on a GPU: captured as such, and right among any neighbours."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hgemm_packs import launcher, matmul
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.core.spec import Job, Status
from hgemm_packs.generator.devices.gpu import GpuDevice
from hgemm_packs.generator.measure.agreement import Agreement, edges
from hgemm_packs.measure import timing
from hgemm_packs.measure.kernel_arm import KernelArm
from hgemm_packs.measure.operands import Operands, operands
from hgemm_packs.measure.replay import stage
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest import KernelEntry
from tests import reference
from tests.gpu.conftest import Wins

pytestmark = pytest.mark.gpu


def both(pack: Pack, entry: KernelEntry) -> dict[str, KernelArm]:
    """A kernel, launched plainly and programmatically."""
    image = pack.image(entry)
    return {
        name: KernelArm(launcher.load(0, entry, image, name == "pdl")) for name in ("plain", "pdl")
    }


def test_a_capture_has_programmatic_edges(wins: Wins) -> None:
    problem, pack, entry = wins.of_each_named()[-1]
    one = operands(problem, 0)[0]
    for name, arm in both(pack, entry).items():
        found = edges([arm, arm, arm, timing.feed], one, stage(0))
        assert found == {"programmatic": 2 * (name == "pdl"), "full": 3 - 2 * (name == "pdl")}


Call = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]


def into(c: torch.Tensor, arm: KernelArm) -> Call:
    return lambda a, b, _: arm(a, b, c)


def reading(a: torch.Tensor, arm: KernelArm) -> Call:
    return lambda _, b, c: arm(a, b, c)


def test_a_kernel_that_reads_ahead_stays_clear_of_what_is_written(wins: Wins) -> None:
    """Said of one kernel for each parameter layout that does not: what it follows decides, as the
    driver's nodes have it, a tensor map of C among them. The last call reads as A what the one
    before it wrote, or the first of three that may all be running."""
    met = set()
    for problem, pack, entry in wins.of_each_named():
        m, n, k = problem.m, problem.n, problem.k
        if entry.param_layout in met:
            continue
        met.add(entry.param_layout)
        one = operands(problem, 0)[0]
        ahead = entry._replace(reads_ahead=True, triggers_early=True)
        arm = KernelArm(launcher.load(0, ahead, pack.image(entry), True))
        shared = torch.zeros(m * max(n, k), dtype=one.a.dtype, device="cuda")
        flat, c = shared[: m * k], shared[: m * n].view(m, n)
        a = flat.view(m, k) if problem.layout[0] == "n" else flat.view(k, m).t()
        last = reading(a, arm)
        for calls in ([arm, arm, into(c, arm), last], [into(c, arm), arm, arm, last]):
            found = edges(calls, one, stage(0))
            assert found == {"programmatic": 2, "full": 1}, entry.name
    assert "tma3_v1" in met and len(met) > 2


def test_a_search_screens_launches_behind_one_another(wins: Wins) -> None:
    problem, pack, _, entry = next(pair for pair in wins.of_each_pair() if pair[3].reads_ahead)
    kernel, device = Packed(pack.path).kernel(entry.name), GpuDevice(0)
    for kind in ("screen", "behind"):
        (result,) = device.run(Job(kind, problem, (kernel,), 3)).results.values()
        assert (result.status, result.detail) == (Status.OK, "")
        assert len(result.samples["hot"]) == 3
    arm = device._dependent[kernel.id].arm
    found = edges([arm, arm, arm, timing.feed], operands(problem, 0)[0], stage(0))
    assert found == {"programmatic": 2, "full": 1}


@pytest.mark.parametrize("written", ["a", "b"])
def test_what_is_read_ahead_is_what_a_foreign_kernel_wrote_two_grids_before(
    wins: Wins, written: str
) -> None:
    """In each round torch negates an operand, a call of ours works on others, and the next one, a
    kernel that reads ahead and may start before that one has ended, must see the new sign."""
    rounds = 4  # an even number: a replay starts from the signs that the one before started from
    pairs = [pair for pair in wins.of_each_pair() if pair[3].reads_ahead]
    assert pairs
    for problem, pack, _, dependent in pairs[:: -(-len(pairs) // 60)]:
        one, other = operands(problem, 0, sets=2)
        matmul(one.a, one.b)  # loads
        want = torch.empty_like(one.c)
        KernelArm(launcher.load(0, dependent, pack.image(dependent), False))(one.a, one.b, want)
        outs = [torch.full_like(one.c, torch.nan) for _ in range(rounds)]

        def foreign(a: torch.Tensor, b: torch.Tensor, _: torch.Tensor) -> object:
            return (a if written == "a" else b).neg_()

        def ours(*_: torch.Tensor, at: Operands = other) -> object:
            return matmul(at.a, at.b, out=at.c)

        def ahead(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> object:
            return matmul(a, b, out=c)

        found = edges([foreign, ours, ahead], one, stage(0))
        assert found == {"programmatic": 1, "full": 1}, problem
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for out in outs:
                for call in (foreign, ours, ahead):
                    call(one.a, one.b, out)
        start = one.a[0, 0].item(), one.b[0, 0].item()
        for _ in range(50):
            for out in outs:
                out.fill_(torch.nan)
            graph.replay()
            signs = [torch.equal(out, want if i % 2 else -want) for i, out in enumerate(outs)]
            assert all(signs), (problem, dependent.name, signs)
        assert start == (one.a[0, 0].item(), one.b[0, 0].item())


@pytest.mark.parametrize("between", range(4))
def test_what_is_read_ahead_is_what_ours_wrote_some_grids_before(wins: Wins, between: int) -> None:
    """Of kernels that trigger early all before it may still run. A is where the first of the row
    writes; calls between the two work on others."""
    pairs = [pair for pair in wins.of_each_pair() if pair[3].reads_ahead]
    for problem, pack, _, dependent in pairs[:: -(-len(pairs) // 30)]:
        m, n, k = problem.m, problem.n, problem.k
        one, other = operands(problem, 0, sets=2)
        one.b.mul_(k**-0.5)  # C is an operand of the same size as A
        arm = KernelArm(launcher.load(0, dependent, pack.image(dependent), True))
        shared = torch.zeros(m * max(n, k), dtype=one.a.dtype, device="cuda")
        flat, c = shared[: m * k], shared[: m * n].view(m, n)
        a = flat.view(m, k) if problem.layout[0] == "n" else flat.view(k, m).t()
        want, out = torch.empty_like(one.c), torch.empty_like(one.c)
        arm(one.a, one.b, c)
        arm(a, one.b, want)  # eager calls are plain
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            arm(one.a, one.b, c)
            for _ in range(between):
                arm(other.a, other.b, other.c)
            arm(a, one.b, out)
        for _ in range(50):
            shared.zero_()
            out.fill_(torch.nan)
            graph.replay()
            assert torch.equal(out, want), (problem, dependent.name)


def test_matmul_is_dependent_behind_our_own_kernels_only(wins: Wins) -> None:
    """Of four calls in a capture, ours, ours, torch's and ours, the second alone."""
    marked = {False: 0, True: 0}  # by whether the dependent kernel has a workspace
    for problem, _, _, entry in wins.of_each_pair():
        marked[entry.workspace_bytes > 0] += 1
        if marked[entry.workspace_bytes > 0] > 3:
            continue
        one = operands(problem, 0)[0]

        def ours(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> object:
            return matmul(a, b, out=c)

        found = edges([ours, ours, timing.feed, ours], one, stage(0))
        assert found == {"programmatic": 1, "full": 2}, problem
        assert torch.equal(one.c, matmul(one.a, one.b)), problem
    assert all(marked.values())


def test_a_second_call_runs_the_kernel_that_its_row_names(wins: Wins) -> None:
    """Where that is another than the row's own, each gives its own bits: those that it gives alone.
    Of a table without such rows this says that the one kernel does."""
    pairs = sorted(wins.of_each_pair(), key=lambda pair: pair[2] is pair[3])  # two kernels first
    assert pairs
    for problem, pack, own, dependent in pairs[:20]:
        one = operands(problem, 0)[0]
        outs = [torch.full_like(one.c, torch.nan) for _ in range(4)]
        for kernel, out in zip((own, dependent), outs, strict=False):
            both(pack, kernel)["plain"](one.a, one.b, out)
        matmul(one.a, one.b)  # loads
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for out in outs[2:]:
                matmul(one.a, one.b, out=out)
        graph.replay()
        assert torch.equal(outs[0], outs[2]) and torch.equal(outs[1], outs[3]), problem
        for out in outs:
            reference.assert_product(out, one.a, one.b)


def test_every_kernel_gives_the_same_bits_as_launched_plainly(wins: Wins) -> None:
    """Back to back on one C, on many in turn, and between torch's elementwise kernels."""
    for problem, pack, entry in wins.of_each_named():
        arms = both(pack, entry)
        for protocol in ("hot", "cold", "chained"):
            agree = Agreement(problem, protocol, 1, seed=3)
            timing.compare(arms, problem, protocol=protocol, blocks=1, target_us=50, between=agree)
            assert agree.wrong == [], (problem, entry.name)
