"""`tune`: what is measured, in which order, what the table says afterwards and who uses it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hgemm_packs import launcher, report, select
from hgemm_packs.errors import TuneError
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.local import place
from hgemm_packs.problem import Problem
from hgemm_packs.settings import disabled
from hgemm_packs.tuning import session, tune
from tests import fake_driver, packs
from tests.cpu.call.served_packs import install, multiply
from tests.cpu.tuning import world
from tests.cpu.tuning.world import FIRST, PROBLEMS, SECOND, THIRD, FakeBench


def chosen(problem: Problem, index: int = 0) -> tuple[str, str]:
    """What runs a problem now: the code, and the kernel's name."""
    found = select.resolve(problem, index)
    return found.code, found.kernel.name if found.kernel else ""


def test_a_win_and_a_loss_are_rows_that_calls_follow_at_once(
    pack: Pack, bare: fake_driver.Started
) -> None:
    multiply(bare, FIRST)
    assert bare.fallbacks() == {"not_measured": 1}
    bench = FakeBench({FIRST: {"good": 1.2, "best": 1.3}, SECOND: {"good": 0.9}})
    done = world.run(bench, [FIRST, SECOND])
    rows = {each.problem: (each.kernel, each.row.hot.speedup) for each in done.gains}
    assert rows == {FIRST: ("best", 1.3), SECOND: (None, 0.9)}
    assert chosen(FIRST) == ("kernel", "best")
    assert chosen(SECOND) == ("cublas_measured_better", "")
    multiply(bare, FIRST)
    multiply(bare, SECOND)
    assert launcher.counters()["hits"] == 1
    assert bare.fallbacks() == {"not_measured": 1, "cublas_measured_better": 1}


def test_a_later_process_uses_the_table(pack: Pack) -> None:
    world.run(FakeBench(world.speedups(best=1.3)))
    select.reset()
    assert [chosen(problem) for problem in PROBLEMS] == [("kernel", "best")] * 3
    first = select.find_packs().packs[0]
    assert first.local and first.manifest.pack.name.startswith("local-")
    assert first.manifest.pack.name != pack.manifest.pack.name
    first.verify()
    row = first.manifest.row(packs.H200.name, FIRST.key)
    assert row is not None and (row.hot.us, row.hot.torch_us, row.pairs) == (
        pytest.approx(10 / 1.3, rel=0.02),
        pytest.approx(10.0, rel=0.02),
        21,
    )


def test_a_kernel_is_named_by_its_confirmation_and_not_by_the_finals(pack: Pack) -> None:
    bench = FakeBench(world.speedups(best=1.3), confirmed={FIRST: {"best": 1.001}})
    world.run(bench)
    assert chosen(FIRST)[0] == "cublas_measured_better"
    assert chosen(SECOND) == ("kernel", "best")


def test_a_win_within_the_noise_of_torch_itself_is_none(pack: Pack) -> None:
    """The floor of the packs is 2%; here torch strays from itself by 5%."""
    world.run(FakeBench({FIRST: {"best": 1.04}, SECOND: {"best": 1.2}}, stray=0.05))
    assert chosen(FIRST)[0] == "cublas_measured_better"
    assert chosen(SECOND) == ("kernel", "best")
    assert select.find_packs().packs[0].manifest.policy.noise_floor >= 0.04


def test_one_disturbed_measurement_costs_its_own_row_alone(pack: Pack) -> None:
    problems = [replace(FIRST, m=64 * place) for place in range(1, 13)]
    bench = FakeBench({p: {"best": 1.05} for p in problems}, stray={problems[4]: 0.08})
    done = world.run(bench, problems)
    assert {each.problem for each in done.gains if each.kernel is None} == {problems[4]}
    assert select.find_packs().packs[0].manifest.policy.noise_floor == 0.02  # that of the pack


def test_what_every_kernel_loses_is_timed_against_torch_but_not_confirmed(pack: Pack) -> None:
    bench = FakeBench({FIRST: {"good": 0.7}})
    world.run(bench, [FIRST])
    assert [(what, names) for what, _, names in bench.did[1:]] == [("finals", ("good",))]


