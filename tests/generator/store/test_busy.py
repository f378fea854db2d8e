"""Seconds in which compilers and GPUs had work, and their lines in a run's folder."""

from __future__ import annotations

from pathlib import Path

from hgemm_packs.generator.report.search_figures import busy_shares
from hgemm_packs.generator.store import busy
from hgemm_packs.generator.store.busy import Busy, BusySeconds


def test_each_second_counts_for_those_who_have_work() -> None:
    times = iter([10.0, 11.0, 13.0, 16.0, 20.0, 25.0])
    counted = Busy(lambda: next(times))  # 10
    counted.note(True, False)  # 11
    counted.note(True, True)  # 13
    counted.note(False, True)  # 16
    counted.note(False, False)  # 20
    found = counted.seconds()  # 25
    assert found == BusySeconds(wall=15.0, compilers=5.0, gpus=7.0, both=3.0)
    assert found.share(found.both) == 0.2
    assert busy.NOTHING.share(0.0) == 0.0


def test_lines_of_calls_are_read_again_and_others_are_not(tmp_path: Path) -> None:
    assert busy.read(tmp_path) == {}
    first, second = BusySeconds(4.0, 1.0, 2.0, 0.5), BusySeconds(8.0, 0.0, 8.0, 0.0)
    busy.add(tmp_path, "a", first)
    with (tmp_path / busy.FILE).open("a") as file:
        file.write('3\n{"run": "x"}\n{"run": "y", "wall": "4", "compilers": 0, "gpus": 0, ')
        file.write('"both": 0}\n{"run": "z", "wall": -1, "compilers": 0, "gpus": 0, "both": 0}\n')
        file.write('{"run": "torn", "wall": 4')
    with (tmp_path / busy.FILE).open("ab") as raw:
        raw.write(b"\n\xff\xfe\n")
    busy.add(tmp_path, "b", second)
    assert busy.read(tmp_path) == {"a": first, "b": second}
    assert busy_shares(busy.read(tmp_path)) == [
        {"run": "a", "wall_s": 4.0, "compilers": 0.25, "gpus": 0.5, "both": 0.125},
        {"run": "b", "wall_s": 8.0, "compilers": 0.0, "gpus": 1.0, "both": 0.0},
    ]
