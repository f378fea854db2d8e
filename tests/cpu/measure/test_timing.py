"""Buffers, replay lengths, interleaving and statistics: all of timing that needs no GPU."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from hgemm_packs.measure import evidence, timing
from hgemm_packs.measure.operands import Operands, cold_sets, operands, overlap_sets
from hgemm_packs.measure.telemetry import Conditions, Telemetry
from hgemm_packs.problem import Problem, set_bytes

L2 = 50 << 20


def nn(m: int, n: int, k: int) -> Problem:
    return Problem(m, n, k, "nn", "f16")


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_operands_multiply_in_every_layout(layout: str) -> None:
    problem = Problem(5, 7, 24, layout, "bf16")
    sets = operands(problem, "cpu", seed=1, sets=3)
    for one in sets:
        torch.mm(one.a, one.b, out=one.c)
        exact = one.a.double() @ one.b.double()
        assert (one.c.double() - exact).norm() < 1e-2 * exact.norm()
        assert one.a.is_contiguous() == (layout[0] == "n")
        assert one.b.is_contiguous() == (layout[1] == "n")
        assert (one.a.data_ptr() - sets[0].a.data_ptr()) % 512 == 0
    assert not torch.equal(sets[0].a, sets[1].a)
    again = operands(problem, "cpu", seed=1, sets=3)
    assert torch.equal(again[2].b, sets[2].b)
    assert abs(operands(nn(256, 256, 256), "cpu")[0].a.float().std().item() - 1) < 0.02


@pytest.mark.parametrize("mnk", [(64, 64, 64), (512, 1024, 768), (4096, 4096, 4096)])
def test_cold_sets_cover_three_caches_even_without_the_set_in_use(
    mnk: tuple[int, int, int],
) -> None:
    problem = nn(*mnk)
    assert (cold_sets(problem, L2) - 1) * set_bytes(problem) >= 3 * L2


def test_a_problem_larger_than_three_caches_is_its_own_cold_set() -> None:
    assert cold_sets(nn(8192, 8192, 8192), L2) == 1


BIG = nn(64, 8192, 12288)


class FakeReplay:
    """Stands for a graph replay; `log` collects the order of everything queued."""

    log: ClassVar[list[object]] = []

    def __init__(self, arm: timing.Arm, sets: Sequence[Operands], calls: int) -> None:
        self.arm, self.sets, self.calls = arm, sets, calls

    def queue(self) -> None:
        FakeReplay.log.append(self.arm)

    def us(self) -> float:
        # The machine slows down from block to block; arms differ by a constant factor.
        factor = 1.0 if self.arm is timing.torch_mm else 0.8
        return factor * (4.0 + 0.1 * FakeReplay.log.count("sleep"))

    def free(self) -> None:
        FakeReplay.log.append("free")


@pytest.fixture
def fake_device(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    @contextlib.contextmanager
    def active() -> Iterator[None]:
        yield

    at = SimpleNamespace(
        active=active,
        l2_bytes=L2,
        flush=lambda: FakeReplay.log.append("flush"),
        stream=SimpleNamespace(synchronize=lambda: FakeReplay.log.append("wait")),
        telemetry=SimpleNamespace(read=lambda: None),
    )
    real = timing.operands
    monkeypatch.setattr(timing, "stage", lambda device: at)
    monkeypatch.setattr(timing, "Replay", FakeReplay)
    monkeypatch.setattr(timing, "operands", lambda p, device, **kw: real(p, "cpu", **kw))
    monkeypatch.setattr(timing, "_per_call_us", lambda arm, one, at: 4.0)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: FakeReplay.log.append("sleep"))
    FakeReplay.log = []
    return FakeReplay.log


def ours(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> object:
    return torch.mm(a, b, out=c)


def test_compare_interleaves_in_random_order_and_pairs_samples(fake_device: list[object]) -> None:
    arms = {"torch": timing.torch_mm, "ours": ours}
    result = timing.compare(arms, nn(64, 64, 64), blocks=30, target_us=400)
    assert (result.calls, result.sets, result.flushed) == (100, 1, False)
    blocks = [fake_device[i + 1 : i + 4] for i, item in enumerate(fake_device) if item == "sleep"]
    assert len(blocks) == 30
    assert all(lead is last for lead, _, last in blocks), "no timed replay follows a pause"
    orders = [block[1:] for block in blocks]
    assert all(set(order) == {timing.torch_mm, ours} for order in orders)
    assert 5 < sum(order[0] is ours for order in orders) < 25
    # Drift of the machine cancels in the pairs: the ratio is exact although times move by half.
    speedup = result.ratio("torch", "ours")
    assert speedup.value == pytest.approx(1.25)
    assert speedup.lcb == pytest.approx(1.25)
    assert result.median_us("ours") == pytest.approx(0.8 * 5.55)
    assert result.best(["torch", "ours"]) == "ours"
    assert fake_device[-2:] == ["free", "free"]


def test_cold_rotates_over_all_sets_or_flushes(fake_device: list[object]) -> None:
    arms = {"torch": timing.torch_mm}
    large = timing.compare(arms, nn(2048, 2048, 2048), protocol="cold", target_us=100)
    assert large.sets == cold_sets(nn(2048, 2048, 2048), L2)
    assert large.calls >= large.sets and large.calls % large.sets == 0
    assert not large.flushed and "flush" not in fake_device
    small = timing.compare(arms, nn(64, 64, 64), protocol="cold", target_us=100, blocks=4)
    assert (small.sets, small.calls, small.flushed) == (25, 25, True)
    assert fake_device.count("flush") == 4


@pytest.mark.parametrize("protocol", ["hot", "cold"])
@pytest.mark.parametrize(
    ("problem", "hot", "cold"), [(nn(64, 64, 64), 1, 25), (nn(64, 4096, 4096), 2, 6), (BIG, 2, 2)]
)
def test_calls_that_overlap_share_no_operands_beyond_the_cache(
    fake_device: list[object], protocol: timing.Protocol, problem: Problem, hot: int, cold: int
) -> None:
    assert overlap_sets(problem, L2) == hot
    arms = {"torch": timing.torch_mm}
    found = timing.compare(arms, problem, protocol=protocol, target_us=4, overlapping=True)
    wanted = hot if protocol == "hot" else min(cold, timing.MIN_COLD_SETS)
    assert found.sets == wanted and found.calls % found.sets == 0


def test_screen_frees_each_arm_before_the_next(fake_device: list[object]) -> None:
    medians = timing.screen({"torch": timing.torch_mm, "ours": ours}, nn(64, 64, 64))
    assert medians == {"torch": pytest.approx(4.2), "ours": pytest.approx(3.6)}
    assert fake_device.index("free") < fake_device.index(ours)


def test_between_blocks_a_caller_may_replay(fake_device: list[object]) -> None:
    """And what it replays is no sample."""
    seen: list[tuple[int, float]] = []

    def between(block: int, field: timing.ArmBench) -> None:
        seen.append((block, field.block(["ours"])[0]["ours"]))

    arms = {"torch": timing.torch_mm, "ours": ours}
    result = timing.compare(arms, nn(64, 64, 64), blocks=3, between=between)
    assert seen == [(0, pytest.approx(3.36)), (1, pytest.approx(3.52)), (2, pytest.approx(3.68))]
    assert result.samples["ours"] == pytest.approx([3.28, 3.44, 3.6])


@pytest.mark.parametrize(("us", "calls"), [((900.0, 7.0, 8.0), 16), ((900.0, 400.0, 420.0), None)])
def test_a_pause_of_the_host_does_not_shorten_a_replay(
    us: tuple[float, ...], calls: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least of a few pilots counts; short calls get a pilot graph, as paused as the first."""
    made: list[int | None] = []

    class Pilot:
        def __init__(self, arm: object, one: object, calls: int | None = None) -> None:
            made.append(calls)
            self._us = iter(us)

        def us(self) -> float:
            return next(self._us)

        def free(self) -> None:
            made.append(-1)

    at = SimpleNamespace(stream=SimpleNamespace(synchronize=lambda: None))
    monkeypatch.setattr(timing, "Single", Pilot)
    monkeypatch.setattr(timing, "Replay", Pilot)
    monkeypatch.setattr(timing, "queue_block", lambda replays, flushed, at: None)
    (one,) = operands(nn(8, 8, 8), "cpu")
    assert timing._per_call_us(ours, one, at) == min(us)  # type: ignore[arg-type]
    assert made == ([None, calls, -1] if calls else [None])


