"""Counters of a GPU with a stand-in for ncu: what it prints is read, and whatever goes wrong is a
sentence."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hgemm_packs.generator.core.spec import CompiledKernel
from hgemm_packs.generator.devices import counters
from hgemm_packs.generator.devices.counters import METRICS, STALLS, Counters
from hgemm_packs.measure.operands import operands
from hgemm_packs.problem import Problem
from tests.generator import stand_in

PROBLEM = Problem(64, 32, 72, "nt", "f16")
KERNEL = CompiledKernel({"symbol": "a_kernel"}, b"cubin")
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"

# Does what the file `mode` beside it says, and writes down that it was started.
STAND_IN = """#!{python}
import os, pickle, subprocess, sys, time
words = sys.argv[1:]
here = os.path.dirname(os.path.abspath(__file__))
mode = open(os.path.join(here, "mode")).read()
given = dict(zip(words[1:15:2], words[2:15:2]))
assert words[0] == "--csv" and words[15:18] == [
    sys.executable, "-m", "hgemm_packs.generator.devices.counters"
]
assert given.pop("--metrics").count(",") == {commas}
log = given.pop("--log-file")
assert given == {{
    "--page": "raw", "--print-units": "base", "--clock-control": "none",
    "--kernel-name": "a_kernel", "--launch-count": "1",
}}
kernel, problem = pickle.load(open(words[18], "rb"))
assert (kernel.cubin, problem.m, len(words)) == (b"cubin", 64, 19)
with open(os.path.join(here, "journal"), "a") as journal:
    journal.write("%d %s\\n" % (os.getpid(), os.environ["CUDA_VISIBLE_DEVICES"]))
if mode == "hangs":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    open(os.path.join(here, "child"), "w").write(str(child.pid))
    child.wait()
if mode.startswith("ends"):
    open(log, "w").write("==ERROR== The application returned an error code (1).\\n")
    sys.exit("Traceback (most recent call last):\\n  File\\n" + mode)
if mode == "runs":
    os.execv(words[15], words[15:])
if mode == "silent":
    sys.exit(3)
open(log, "wb").write(open(os.path.join(here, "prints"), "rb").read())
"""

#: As ncu counts: thousands have commas, what it could not count is "n/a".
COUNTED = {
    "gpu__time_duration.sum": ("ns", "12,544"),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": ("%", "61.5"),
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "23.25"),
    "dram__bytes_read.sum": ("byte", "3,145,728"),
    "dram__bytes_write.sum": ("byte", "1,024"),
    "lts__t_sector_hit_rate.pct": ("%", "70.5"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "18.75"),
    "smsp__issue_active.avg.pct_of_peak_sustained_active": ("%", "9.5"),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": ("", "0"),
    "launch__registers_per_thread": ("register/thread", "168"),
    **{STALL.format(name): ("inst", "0") for name in STALLS},
    STALL.format("long_scoreboard"): ("inst", "6"),
    STALL.format("gmma"): ("inst", "3"),
    STALL.format("barrier"): ("inst", "2.5"),
    STALL.format("wait"): ("inst", "0.5"),
}
NUMBERS = {
    "us": 12.544,
    "tensor_percent": 61.5,
    "dram_percent": 23.25,
    "dram_bytes": 3146752.0,
    "l2_hit_percent": 70.5,
    "occupancy_percent": 18.75,
    "issue_percent": 9.5,
    "bank_conflicts": 0.0,
    "registers": 168.0,
}


def as_csv(counted: dict[str, tuple[str, str]], launches: int = 1) -> str:
    names = ["ID", "Kernel Name", "Block Size", *counted]
    units = ["", "", "", *(unit for unit, _ in counted.values())]
    values = ["0", "a_kernel", "(384, 1, 1)", *(value for _, value in counted.values())]
    rows = [names, units, *[values] * launches]
    lines = [",".join(f'"{cell}"' for cell in row) for row in rows]
    return "==PROF== Connected to process 7\n" + "\n".join(lines) + "\n"


class Ncu:
    """The stand-in's folder, which is all that is on the PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / counters.PROGRAM
        commas = sum(map(len, METRICS.values())) + len(STALLS) - 1
        program.write_text(STAND_IN.format(python=sys.executable, commas=commas))
        program.chmod(0o755)
        self.says("")

    def says(self, prints: str | bytes, mode: str = "prints") -> None:
        data = prints if isinstance(prints, bytes) else prints.encode()
        (self.folder / "prints").write_bytes(data)
        (self.folder / "mode").write_text(mode)

    @property
    def starts(self) -> list[list[str]]:
        """Process and GPU of each start."""
        path = self.folder / "journal"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ncu:
    monkeypatch.setenv("PATH", str(tmp_path))
    return Ncu(tmp_path)


def test_what_the_gpu_counted_is_read_with_its_units(ncu: Ncu) -> None:
    ncu.says(as_csv(COUNTED))
    found = counters.read(KERNEL, PROBLEM, "3")
    assert found == Counters(NUMBERS, (("long_scoreboard", 50.0), ("gmma", 25.0)))
    assert [gpu for _, gpu in ncu.starts] == ["3"]
    ncu.says(as_csv({**COUNTED, "gpu__time_duration.sum": ("nsecond", "12544")}, launches=2))
    assert counters.read(KERNEL, PROBLEM, "3") == found  # the first launch, as older ones print it