def test_rows_that_the_pack_has_are_left_out_until_asked_for(
    bare: fake_driver.Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HGEMM_PACKS_CACHE", str(tmp_path / "cache"))
    official = packs.row(FIRST, world.kernels()[1])
    install(monkeypatch, world.write(tmp_path / "pack", rows=[official]).path)
    assert chosen(FIRST) == ("kernel", "good")
    done = world.run(FakeBench(world.speedups(best=1.3)))
    assert {each.problem for each in done.gains} == {SECOND, THIRD} and done.known == 1
    assert chosen(FIRST) == ("kernel", "good")
    world.run(FakeBench(world.speedups(best=1.3)), again=True)
    assert chosen(FIRST) == ("kernel", "best")


def test_torch_stays_where_this_machine_measured_it_faster_whatever_a_pack_says(
    bare: fake_driver.Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HGEMM_PACKS_CACHE", str(tmp_path / "cache"))
    official = packs.row(FIRST, world.kernels()[1])
    install(monkeypatch, world.write(tmp_path / "pack", rows=[official]).path)
    world.run(FakeBench(), [FIRST], again=True)
    assert chosen(FIRST)[0] == "cublas_measured_better"
    assert "cublas_measured_better" in report.explain_problem(FIRST, 0)


def test_the_batch_invariant_mode_has_the_kernels_of_the_packs(pack: Pack) -> None:
    before = select.resolve(FIRST, 0, invariant=True)
    world.run(FakeBench(world.speedups(slow=1.5)))
    after = select.resolve(FIRST, 0, invariant=True)
    assert (after.code, after.kernel) == (before.code, before.kernel)


def test_a_pack_that_is_preferred_comes_behind_what_this_machine_measured(
    pack: Pack, tmp_path: Path
) -> None:
    world.run(FakeBench({FIRST: {"best": 1.3}}), [FIRST])
    other = world.write(tmp_path / "other", rows=[packs.row(FIRST, world.kernels()[1])])
    select.prefer(other)
    assert chosen(FIRST) == ("kernel", "best")
    assert [each.local for each in select.find_packs().packs] == [True, False, False]


def test_what_the_program_spends_most_time_on_comes_first(pack: Pack) -> None:
    bench = FakeBench()
    world.run(bench, {FIRST: 1, SECOND: 500, THIRD: 30})
    assert [p for what, p, _ in bench.did if what == "screen"] == [SECOND, THIRD, FIRST]


class Clock:
    """time.monotonic, which jobs move."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        patch.setattr(session.time, "monotonic", lambda: self.now)

    def spend(self, seconds: float) -> None:
        self.now += seconds


def test_no_problem_begins_when_the_time_is_over_and_the_next_call_goes_on(
    pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    bench = FakeBench(world.speedups(best=1.3), before=lambda: clock.spend(0.4))
    done = world.run(bench, seconds=2.0)  # a problem takes three jobs
    assert len(done.gains) == 2 and len(done.left) == 1
    assert "1 problems are left: the same call goes on with them" in str(done)
    again = FakeBench(world.speedups(best=1.3))
    done = world.run(again)
    assert (len(done.gains), done.left, done.known) == (1, (), 2)
    assert {problem for _, problem, _ in again.did}.isdisjoint({p for _, p, _ in bench.did})
    assert [chosen(problem) for problem in PROBLEMS] == [("kernel", "best")] * 3


def test_screens_get_the_share_of_time_that_a_problem_has(
    pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, until = Clock(monkeypatch), []

    class Watched(FakeBench):
        def screen(self, problem, candidates, when):  # type: ignore[no-untyped-def]
            until.append(when - clock.now)
            clock.spend(when - clock.now)
            return super().screen(problem, candidates, when)

    world.run(Watched(), seconds=30.0)
    assert until == pytest.approx([9.4, 9.7, 9.9 + 0.0], abs=0.6)


def test_a_gpu_model_that_no_pack_was_measured_on_gets_its_first_table(pack: Pack) -> None:
    assert chosen(FIRST, 1)[0] == "profile"
    world.run(FakeBench(world.speedups(best=1.3)), index=1)
    assert [chosen(problem, 1) for problem in PROBLEMS] == [("kernel", "best")] * 3
    assert chosen(FIRST, 0)[0] == "not_measured"
    (profile,) = select.find_packs().packs[0].manifest.device_profiles
    assert (profile.name, profile.mem_bw_gbps) == ("Fake device", 4000.0)


def test_a_call_that_finds_all_known_writes_no_table_again(pack: Pack) -> None:
    folder = world.run(FakeBench(world.speedups(best=1.3))).folder
    before = place.read_pointer(folder), (folder / place.POINTER).stat().st_mtime_ns
    world.run(FakeBench())
    assert (place.read_pointer(folder), (folder / place.POINTER).stat().st_mtime_ns) == before
    world.run(FakeBench(world.speedups(best=1.2)), [FIRST], again=True)
    assert place.read_pointer(folder) != before[0]


def test_what_no_kernel_takes_is_said(pack: Pack) -> None:
    odd, batch = Problem(64, 63, 128, "nn", "f16"), replace(FIRST, batches=4)
    done = world.run(FakeBench(), [odd, batch])
    assert dict(done.unfit) == {
        odd: "no kernel of the packs takes it",
        batch: "batches are not measured here",
    }


def test_a_problem_that_is_too_large_for_the_gpu_is_left_and_the_others_go_on(pack: Pack) -> None:
    class Small(FakeBench):
        def finals(self, problem, candidates, seed):  # type: ignore[no-untyped-def]
            if problem == THIRD:
                raise torch.OutOfMemoryError
            return super().finals(problem, candidates, seed)

    done = world.run(Small(world.speedups(best=1.3)))
    assert dict(done.unfit) == {THIRD: "the GPU has too little memory for it"}
    assert {each.problem for each in done.gains} == {FIRST, SECOND}


def test_torch_is_torch_while_it_is_measured(pack: Pack, bare: fake_driver.Started) -> None:
    def call() -> None:
        a = torch.ones(64, 128, dtype=torch.float16)
        bare.matmul(a, torch.ones(128, 64, dtype=torch.float16))

    world.run(FakeBench({FIRST: {"best": 1.3}}), [FIRST])
    before = launcher.counters()["hits"]
    world.run(FakeBench(before=call), [SECOND])
    assert launcher.counters()["hits"] == before
    call()
    assert launcher.counters()["hits"] == before + 1


def test_progress_is_told_of_every_problem(pack: Pack) -> None:
    told = []
    bench = FakeBench({FIRST: {"best": 1.3}})
    world.run(bench, [FIRST, SECOND], show=lambda *each: told.append(each))
    assert [each[:2] for each in told] == [(0, 2), (1, 2), (2, 2)]
    assert {each[2].problem: each[2].kernel for each in told[1:]} == {FIRST: "best", SECOND: None}


@pytest.mark.parametrize(
    ("asked", "error", "text"),
    [
        ([], TuneError, "nothing to measure"),
        (7, TypeError, "int is no torch.nn.Module, recording, file or list of shapes"),
        ([(1, 2)], TypeError, r"\(1, 2\) is not \(M, N, K\[, layout\[, dtype\]\]\)"),
        ([(1, 0, 8)], ValueError, "M, N and K are not numbers from 1 on"),
        ([(1, 8, 8, "xy")], ValueError, "layout='xy' is not one of"),
    ],
)
def test_what_cannot_be_asked_for_is_an_error(
    pack: Pack, asked: object, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        world.run(FakeBench(), asked)


def test_without_a_pack_for_the_device_the_error_says_which_there_are(
    bare: fake_driver.Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TuneError, match=r"no pack here has kernels for NVIDIA H200 \(sm_90a\)"):
        world.run(FakeBench())
    install(monkeypatch, packs.write_good(tmp_path / "old", arch="sm_80").path)
    select.reset()
    with pytest.raises(TuneError, match="the pack is made for sm_80"):
        world.run(FakeBench())


def test_a_process_that_is_switched_off_is_not_tuned(pack: Pack) -> None:
    with disabled(), pytest.raises(TuneError, match="kernels are switched off"):
        world.run(FakeBench())


def test_without_cuda_the_public_function_says_so(pack: Pack) -> None:
    with pytest.raises(TuneError, match="torch sees none here"):
        tune.tune([FIRST])


def test_the_folder_is_private_and_of_the_gpu_model(pack: Pack, tmp_path: Path) -> None:
    done = world.run(FakeBench())
    assert done.folder.parent == place.base_of(tmp_path / "cache")
    assert done.folder.name.startswith("nvidia-h200-")
    assert done.folder.stat().st_mode & 0o777 == 0o700