def test_steady_is_a_clock_within_a_hundredth() -> None:
    def clocks(*mhz: int) -> list[Conditions | None]:
        return [Conditions(m, 3201, 500.0, 40, 0) for m in mhz]

    assert timing.is_steady(clocks(1980, 1965)) and timing.is_steady(clocks(1965, 1980))
    assert not timing.is_steady(clocks(1980, 1950)) and not timing.is_steady(clocks(1950, 1980))
    assert timing.is_steady([None]) and timing.is_steady(clocks(1980)) and timing.is_steady([])


class Graph(FakeReplay):
    """A replay that computes, set by set."""

    def queue(self) -> None:
        super().queue()
        for i in range(self.calls):
            one = self.sets[i % len(self.sets)]
            self.arm(one.a, one.b, one.c)


@pytest.mark.parametrize("layout", ["nn", "tt"])
@pytest.mark.parametrize("mnk", [(16, 24, 8), (16, 8, 24), (16, 16, 16)])
def test_chained_layers_pass_their_values_on(
    fake_device: list[object],
    monkeypatch: pytest.MonkeyPatch,
    mnk: tuple[int, int, int],
    layout: str,
) -> None:
    """One block of eight layers is eight products, each of the sine of the one before."""
    monkeypatch.setattr(timing, "Replay", Graph)
    seen: list[Operands] = []

    def between(block: int, field: timing.ArmBench) -> None:
        sets = field.plan.sets
        a, c = sets[0].a, sets[0].c
        assert len({one.b.data_ptr() for one in sets}) == len(sets) == timing.MIN_LAYERS
        assert {(one.a.data_ptr(), one.c.data_ptr()) for one in sets} == {
            (a.data_ptr(), c.data_ptr())
        }
        before = a.normal_().clone()
        field.block(["ours"])
        both = min(a.shape[1], c.shape[1])
        for one in sets:
            product = before @ one.b
            before[:, :both] = torch.sin(product[:, :both])
        assert torch.equal(a, before) and torch.equal(c, product)
        # The elementwise arm repeats the last step and multiplies nothing.
        field.block([timing.ELEMENTWISE])
        assert torch.equal(a, before) and torch.equal(c, product)
        seen.append(sets[0])

    problem = Problem(*mnk, layout, "f16")
    arms = {"torch": timing.torch_mm, "ours": ours}
    result = timing.compare(
        arms, problem, protocol="chained", blocks=2, target_us=1, between=between
    )
    assert len(seen) == 2 and (result.sets, result.calls) == (8, 8)
    assert list(result.samples) == ["torch", "ours", "elementwise"]
    assert all(len(us) == 2 for us in result.samples.values())


