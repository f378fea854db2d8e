"""What a call costs the host, in instructions: counts that repeat, and no GPU.

python -m benchmarks.host.host_instructions FOLDER [OUT.json] needs valgrind with its headers, a C
compiler and a minute. Profiles stay in FOLDER: callgrind_annotate FOLDER/profile.N names functions.

The launcher runs on the stand-in driver of the tests, from CPU tensors. A figure is of one call in
a loop, without the loop and the driver, by library: `_C` the launcher, `python` what it and torch
ask of the interpreter, `torch` views, gradients, allocation and in a miss the product, `system`
libc and the linker. A real driver takes longer, so its calls are counted, torch's for the stream
with them. What malloc does depends on what was freed before.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from timeit import Timer
from typing import Any

import pytest
import torch

from hgemm_packs import launcher, select
from hgemm_packs.problem import Problem
from tests import fake_driver

OUT = Path(__file__).resolve().parents[1] / "results" / "host_instructions.json"
CALLS, WARM_CALLS = 1000, 100

#: Counting starts and ends here; an end leaves a file.
MARKS = """
#include <valgrind/callgrind.h>
void start(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void stop(const char *name) { CALLGRIND_DUMP_STATS_AT(name); CALLGRIND_STOP_INSTRUMENTATION; }
"""

#: By what the name of a file begins with.
LIBRARIES = {"_C.": "_C", "libpython": "python", "python": "python", "libfake": "driver"}
LIBRARIES |= {"libtorch": "torch", "libc10": "torch", "": "system"}
KINDS = ("_C", "python", "torch", "system", "driver calls")

#: Of a profile: whose lines follow; a call and its cost, which counts there; the cost of a line.
PARTS = re.compile(
    r"^ob=(?P<here>.*)"
    r"|^(?:cob=(?P<there>.*)\n)?(?:cf[il]=.*\n)?cfn=.*\ncalls=(?P<calls>\d+).*\n.*"
    r"|^[\d+*-]\S* (?P<cost>\d+)$",
    re.MULTILINE,
)

#: Square problems: without a kernel, with one of three tensor maps, with one that may be launched
#: dependent as well, and with one that moreover adds over slices.
MISS, HIT, DEPENDENT, SLICES = 8, 16, 24, 32


def loop(call: str, function: Any = None, size: int = 1) -> Callable[[int], float]:
    """Makes a call that many times."""
    given = (function, *(torch.ones(size, size, dtype=torch.float16) for _ in range(3)))
    weight = torch.nn.Parameter(given[2].clone())
    return Timer(call, "f, a, b, c = given", globals={"given": given, "p": weight}).timeit


def loops(fake: fake_driver.Started) -> dict[str, Callable[[int], float]]:
    """Every loop by name, and the policy that gives its calls their kernels."""

    def resolve(problem: Problem, device: int, *, invariant: bool) -> select.Selection:
        fake.kernels.clear()
        if problem.m != MISS:
            fake.serve("tma2_ws_v2" if problem.m == SLICES else "tma3_v1", problem.layout)
        return fake.resolve(problem, device)

    fake.dependent = lambda problem: problem.m > HIT
    fake.control.noop = 1
    pytest.MonkeyPatch().setattr(select, "resolve", resolve)
    return {
        "loop": loop("pass"),
        "hit.out": loop("f(a, b, out=c)", fake.matmul, HIT),
        "hit.out.no_grad": torch.no_grad()(loop("f(a, b, out=c)", fake.matmul, HIT)),
        "hit.out.dependent": loop("f(a, b, out=c)", fake.matmul, DEPENDENT),
        "hit.out.slices": loop("f(a, b, out=c)", fake.matmul, SLICES),
        "hit.alloc": loop("f(a, b)", fake.matmul, HIT),
        "miss.out": loop("f(a, b, out=c)", fake.matmul, MISS),
        "miss.alloc": loop("f(a, b)", fake.matmul, MISS),
        "torch.matmul.out": loop("f(a, b, out=c)", torch.matmul, MISS),
        "torch.matmul.alloc": loop("f(a, b)", torch.matmul, MISS),
        "hit.linear": loop("f(a, b)", fake.linear, HIT),
        "miss.linear": loop("f(a, b)", fake.linear, MISS),
        "miss.linear.grad": loop("f(a, p)", fake.linear, MISS),
        "torch.linear": loop("f(a, b)", torch.nn.functional.linear, MISS),
        "torch.linear.grad": loop("f(a, p)", torch.nn.functional.linear, MISS),
    }


def count(folder: Path) -> None:
    """Under valgrind: every loop between two marks."""
    torch.set_num_threads(1)
    marks = ctypes.CDLL(str(folder / "marks.so"))
    fake = fake_driver.start(pytest.MonkeyPatch(), folder / "libfake.so")
    fake.set_stream(fake_driver.LEGACY)
    for name, run in loops(fake).items():
        run(WARM_CALLS)
        marks.start()
        run(CALLS)
        marks.stop(name.encode())
    counters, ran = launcher.counters(), WARM_CALLS + CALLS
    if (counters["hits"], counters["fallbacks"]) != (6 * ran, 4 * ran):
        sys.exit(f"calls did not take their paths: {counters}")


def read(profile: str) -> Counter[str]:
    """A loop's instructions by library, and how often the driver was called."""
    counts: Counter[str] = Counter()
    names: dict[str, str] = {}
    here = ""

    def library(reference: str) -> str:  # "(1) /a/file" and, once it has been named, "(1)"
        number, _, path = reference.partition(" ")
        file = names.setdefault(number, Path(path).name)
        return next(each for start, each in LIBRARIES.items() if file.startswith(start))

    for part in PARTS.finditer(profile):
        here = library(part["here"]) if part["here"] else here
        counts[here] += int(part["cost"] or 0)
        if library(part["there"] or "") == "driver":
            counts["driver calls"] += int(part["calls"])
    return counts


def main(folder: Path, out: Path = OUT) -> None:
    fake_driver.compile_driver(folder / "libfake.so")
    cc = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-xc", "-", "-o", f"{folder}/marks.so"]
    subprocess.run(cc, input=MARKS, text=True, check=True)
    tool = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no"]
    again = [sys.executable, "-m", "benchmarks.host.host_instructions", "--count", str(folder)]
    tool += [f"--callgrind-out-file={folder}/profile"]
    subprocess.run([*tool, *again], check=True, env=os.environ | {"PYTHONHASHSEED": "0"})
    profiles = [path.read_text(encoding="utf-8") for path in folder.glob("profile.*")]
    found = {text.partition("Client Request: ")[2].split()[0]: read(text) for text in profiles}
    turn, per_call = found.pop("loop"), {}
    for name, counts in sorted(found.items()):
        per_call[name] = {kind: round((counts[kind] - turn[kind]) / CALLS) for kind in KINDS}
        print(f"{name:20}", "  ".join(f"{kind} {n:5}" for kind, n in per_call[name].items()))
    result = {"per_call": per_call, "python": sys.version.split()[0], "torch": torch.__version__}
    out.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    count(Path(sys.argv[2])) if sys.argv[1] == "--count" else main(*map(Path, sys.argv[1:]))
