"""The GPU device on the stand-in driver: real values, made-up times. Screening, and failures."""

from __future__ import annotations

import hashlib
import pickle
from types import SimpleNamespace

import pytest
import torch

from hgemm_packs import launcher
from hgemm_packs.generator.core.spec import JOB_KINDS, DeviceLost, Status
from hgemm_packs.generator.devices import gpu
from hgemm_packs.generator.gates.numeric import Numeric, NumericError
from hgemm_packs.generator.measure import admission, contest, screening
from hgemm_packs.pack.manifest import KernelEntry
from hgemm_packs.problem import Problem
from tests import cards, fake_driver
from tests.generator import stand_in
from tests.generator.stand_in import GOOD, run, words

# --- the device -----------------------------------------------------------------------------------


def test_facts_name_the_machine_and_not_its_uuid(machine: SimpleNamespace) -> None:
    facts = machine.device.facts
    assert (facts.arch, facts.versions) == ("sm_90a", {"driver": "1.2"})
    assert facts.sm_count > 0 and facts.l2_bytes > 0
    assert facts.uuid_hash == hashlib.sha256(b"made-up").hexdigest()[:16]
    assert (facts.peak_tflops, facts.peak_gbps) == (0.0, 0.0)


def test_facts_name_what_tells_siblings_apart(
    machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = machine.device.facts
    assert (bare.theoretical_mem_bw_gbps, bare.power_limit_w) == (0.0, 0.0), "unknown here"
    monkeypatch.setattr(launcher, "device_info", lambda index: cards.H200)
    facts = gpu.GpuDevice(0).facts
    assert (facts.theoretical_mem_bw_gbps, facts.power_limit_w) == (4916.736, 700.0)


def test_a_worker_is_sent_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker sees one GPU, whatever its number on the host."""
    assert pickle.loads(pickle.dumps(gpu.make)) is gpu.make
    monkeypatch.setattr(gpu, "GpuDevice", lambda index: index)
    for visible, index, made in ((1, 3, 0), (1, 0, 0), (4, 3, 3)):
        monkeypatch.setattr(torch.cuda, "device_count", lambda visible=visible: visible)
        assert gpu.make(index) == made


def test_jobs_of_no_kind_or_without_a_problem(machine: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="no job kind 'warm'; known: screen"):
        run(machine, "warm")
    for kind in set(JOB_KINDS) - {"gate", "ceilings"}:
        with pytest.raises(ValueError, match=f"a {kind} job needs a problem"):
            run(machine, kind, problem=None)


# --- screen ---------------------------------------------------------------------------------------


def test_screen_checks_values_and_times(machine: SimpleNamespace) -> None:
    reply = run(machine, "screen", *GOOD)
    assert {id_: r.samples["hot"] for id_, r in reply.results.items()} == {
        GOOD[0].id: (8.0,) * 3,
        GOOD[1].id: (9.0,) * 3,
        GOOD[2].id: (11.0,) * 3,
    }
    assert all(1e-4 < r.evidence["error"] < 3e-4 for r in reply.results.values())
    assert reply.baselines == {"torch": {"hot": (10.0,) * 3}}
    assert reply.gpu_seconds > 0
    # The length of a replay is that of the problem, not of each kernel. It once followed from a
    # single call of torch, whose time is mostly launch: three calls a replay, all kernels alike.
    assert machine.clock.captured == [
        ("torch", 1, 32),
        *((kernel.id, 1, 15) for kernel in GOOD),
    ]


def test_behind_is_a_screen_of_dependent_launches(
    machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same cubins, loaded to be launched so; each way keeps its own time."""
    machine.clock.us |= {f"{GOOD[0].id} behind": 6.0, f"{GOOD[1].id} behind": 8.5}
    dependent, load = [], gpu.launcher.load
    monkeypatch.setattr(gpu.launcher, "load", lambda *a: (dependent.append(a[3]), load(*a))[1])
    run(machine, "screen", *GOOD[:2])
    reply = run(machine, "behind", *GOOD[:2])
    assert dependent == [False, False, True, True]
    assert [name for name, *_ in machine.clock.captured][-4:] == [
        *(f"{kernel.id} behind" for kernel in GOOD[:2]),
        *(kernel.id for kernel in GOOD[:2]),
    ]
    assert machine.control.loads == 4
    times = {id_: r.samples["hot"] for id_, r in reply.results.items()}
    assert times == {GOOD[0].id: (6.0,) * 3, GOOD[1].id: (8.5,) * 3}
    alone = {id_: r.samples["alone"] for id_, r in reply.results.items()}
    assert alone == {GOOD[0].id: (8.0,) * 3, GOOD[1].id: (9.0,) * 3}
    assert all(1e-4 < r.evidence["error"] < 3e-4 for r in reply.results.values())
    assert run(machine, "screen", GOOD[0]).results[GOOD[0].id].samples["hot"] == (8.0,) * 3
    assert not machine.control.pdl and machine.control.loads == 4
    machine.control.noop = 1
    assert words(run(machine, "behind", GOOD[1]))[0][0] is Status.NUMERIC


def test_alone_the_fastest_behind_one_another_are_timed_until_enough_are_level(
    machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch takes 10 us, so that GOOD[2], alone 11, is not one of them."""
    monkeypatch.setattr(gpu, "ENOUGH_LEVEL", 1)
    for order, timed in (((2, 0, 1), {2, 0}), ((0, 1, 2), {0})):
        for place, i in enumerate(order):
            machine.clock.us[f"{GOOD[i].id} behind"] = 6.0 + place
        results = run(machine, "behind", *GOOD).results
        seen = {i for i, kernel in enumerate(GOOD) if "alone" in results[kernel.id].samples}
        assert seen == timed
    assert results[GOOD[0].id].samples["alone"] == (8.0,) * 3


def test_screen_loads_and_lays_out_once(machine: SimpleNamespace) -> None:
    run(machine, "screen", *GOOD)
    run(machine, "screen", *GOOD[:2], seed=6)
    assert machine.control.loads == 3
    assert [name for name, _, _ in machine.clock.captured].count("torch") == 1


def test_screen_refuses_wrong_values(machine: SimpleNamespace) -> None:
    """One kernel reads B as if it were stored the other way; one writes nothing at all."""
    image = fake_driver.image("kernel", "ptr_v1", "nn")
    swapped = stand_in.kernel("ptr_v1", "nt", image)
    machine.clock.us[swapped.id] = 8.0
    square = Problem(64, 64, 64, "nt", "f16")
    reply = run(machine, "screen", swapped, problem=square)
    (status, detail), result = words(reply)[0], reply.results[swapped.id]
    assert status is Status.NUMERIC and "elements wrong, relative error 1." in detail
    assert result.samples == {}
    machine.control.noop = 1
    (status, detail) = words(run(machine, "screen", GOOD[0], problem=square))[0]
    assert (status, detail) == (Status.NUMERIC, "4096 elements wrong, relative error inf")


def test_hopeless_kernels_are_timed_once(machine: SimpleNamespace) -> None:
    machine.clock.us |= {GOOD[0].id: 39.0, GOOD[1].id: 5.0, GOOD[2].id: 20.5}
    reply = run(machine, "screen", *GOOD)
    counts = [len(r.samples["hot"]) for r in reply.results.values()]
    # Four times torch's 10 us at first, then four times the best.
    assert counts == [3, 3, 1]
    assert all(r.status is Status.OK for r in reply.results.values())
    again = run(machine, "screen", GOOD[0])
    assert again.results[GOOD[0].id].samples == {"hot": (39.0,)}


def test_long_kernels_are_not_captured(machine: SimpleNamespace) -> None:
    machine.clock.us |= {"torch": 900.0, GOOD[0].id: 800.0, GOOD[1].id: 150.0}
    reply = run(machine, "screen", *GOOD[:2])
    assert [r.samples["hot"] for r in reply.results.values()] == [(800.0,) * 3, (150.0,) * 3]
    assert machine.clock.captured == [(GOOD[1].id, 1, 1)]


def test_calls_behind_one_another_read_memory_of_their_own(machine: SimpleNamespace) -> None:
    """Where L2 does not hold it: of such the driver's stand-in has little."""
    machine.clock.us |= {f"{GOOD[0].id} behind": 50.0, GOOD[0].id: 50.0, "torch": 50.0}
    small, large = Problem(8, 8, 8, "nt", "f16"), Problem(64, 64, 64, "nt", "f16")
    for problem, sets in ((small, 1), (large, 2)):
        for kind, taken in (("screen", 1), ("behind", sets)):
            machine.clock.captured.clear()
            run(machine, kind, GOOD[0], problem=problem)
            name = f"{GOOD[0].id} behind" if kind == "behind" else GOOD[0].id
            (calls,) = (each for each in machine.clock.captured if each[0] == name)
            assert calls == (name, taken, 2 + taken)


@pytest.mark.parametrize(("us", "calls"), [(1.0, 32), (5.0, 30), (60.0, 2), (5000.0, 1)])
def test_calls_of_a_replay(us: float, calls: int) -> None:
    assert screening.calls_for(us) == calls


def test_scenes_make_room(machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    problems = [Problem(64, 64, 64 * i, "nt", "f16") for i in (1, 2, 3)]
    size = 2 * 2 * (64 * 64 * 3) + 4 * 64 * 64  # of the first: two sets, and the reference
    scenes = gpu.Scenes(0, 3 * size)
    first, second = (scenes.of(problem, 1) for problem in problems[:2])
    assert first.bytes == size
    assert scenes.of(problems[0], 2) is first
    third = scenes.of(problems[2], 1)  # pushes out the one not used for longest
    assert scenes.of(problems[0], 1) is first and scenes.of(problems[2], 1) is third
    assert scenes.of(problems[1], 1) is not second
    tight = gpu.Scenes(0, 0)
    assert tight.of(problems[0], 1) is tight.of(problems[0], 1)


# --- failures -------------------------------------------------------------------------------------


OOM = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 GiB.")
NOT_SUPPORTED = RuntimeError("cublasLtMatmulAlgoGetHeuristic: NOT_SUPPORTED (15)")


@pytest.mark.parametrize(
    ("kind", "where", "error"),
    [
        ("screen", (screening, "operands"), OOM),  # laying the problem out
        ("screen", (screening, "torch_arm"), RuntimeError("CUBLAS_STATUS_ALLOC_FAILED")),
        ("screen", (screening.Scene, "screen"), OOM),  # what a kernel is compared with
        ("race", (admission, "operands"), OOM),
        ("race", (contest.timing, "operands"), OOM),
        ("finals", (admission, "sample_reference"), OOM),
        ("finals", (gpu.baselines, "best_cublaslt"), NOT_SUPPORTED),
        ("confirm", (gpu.baselines, "best_cublaslt"), NOT_SUPPORTED),
        ("confirm", (contest.timing, "operands"), OOM),
        ("gate", (gpu.numeric, "check"), OOM),
        ("noise", (contest.timing, "operands"), OOM),
        ("noise", (contest.timing, "plan"), NOT_SUPPORTED),
        ("ceilings", (gpu.ceilings, "measure_streams"), OOM),
    ],
)
def test_what_fails_without_a_kernel_fails_the_job(
    machine: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    where: tuple[object, str],
    error: Exception,
) -> None:
    """Want of memory, and a library that cannot do the problem, once cost the kernels of the job
    three processes each, and refused them everywhere after a second such problem."""

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(*where, fails)
    reply = run(machine, kind, *(GOOD if kind not in ("noise", "ceilings") else ()))
    assert reply.results == {} and reply.baselines == {}
    assert reply.evidence == {"failed": f"{type(error).__name__}: {error}"}


def test_a_gate_job_asks_the_state_gate_as_well(
    machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it finds is the kernel's; a fault that it finds takes the device with it."""
    words_ = "C held an old product: 9 elements differ from the first result"

    def keep(entry: KernelEntry, kernel: object, index: int, seed: int) -> None:
        assert (index, seed) == (0, 5)
        if entry.id == GOOD[1].id:
            raise NumericError(words_)

    monkeypatch.setattr(gpu.numeric, "check", lambda *_: Numeric(1e-4, 7))
    monkeypatch.setattr(gpu.state, "check_kernel", keep)
    good, bad = words(run(machine, "gate", *GOOD[:2]))
    assert (good, bad) == ((Status.OK, ""), (Status.NUMERIC, words_))

    def lost(index: int) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", lost)
    with pytest.raises(DeviceLost, match=f"{GOOD[1].id}.: CUDA error: an illegal memory access"):
        run(machine, "gate", GOOD[1])


def test_what_a_kernel_does_wrong_is_a_result(machine: SimpleNamespace) -> None:
    record = stand_in.kernel("ptr_v1", id="1" * 64, block=33)
    image = stand_in.kernel("ptr_v1", cubin=fake_driver.image("kernel", "ptr_v1", threads=64))
    sizes = stand_in.kernel(
        "tma2_v1", id="2" * 64, dims={d: {"min": 8, "max": 16, "multiple_of": 8} for d in "mnk"}
    )
    reply = run(machine, "screen", record, image, sizes, GOOD[0])
    found = words(reply)
    assert [status for status, _ in found] == [
        Status.PARSE,
        Status.LAUNCH,
        Status.LAUNCH,
        Status.OK,
    ]
    assert "block" in found[0][1]
    assert "block of 128 threads, the cubin allows 64" in found[1][1]
    assert "M=24: this kernel takes 8 to 16" in found[2][1]


@pytest.mark.parametrize("kind", ["screen", "race"])
def test_what_one_kernel_wrote_over_is_not_the_next_ones_fault(
    machine: SimpleNamespace, kind: str
) -> None:
    """One that is right and overwrites its A made all that came later wrong, once and everywhere;
    what is wrong by itself still is."""
    image = fake_driver.image("kernel", "ptr_v1", "nn")
    swapped = stand_in.kernel("ptr_v1", "nt", image)
    machine.clock.us[swapped.id] = 8.0
    square = Problem(64, 64, 64, "nt", "f16")
    run(machine, "screen", *GOOD, swapped, problem=square)
    spoils = GOOD[0].id
    good = machine.device._kernels[spoils]

    def arm(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        good.arm(a, b, c)
        a.zero_()

    machine.device._kernels[spoils] = good._replace(arm=arm)
    for _ in range(2):  # the problem stays laid out from job to job
        reply = run(machine, kind, GOOD[0], GOOD[1], swapped, GOOD[2], problem=square)
        wrong = [id_ for id_, r in reply.results.items() if r.status is Status.NUMERIC]
        assert wrong == [swapped.id] and len(reply.results) == 4


@pytest.mark.parametrize("kind", ["screen", "race", "finals", "confirm"])
def test_a_launch_that_fails_is_a_result_while_the_device_lives(
    machine: SimpleNamespace, kind: str
) -> None:
    machine.control.fail_launches = 1
    assert words(run(machine, kind, GOOD[0])) == [
        (Status.LAUNCH, "launch: CUDA_ERROR_LAUNCH_FAILED")
    ]


def test_a_lost_device_is_an_exception_that_names_the_kernel(machine: SimpleNamespace) -> None:
    run(machine, "screen", GOOD[0])  # lays out the problem
    machine.control.fail_launches = 1
    machine.lost = "CUDA error: an illegal memory access was encountered"
    with pytest.raises(DeviceLost, match=f"{GOOD[1].id}.*illegal memory access"):
        run(machine, "screen", GOOD[1], GOOD[2])