def test_a_chain_of_short_calls_goes_through_its_layers_again(fake_device: list[object]) -> None:
    how = timing.plan(timing.torch_mm, nn(8, 8, 8), "chained", target_us=400, device=0, seed=0)
    assert (len(how.sets), how.calls, how.flushed) == (24, 96, False)


def test_energy_is_in_joules_and_none_where_it_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class NVMLError(Exception): ...

    def total(handle: str) -> int:
        if handle == "GPU-old":
            raise NVMLError("not supported")
        return 1_234_567

    nvml = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetTotalEnergyConsumption=total,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    for uuid, joules in (("new", 1234.567), ("old", None)):
        properties = SimpleNamespace(uuid=uuid)
        monkeypatch.setattr(
            torch.cuda, "get_device_properties", lambda device, found=properties: found
        )
        assert Telemetry(0).energy_j() == joules


def test_unknown_protocol_is_refused() -> None:
    with pytest.raises(ValueError, match='"hot", "cold" or "chained"'):
        timing.compare({"torch": timing.torch_mm}, nn(8, 8, 8), protocol="warm")  # type: ignore[arg-type]


def test_ratio_bounds_a_noisy_win_and_refuses_a_lucky_one() -> None:
    torch.manual_seed(0)
    noise = (1 + 0.02 * torch.randn(50)).tolist()
    faster = evidence.ratio([10.0] * 50, [9.0 * x for x in noise])
    assert faster.value == pytest.approx(10 / 9, rel=0.01)
    assert 1.09 < faster.lcb < faster.value < faster.ucb < 1.13
    lucky = evidence.ratio([10.0] * 5, [9.0, 10.5, 9.4, 10.8, 10.2])
    assert lucky.lcb < 1.0 < lucky.ucb
    same = evidence.ratio([10.0] * 50, [10.0 * x for x in noise])
    assert 0.98 < same.lcb <= same.value <= same.ucb < 1.02
    assert evidence.ratio([2.0, 3.0], [1.0, 1.0]) == evidence.ratio([2.0, 3.0], [1.0, 1.0])


def test_ratio_is_reckoned_here_whatever_the_program_has_made_the_default_device() -> None:
    expected = evidence.ratio([2.0, 2.2, 2.1], [1.0, 1.1, 1.0])
    with torch.device("meta"):
        assert evidence.ratio([2.0, 2.2, 2.1], [1.0, 1.1, 1.0]) == expected


def test_the_noise_floor_may_leave_more_than_one_in_a_hundred_out() -> None:
    trials = [dict.fromkeys(("hot", "cold"), (1.0, 0.99, 1.0 + i / 100)) for i in range(1, 11)]
    assert evidence.noise_floor(trials) == 0.1 and evidence.noise_floor(trials, 0.5) == 0.06
    assert evidence.stray((1.0, 0.97, 1.01)) == pytest.approx(0.03)


@pytest.mark.parametrize("sides", [([], []), ([1.0], [1.0, 2.0]), ([1.0], [0.0])])
def test_ratio_refuses_samples_that_are_no_pairs(sides: tuple[list[float], list[float]]) -> None:
    with pytest.raises(ValueError, match=r"paired samples|zero or less"):
        evidence.ratio(*sides)
