"""benchmarks.measure.tune: what it counts, on the stand-in driver where a tuning is needed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks.measure import tune
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest import DeviceProfile
from hgemm_packs.tuning.recording import Recording
from tests import packs
from tests.cpu.conftest import bare as bare
from tests.cpu.conftest import driver_library as driver_library
from tests.cpu.tuning import world
from tests.cpu.tuning.conftest import pack as pack

CHILD = """
import json, sys, time
from pathlib import Path
import pytest
from hgemm_packs.tuning.recording import Recording
from tests import fake_driver
from tests.cpu.tuning import world

with pytest.MonkeyPatch.context() as patch:
    fake_driver.start(patch, Path({driver!r}))
    bench = world.FakeBench(world.speedups(best=1.3), before=lambda: time.sleep(0.1))
    shapes = Recording.load(sys.argv[1])
    done = world.run(bench, shapes, seconds=float(sys.argv[2]), show=None)
    gains = [[str(each.problem), each.kernel] for each in done.gains]
    print(json.dumps({{"known": done.known - {forgets}, "left": len(done.left), "gains": gains}}))
"""


@pytest.mark.parametrize(("forgets", "lost"), [(0, 0), (1, 2)])
def test_problems_that_a_kill_cost_are_counted(
    pack: Pack,
    driver_library: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    forgets: int,
    lost: int,
) -> None:
    """A tuning that forgot one is told from one that forgot none."""
    monkeypatch.setattr(tune, "CHILD", CHILD.format(driver=str(driver_library), forgets=forgets))
    monkeypatch.setattr(tune, "KILLED_AFTER", 1)
    shapes = tune.write_shapes(tmp_path / "shapes.json", dict.fromkeys(world.PROBLEMS, 1))
    assert tune.count_lost(shapes, tmp_path / "own", pack.path) == lost


def test_a_tuning_of_its_own_process_is_read(
    pack: Pack, driver_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune, "CHILD", CHILD.format(driver=str(driver_library), forgets=0))
    shapes = tune.write_shapes(tmp_path / "shapes.json", {world.FIRST: 3})
    assert dict(Recording.load(shapes)) == {world.FIRST: 3}
    found = tune.tune(shapes, tmp_path / "own", pack.path, 60.0)
    assert tune.read_chosen(found) == {str(world.FIRST): "best"}
    monkeypatch.setattr(tune, "CHILD", "raise SystemExit('no GPU')")
    with pytest.raises(RuntimeError, match="no GPU"):
        tune.tune(shapes, tmp_path / "own", pack.path, 60.0)


def test_a_renamed_pack_is_whole_and_of_another_gpu_model(pack: Pack, tmp_path: Path) -> None:
    renamed = Pack.open_verified(tune.rename(pack.path, tmp_path / "renamed"))
    assert [each.name for each in renamed.manifest.device_profiles] == ["NVIDIA H200 (renamed)"]
    assert renamed.manifest.blob == pack.manifest.blob


def test_a_renamed_profile_is_known_by_its_name_alone(tmp_path: Path) -> None:
    """A card of the same hardware has the table's rows whatever it is called."""
    gpu = packs.H200
    known = DeviceProfile(gpu.name, gpu.sm_count, gpu.l2_bytes, 4500.0, 4800.0, 700.0)
    made = packs.write_good(tmp_path / "pack", device_profiles=(known,))
    renamed = Pack.open_verified(tune.rename(made.path, tmp_path / "renamed"))
    (found,) = renamed.manifest.device_profiles
    assert found.theoretical_mem_bw_gbps is None and found.power_limit_w is None
    assert found.mem_bw_gbps == known.mem_bw_gbps and found.name == f"{known.name} (renamed)"


def test_what_was_tuned_is_compared_with_the_best_of_all_kernels(
    pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FIRST got the second best, SECOND the best, THIRD was not measured in time."""
    bench = world.FakeBench({p: {"good": 1.2, "best": 1.3} for p in world.PROBLEMS})
    monkeypatch.setattr("hgemm_packs.tuning.bench.GpuBench", lambda index: bench)
    shapes = tune.write_shapes(tmp_path / "shapes.json", dict.fromkeys(world.PROBLEMS, 1))
    gains = [[str(world.FIRST), "good"], [str(world.SECOND), "best"]]
    found = tune.compare_with_all(pack.path, {"gains": gains, "shapes": shapes})
    assert {each["problem"]: (each["tuned"], each["all"], each["kernels"]) for each in found} == {
        str(world.FIRST): (1.2, 1.3, 4),
        str(world.SECOND): (1.3, 1.3, 4),
        str(world.THIRD): (1.0, 1.3, 4),
    }
    expected = (math.log(1.2) + math.log(1.3)) / (3 * math.log(1.3))
    assert tune.share(found) == pytest.approx(expected, abs=1e-4)


def test_what_was_tuned_is_compared_with_what_the_table_names(
    pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = dict(zip(world.NAMES, world.kernels(), strict=True))
    rows = [packs.row(problem, kernels["good"]) for problem in world.PROBLEMS]
    official = world.write(tmp_path / "official", rows=rows)
    bench = world.FakeBench({p: {"good": 1.2, "best": 1.3} for p in world.PROBLEMS})
    monkeypatch.setattr("hgemm_packs.tuning.bench.GpuBench", lambda index: bench)
    assert tune.draw_wins(official.path).keys() == {*world.PROBLEMS}
    shapes = tune.write_shapes(tmp_path / "shapes.json", tune.draw_wins(official.path))
    gains = [[str(world.FIRST), "good"], [str(world.SECOND), "best"], [str(world.THIRD), None]]
    found = tune.compare_with_table(official.path, {"gains": gains, "shapes": shapes})
    assert {each["problem"]: each["ratio"] for each in found} == {
        str(world.FIRST): 1.0,
        str(world.SECOND): round(1.3 / 1.2, 4),
        str(world.THIRD): round(1.0 / 1.2, 4),
    }


def test_the_share_is_of_logarithms() -> None:
    assert tune.share([{"all": 1.21, "tuned": 1.1}, {"all": 1.0, "tuned": 1.0}]) == 0.5
    assert tune.share([{"all": 1.2, "tuned": 1.2}, {"all": 1.1, "tuned": 1.1}]) == 1.0
    samples = {protocol: {"torch": [10.0, 12.0], "k": [5.0, 6.0]} for protocol in ("hot", "cold")}
    samples["cold"]["k"] = [10.0, 12.0]
    assert math.isclose(tune.speedup(samples, "k"), math.sqrt(2.0))
    assert tune.speedup(samples, "absent") == 0.0


def test_the_layers_that_are_tuned_are_not_in_the_table(pack: Pack, tmp_path: Path) -> None:
    every = tune.list_unmeasured(pack.path)
    assert {problem.m for problem in every} == {*tune.TOKENS} and len(every) >= 12
    first = next(iter(every))
    known = world.write(tmp_path / "known", rows=[packs.row(first, None)])
    assert tune.list_unmeasured(known.path).keys() == every.keys() - {first}
