"""Random calls, each made with torch's function and with ours on identical clones.

nice python -m tests.campaign.differential --calls 1000000 --seed 1 [--first N] [--out FILE]

The launcher runs on the stand-in driver, which has kernels for whatever is aligned and packed. A
call of seed S and number I is the same whenever it is made: `--first I --calls 1` makes it again.
Where torch served both, every bit must agree; where a kernel did, its values are held to a float64
product as every kernel's are. An output in the memory of an input may differ in values alone.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hgemm_packs import launcher, select
from hgemm_packs.settings import settings
from tests import fake_driver, reference
from tests.fake_driver import Started

from .calls import Call, draw
from .sides import TORCH, Side, facts, serve_all
from .states import STATES

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "benchmarks" / "results" / "differential.json"
SEEDS = Path(__file__).parent / "seeds.json"
#: Of a seed, the keys of this many calls are its own.
CALLS_OF_A_SEED = 1 << 40
#: Calls that a kernel must have served, of all: a run that torch serves shows nothing.
LEAST_HITS = 0.3
SHOWN = 20
PART = 1000


@dataclass
class Seen:
    """What one side showed: all but bits in `facts`, tensors in the order of the other side's."""

    facts: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    gradients: list[torch.Tensor] = field(default_factory=list)
    hit: bool = False


@dataclass
class Tally:
    """What a run found."""

    calls: int = 0
    skipped: int = 0
    hits: int = 0
    raised: int = 0
    parts: Counter[str] = field(default_factory=Counter)
    differences: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)


def _facts(tensor: torch.Tensor) -> dict[str, Any]:
    strided = tensor.layout is torch.strided
    place = (tensor.stride(), tensor.storage_offset()) if strided else None
    return facts(tensor) | {"place": place, "copy_on_write": torch._C._is_cow_tensor(tensor)}