def test_what_was_not_counted_is_left_out(ncu: Ncu) -> None:
    missing = {"dram__bytes_write.sum": ("byte", "n/a"), STALL.format("gmma"): ("", "nan")}
    some = {**COUNTED, **missing}
    del some["lts__t_sector_hit_rate.pct"]
    ncu.says(as_csv(some))
    found = counters.read(KERNEL, PROBLEM, "0")
    assert isinstance(found, Counters)
    left = {n: v for n, v in NUMBERS.items() if n not in ("dram_bytes", "l2_hit_percent")}
    assert found.numbers == left
    assert [name for name, _ in found.stalls] == ["long_scoreboard", "barrier"]
    assert found.stalls[0][1] == pytest.approx(100 * 6 / 9)
    ncu.says(as_csv({"launch__registers_per_thread": ("", "40")}))
    assert counters.read(KERNEL, PROBLEM, "0") == Counters({"registers": 40.0})


def test_a_driver_that_permits_no_counters_is_one_sentence(ncu: Ncu) -> None:
    ncu.says(
        "==PROF== Connected to process 7\n"
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
        "Performance Counters on the target device 0.\n"
    )
    said = counters.read(KERNEL, PROBLEM, "0")
    assert said == "the driver permits no counters here (ERR_NVGPUCTRPERM)"


@pytest.mark.parametrize(
    ("prints", "mode", "words"),
    [
        ("==ERROR== Failed to find metric x\n", "prints", "ncu: Failed to find metric x"),
        (
            "",
            "ends: RuntimeError: no room",
            "ncu: The application returned an error code (1). ends: RuntimeError: no room",
        ),
        ("", "silent", "ncu: exit status 3"),
    ],
)
def test_what_ncu_complains_of_is_the_reason(ncu: Ncu, prints: str, mode: str, words: str) -> None:
    ncu.says(prints, mode)
    assert counters.read(KERNEL, PROBLEM, "0") == words


NAMES = '"ID","Kernel Name","launch__registers_per_thread"\n'


@pytest.mark.parametrize(
    "prints",
    [
        "",
        "==PROF== Connected\n==WARNING== No kernels were profiled.\n",
        b"\x00\xff\xfe\x00" * 100,
        NAMES,
        NAMES + '"","",""\n',
        NAMES + '"","","register/thread"\n"0","k","n/a"\n',
        NAMES + '"","","register/thread"\n"0","k","1e999"\n',
        NAMES + '"","","register/thread"\n"0","k"\n',
        NAMES + '"","","\n"0","k","168"\n',
        "x" * 200_000 + "," + NAMES,
    ],
)
def test_garbage_is_no_counters(ncu: Ncu, prints: str | bytes) -> None:
    ncu.says(prints)
    assert counters.read(KERNEL, PROBLEM, "0") == "ncu printed no counters"


def test_a_program_that_hangs_is_ended_with_all_that_it_started(ncu: Ncu) -> None:
    ncu.says("", "hangs")
    said = counters.read(KERNEL, PROBLEM, "0", timeout_s=3.0)
    assert said == "ncu did not end within 3 s"
    assert is_gone(int(ncu.starts[0][0]))
    assert is_gone(int((ncu.folder / "child").read_text()))


def is_gone(pid: int) -> bool:
    """Whether a process ends in a while, or has and waits for a parent to ask."""
    for _ in range(50):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.1)
    return False


def test_the_program_under_it_is_this_one(ncu: Ncu) -> None:
    ncu.says("", "runs")
    said = counters.read(KERNEL, PROBLEM, "0")
    assert isinstance(said, str) and said.startswith("ncu: "), said
    assert "CandidateError: None: " in said  # the kernel has no launch record


def test_without_ncu_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert counters.read(KERNEL, PROBLEM, "0") == "no ncu on the PATH"
    program = tmp_path / "ncu"
    program.write_bytes(b"\x7fELF of another machine")
    program.chmod(0o755)
    said = counters.read(KERNEL, PROBLEM, "0")
    assert isinstance(said, str) and said.startswith("ncu does not start: "), said


def test_the_program_under_it_runs_the_kernel_on_the_operands_of_the_timing(
    machine: SimpleNamespace,
) -> None:
    before = machine.control.launches
    made = counters.launch(stand_in.kernel("tma3_v1"), PROBLEM, "cpu")
    (one,) = operands(PROBLEM, "cpu")
    exact = one.a.double() @ one.b.double()
    torch.testing.assert_close(made.double(), exact, rtol=2e-3, atol=2e-2)
    assert machine.control.launches == before + 1


def test_a_kernel_of_another_layout_is_not_run(machine: SimpleNamespace) -> None:
    before = machine.control.launches
    with pytest.raises(ValueError, match="layout"):
        counters.launch(stand_in.kernel("tma3_v1"), Problem(64, 32, 72, "tn", "f16"), "cpu")
    assert machine.control.launches == before
