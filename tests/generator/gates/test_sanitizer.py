"""The sanitizer gate with a stand-in for compute-sanitizer: batches, findings, culprits."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from hgemm_packs.generator.compile.candidate import candidate, entry
from hgemm_packs.generator.core.spec import Status, Verdict
from hgemm_packs.generator.gates import sanitizer, sweep
from hgemm_packs.generator.gates.sanitizer import Item, SanitizerUnavailable
from hgemm_packs.pack.manifest import GROUPED_LAYOUT, OF_BATCH, DimRange, GridRule
from tests import fake_driver

RECORD = {"block": 32, "grid": {"tile_m": 16, "tile_n": 8}}

# Finds what the cubins say: "TOOL FINDINGS", or how the program under test ends.
STAND_IN = """#!{python}
import os, pickle, subprocess, sys
words = sys.argv[1:]
tool, log, told = words[1], words[3], words[-1]
for name in ("PYTORCH_NO_CUDA_MEMORY_CACHING", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    assert os.environ[name] == "1"
assert ("--report-api-errors" in words) == (tool == "memcheck")
assert told == "-"
items = pickle.load(open(sys.stdin.read(), "rb"))
with open({journal!r}, "a") as journal:
    journal.write(tool + " " + ",".join(entry.name for entry, _ in items) + "\\n")
said = [cubin.decode().split() for _, cubin in items]
found = sum(int(count) for name, count in said if name == tool)
if ["ends", "badly"] in said:
    sys.exit("Segmentation fault")
if ["raises", "late"] in said:
    raise AssertionError("relative error 1")
if ["never", "ends"] in said:
    child = subprocess.Popen(["{python}", "-c", "import time; time.sleep(60)"])
    with open({journal!r}, "a") as journal:
        journal.write("pids %d %d\\n" % (os.getpid(), child.pid))
    child.wait()
if ["no", "device"] in said:
    open(log, "w").write("========= Device not supported. Please refer to the manual.\\n")
    sys.exit(1)
kind = "RACECHECK" if tool == "racecheck" else "ERROR"
text = "========= COMPUTE-SANITIZER\\n"
text += "========= Invalid __global__ read of size 2 bytes\\n" * found
open(log, "w").write(text + "========= " + kind + " SUMMARY: " + str(found) + " hazards\\n")
print("launches", 2 * len(items))
"""


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / sanitizer.PROGRAM
    path = tmp_path / "journal"
    program.write_text(STAND_IN.format(python=sys.executable, journal=str(path)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return path


def item(name: str, says: str = "memcheck 0") -> Item:
    cubin = says.encode()
    return entry(candidate(name, "", RECORD).fields, cubin), cubin


def judged(
    items: Sequence[Item], size: int = 32, tools: Sequence[str] = sanitizer.TOOLS
) -> list[Verdict]:
    """Verdicts in order, by two processes at a time."""
    groups = [items[i : i + size] for i in range(0, len(items), size)]
    found = dict(sweep.check_groups(groups, [None, None], tools))
    return [verdict for place in range(len(groups)) for verdict in found[place]]


def test_clean_kernels_share_their_processes(journal: Path) -> None:
    items = [item(f"k{i}") for i in range(10)]
    verdicts = judged(items, 8)
    assert [(v.gate, v.status, v.detail) for v in verdicts] == [
        ("sanitizer", Status.OK, "") for _ in items
    ]
    assert verdicts[0].evidence == dict.fromkeys(sanitizer.TOOLS, 0)
    assert len(journal.read_text().splitlines()) == 2 * len(sanitizer.TOOLS)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("tool", sanitizer.TOOLS)
def test_a_finding_is_laid_to_its_kernel(journal: Path, tool: str, together: bool) -> None:
    items = [item("good"), item("bad", f"{tool} 3"), item("fine")]
    verdicts = judged(items, 3 if together else 1)
    assert [v.passed for v in verdicts] == [True, False, True]
    assert verdicts[1].status is Status.SANITIZER
    assert verdicts[1].detail.startswith(f"{tool}: Invalid __global__ read")
    assert verdicts[1].evidence == dict.fromkeys(sanitizer.TOOLS, 0) | {tool: 3}
    runs = journal.read_text().splitlines()
    assert (f"{tool} good,bad,fine" in runs) is together
    assert f"{tool} bad" in runs


def test_a_program_that_ends_badly_is_a_finding(journal: Path) -> None:
    good, bad = judged([item("good"), item("bad", "ends badly")])
    assert (good.passed, bad.passed) == (True, False)
    assert "Segmentation fault" in bad.detail
    assert set(bad.evidence.values()) == {-1}


def test_an_exception_is_quoted_by_its_last_line(journal: Path) -> None:
    (verdict,) = judged([item("bad", "raises late")])
    said = [f"{tool}: AssertionError: relative error 1" for tool in sanitizer.TOOLS]
    assert verdict.detail == "; ".join(said)


def test_a_program_without_end_is_a_finding(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizer, "TIMEOUT_S", 1.0)
    began = time.monotonic()
    (verdict,) = judged([item("bad", "never ends")], tools=("memcheck",))
    assert (verdict.status, verdict.detail) == (
        Status.SANITIZER,
        "memcheck: no end after 1 s",
    )
    assert time.monotonic() - began < 20, "what the tool had started held its output open"


def test_kernels_larger_than_a_pipe_arrive(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process does not listen yet when it is told of them."""
    monkeypatch.setattr(sanitizer, "POLL_S", 0.001)
    monkeypatch.setattr(sanitizer, "TIMEOUT_S", 60.0)
    (verdict,) = judged([item("large", "memcheck 0" + " " * (1 << 20))], tools=("memcheck",))
    assert verdict.passed, verdict.detail


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt: a shell starts what runs in the background without."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_all_that_runs_and_starts_nothing_more(journal: Path) -> None:
    """Ctrl-C once waited for every queued process, each up to its two minutes."""
    groups = [[item(f"k{i}", "never ends")] for i in range(6)]

    def interrupt() -> None:
        while not journal.exists() or journal.read_text().count("pids") < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    other = threading.Thread(target=interrupt)
    other.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(sweep.check_groups(groups, [None, None], ("memcheck",)))
    assert time.monotonic() - began < 20
    other.join()
    text = journal.read_text()
    assert text.count("memcheck") == 2
    pids = [int(pid) for line in text.splitlines() if "pids" in line for pid in line.split()[1:]]
    assert len(pids) == 4 and not any(map(running, pids))


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def test_who_has_enough_of_the_verdicts_leaves_nothing_running(journal: Path) -> None:
    """What is known comes while others still run, and a run that stops there stops them."""
    groups = [[item("good")], *([item(f"k{i}", "never ends")] for i in range(3))]
    for place, verdicts in sweep.check_groups(groups, [None, None], ("memcheck",)):
        assert (place, [v.status for v in verdicts]) == (0, [Status.OK])
        while journal.read_text().count("pids") < 2:
            time.sleep(0.01)
        break
    lines = [line.split()[1:] for line in journal.read_text().splitlines() if "pids" in line]
    assert len(lines) == 2 and not any(running(int(pid)) for pids in lines for pid in pids)


def test_processes_that_wait_are_taken_first_and_those_that_nothing_needed_end(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> sanitizer.ToolRun:
        raise AssertionError("another process was started")

    monkeypatch.setattr(sanitizer, "run_tool", refuse)
    with contextlib.closing(sweep.Waiting()) as ahead:
        ahead.start([None] * 3, ("memcheck", "racecheck"))
        idle = [each._process.pid for each in ahead._left]
        groups = [[item("a", "racecheck 1"), item("b")]]
        tools = ("memcheck", "racecheck")
        with pytest.raises(AssertionError, match="another process"):  # a and b alone
            list(sweep.check_groups(groups, [None, None], tools, ahead))
        assert sorted(journal.read_text().splitlines()) == ["memcheck a,b", "racecheck a,b"]
        assert [running(pid) for pid in idle] == [False, False, True]
        assert ahead.take("memcheck", "1") is None, "it is on another GPU"
    assert not running(idle[2])


def test_a_run_can_name_its_gpu_and_its_time(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def ended(self: sanitizer.ToolProcess, told: bytes, timeout_s: float, stop: Any) -> None:
        seen.append((self.gpu, timeout_s))

    monkeypatch.setattr(sanitizer.ToolProcess, "_run_to_end", ended)
    for where in ((), ("3", 4.0)):
        run = sanitizer.run_tool([item("k")], "racecheck", *where)
        assert (run.findings, run.detail) == (-1, f"no end after {seen[-1][1]:.0f} s")
    assert seen == [(None, sanitizer.TIMEOUT_S), ("3", 4.0)]


def test_where_it_cannot_work_it_says_so(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SanitizerUnavailable, match="does not support the device"):
        judged([item("k", "no device")])
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(SanitizerUnavailable, match="no compute-sanitizer on the PATH"):
        judged([item("k")])


@pytest.mark.parametrize("transposed", [False, True])
def test_operands_end_where_their_allocation_does(transposed: bool) -> None:
    matrix = torch.arange(13 * 72, dtype=torch.float16).reshape(13, 72)
    view = sanitizer.store_matrix(matrix, transposed, "cpu")
    assert torch.equal(view, matrix)
    assert view.stride() == ((1, 16) if transposed else (72, 1))
    whole = view.untyped_storage().nbytes() // 2
    assert whole == (72 * 16 if transposed else 13 * 72)
    padding = torch.empty(0, dtype=torch.float16).set_(view.untyped_storage()).isnan().sum()
    assert padding == whole - 13 * 72


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("param_layout", ["ptr_v1", "tma2_v1", "tma3_v1"])
def test_the_launcher_takes_the_operands(
    machine: object, param_layout: str, layout: str, dtype: str
) -> None:
    cubin = fake_driver.image("kernel", param_layout, layout, dtype)
    made = fake_driver.entry(param_layout, layout, dtype, cubin)
    assert sanitizer.run_kernels([(made, cubin)], "cpu") == 3


@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_the_launcher_takes_the_operands_of_groups(machine: object, layout: str) -> None:
    cubin = fake_driver.image("kernel", GROUPED_LAYOUT, layout, "bf16")
    grid = GridRule(16, 32, True)
    made = fake_driver.entry(GROUPED_LAYOUT, layout, "bf16", cubin, grid=grid)
    assert sanitizer.run_kernels([(made, cubin)], "cpu") == 2
    other = fake_driver.image("kernel", GROUPED_LAYOUT, layout, "f16")
    with pytest.raises(AssertionError, match="relative error"):
        sanitizer.run_kernels([(made, other)], "cpu")


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("param_layout", [*OF_BATCH.values()])
def test_the_launcher_takes_the_operands_of_batches(
    machine: object, param_layout: str, layout: str
) -> None:
    cubin = fake_driver.image("kernel", param_layout, layout, "bf16")
    made = fake_driver.entry(param_layout, layout, "bf16", cubin, m=DimRange(8, 4096, 8))
    assert sanitizer.run_kernels([(made, cubin)], "cpu") == 2
    other = fake_driver.image("kernel", param_layout, layout, "f16")
    with pytest.raises(AssertionError, match="relative error"):
        sanitizer.run_kernels([(made, other)], "cpu")


def test_wrong_values_end_the_program_under_test(machine: object) -> None:
    made, other = fake_driver.entry("ptr_v1", "nn"), fake_driver.image("kernel", "ptr_v1", "tn")
    with pytest.raises(AssertionError, match="61x24x72: relative error"):
        sanitizer.run_kernels([(made, other)], "cpu")


def test_c_is_written_before_bulk_stores_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {name: fake_driver.entry(name) for name in ("tma2_v1", "tma3_v1")}
    filled = sanitizer.output(made["tma3_v1"], 61, 24, "cpu")
    assert (tuple(filled.shape), filled.dtype) == ((61, 24), torch.float16)
    assert filled.isnan().all()
    monkeypatch.setattr(torch, "empty", lambda shape, **kw: ("as allocated", shape, kw))
    kept = sanitizer.output(made["tma2_v1"], 61, 24, "cpu")
    assert kept == ("as allocated", (61, 24), {"dtype": torch.float16, "device": "cpu"})


def test_a_pack_is_checked_tool_by_tool(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests import packs

    def make(name: str, layout: str) -> bytes:
        return b"racecheck 2" if name == "k_tma2" else b"memcheck 0"

    kernels = packs.good_kernels()
    built = [packs.FakeBuilt(k.entry_fields, make(k.entry_fields["name"], "")) for k in kernels]
    found = [(entry_of(k), k.cubin) for k in built]
    pack = type("Pack", (), {"open": staticmethod(lambda path: FakePack(found))})
    monkeypatch.setattr(sanitizer, "Pack", pack)
    out = tmp_path / "out.json"
    words = [str(tmp_path), "--tool", "memcheck", "racecheck", "--first", "1", "-o", str(out)]
    monkeypatch.setattr("sys.argv", ["sanitizer", *words])
    assert sanitizer.main() == 1
    runs = [(run["tool"], run["kernels"], run["findings"]) for run in json.loads(out.read_text())]
    assert runs == [("memcheck", 2, 0), ("racecheck", 2, 2)]


class FakePack:
    """Entries and images, as a pack hands them out."""

    def __init__(self, items: list[Item]) -> None:
        self.manifest = type("Manifest", (), {"kernels": tuple(e for e, _ in items)})
        self.images = {e.name: image for e, image in items}

    def image(self, made: object) -> bytes:
        return self.images[made.name]  # type: ignore[attr-defined]


def entry_of(kernel: object) -> object:
    return entry(kernel.entry_fields, kernel.cubin)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("runs", "processes", "size"),
    [(80, 12, 7), (8, 12, 4), (120, 12, 10), (132, 12, 6), (2000, 12, 32)],
)
def test_few_kernels_are_run_in_one_round(runs: int, processes: int, size: int) -> None:
    """40 kernels under two tools went through two rounds of 12 processes, each of which takes as
    long to start as ten kernels take."""
    assert sweep.group_size(runs, processes) == size