def observe(call: Call, side: Side) -> Seen:
    """Make the call, and then what follows of it: a backward where it has gradients."""
    seen, log = Seen(), list[str]()
    hits = launcher.counters()["hits"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # An assertion of torch's own that only the first of two copies on write meets.
        warnings.filterwarnings("ignore", "mkldnn_matmul failed")
        # The collector may meet a file that other tests left open in either of the two calls.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            with STATES[call.state](log):
                seen.result = getattr(side, call.function)(*call.args, **call.kwargs)
            if isinstance(seen.result, torch.Tensor) and seen.result.requires_grad:
                seen.result.backward(torch.ones_like(seen.result))
        except Exception as error:
            seen.facts["raised"] = (type(error).__name__, str(error))
    seen.hit = launcher.counters()["hits"] > hits
    with torch._C.DisableTorchFunctionSubclass():
        seen.facts["log"] = log
        seen.facts["warnings"] = [(w.category.__name__, str(w.message)) for w in caught]
        seen.facts["operands"] = [_facts(each) for each in call.tensors()]
        if isinstance(seen.result, torch.Tensor):
            seen.facts["result"] = _facts(seen.result)
            seen.facts["is out"] = seen.result is call.kwargs.get("out")
        leaves = [x.grad for x in call.tensors() if x.is_leaf and x.requires_grad]
        seen.gradients = [each for each in leaves if each is not None]
        seen.facts["gradients"] = [_facts(each) for each in seen.gradients]
    return seen


_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    return plain.view(_WORDS[plain.element_size()])


def _differ(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x.device.type == "cpu" and not torch.equal(_bits(x), _bits(y))


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """All that its storage holds, in words of its elements."""
    bare = torch.empty(0, dtype=tensor.dtype)
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    return bare.set_(tensor.untyped_storage(), 0, (size,), (1,))


def _is_written(result: Any, seen: Seen, call: Call) -> bool:
    """Whether torch promises its values. It does not where memory is shared or one side has no
    data, nor after an error, which may come once out is resized."""
    promised = not call.overlap and "meta" not in call.parts and "raised" not in seen.facts
    return promised and isinstance(result, torch.Tensor)


def _differs_in_memory(ours: torch.Tensor, theirs: torch.Tensor, written: bool) -> bool:
    """Whether storages differ; where a kernel has written, around what it has written."""
    if ours.device.type != "cpu" or ours._is_zerotensor():
        return False
    x, y = _memory(ours), _memory(theirs)
    if not written:
        return _differ(x, y)
    start, end = ours.storage_offset(), ours.storage_offset() + ours.numel()
    return _differ(x[:start], y[:start]) or _differ(x[end:], y[end:])


def differences(ours: Seen, theirs: Seen, mine: Call, other: Call) -> Iterator[str]:
    """In what two sides of a call differ."""
    told = {
        what
        for what in ours.facts.keys() | theirs.facts.keys()
        if ours.facts.get(what) != theirs.facts.get(what)
    }
    yield from told
    if told & {"raised", "result", "operands", "gradients"}:
        return  # there is nothing to compare with
    out = mine.kwargs.get("out")
    for x, y in zip(mine.tensors(), other.tensors(), strict=True):
        read = x is not out and not mine.overlap
        if (read or _is_written(x, ours, mine)) and _differs_in_memory(x, y, ours.hit and x is out):
            yield "memory"
    for x, y in zip(ours.gradients, theirs.gradients, strict=True):
        if _is_written(x, ours, mine) and _differ(x, y):
            yield "gradient bits"
    if ours.hit:
        a, b = (x.detach() for x in other.operands())
        if not reference.errors(ours.result.detach().reshape(a.shape[0], b.shape[1]), a, b).ok:
            yield "product"
    elif _is_written(ours.result, ours, mine) and _differ(ours.result, theirs.result):
        yield "bits"


def _kills_torch(call: Call) -> bool:
    """torch 2.13 itself dies where it resizes an output that has no memory: seed 20261124, call
    25081. test_exotic_tensors has such outputs, of the right size."""
    out = call.kwargs.get("out")
    return isinstance(out, torch.Tensor) and out._is_zerotensor()


def run(ours: Started, seed: int, numbers: range, tally: Tally) -> None:
    """Make these calls of a seed on both sides and add what they show."""
    for number in numbers:
        key = seed * CALLS_OF_A_SEED + number
        mine, other = draw(key), draw(key)
        if _kills_torch(mine):
            tally.skipped += 1
            continue
        theirs, seen = observe(other, TORCH), observe(mine, ours)
        tally.calls += 1
        tally.hits += seen.hit
        tally.raised += "raised" in theirs.facts
        tally.parts.update(set(mine.parts))
        with torch._C.DisableTorchFunctionSubclass():
            found = sorted(set(differences(seen, theirs, mine, other)))
        tally.differences.update(found)
        if found and len(tally.examples) < SHOWN:
            shown = {what: (theirs.facts.get(what), seen.facts.get(what)) for what in found}
            tally.examples.append(f"seed {seed} call {number}: {mine}: {shown}")


@contextmanager
def calm() -> Iterator[None]:
    """Every warning every time, but none of what other tests left; products in one thread."""
    gc.collect()
    always, threads = torch.is_warn_always_enabled(), torch.get_num_threads()
    torch.set_warn_always(True)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_warn_always(always)
        torch.set_num_threads(threads)


@contextmanager
def started() -> Iterator[Started]:
    """A launcher on the stand-in driver, outside of a test."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for name in ("PATH", "LOG", "STRICT", "POLICY", "SELFTEST"):
            patch.delenv(f"HGEMM_PACKS_{name}", raising=False)
        patch.setenv("HGEMM_PACKS_CACHE", folder)
        settings.cache_clear()
        library = fake_driver.compile_driver(Path(folder) / "libfake.so")
        found = fake_driver.start(patch, library)
        patch.setattr(select, "resolve", found.resolve)
        serve_all(found)
        yield found


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    asked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return asked.stdout.strip()


def report(tally: Tally, seed: int, seconds: float) -> dict[str, Any]:
    return {
        "commit": _commit(),
        "torch": torch.__version__,
        "seed": seed,
        "calls": tally.calls,
        "skipped": tally.skipped,
        "hits": tally.hits,
        "raised": tally.raised,
        "differences_total": sum(tally.differences.values()),
        "differences": dict(tally.differences.most_common()),
        "seconds": round(seconds),
        "parts": dict(sorted(tally.parts.items())),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    tally, begin = Tally(), time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with started() as ours, calm(), Progress(*columns, TimeRemainingColumn()) as progress:
        task = progress.add_task("calls", total=asked.calls)
        end = asked.first + asked.calls
        for first in range(asked.first, end, PART):
            run(ours, asked.seed, range(first, min(first + PART, end)), tally)
            progress.update(task, completed=tally.calls)
    for example in tally.examples:
        print(example)
    found = report(tally, asked.seed, time.monotonic() - begin)
    print(json.dumps(found, indent=1))
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(
        bool(tally.differences) or (asked.calls >= PART and tally.hits < LEAST_HITS * tally.calls)
    )


if __name__ == "__main__":
    main()
