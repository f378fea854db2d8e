"""What `grouped` and `batched` have in common: candidates in a folder, put through their numeric
gate and timed block by block, lines on file, and the pack of the winners.

A benchmark of candidates has the verbs `build`, `gate`, `run` and `pack`; `main` asks for its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch

from hgemm_packs import launcher, profiles
from hgemm_packs.generator.compile import candidate, compiler
from hgemm_packs.generator.compile.pack_writer import SourceKernel
from hgemm_packs.generator.core.spec import TOLERANCES
from hgemm_packs.generator.families.base import Genome
from hgemm_packs.generator.gates.checker import Numeric, NumericError
from hgemm_packs.measure.replay import Arm, stage
from hgemm_packs.measure.timing import ArmBench, TimingPlan
from hgemm_packs.pack.manifest import (
    DeviceProfile,
    GroupedRow,
    KernelEntry,
    Numerics,
    Row,
    WinPolicy,
)
from hgemm_packs.report import runtime_versions

if TYPE_CHECKING:
    from hgemm_packs._C import Kernel

INDEX = "kernels.json"
TORCH, AGAIN, OURS = "torch", "torch again", "ours"
DEVICE = torch.device("cuda", 0)
#: Bytes and operations in a microsecond, for the length of a graph alone.
SPEED = (3e6, 5e8)


class Loaded(NamedTuple):
    """A candidate on the device."""

    entry: KernelEntry
    kernel: Kernel


Line = Mapping[str, Any]
AnyRow = TypeVar("AnyRow", Row, GroupedRow)
AnyProblem = TypeVar("AnyProblem")
#: The numeric gate of a kernel on DEVICE, with a seed.
Gate = Callable[[Loaded, int], Numeric]
Verb = Callable[[argparse.Namespace], int]


def build(folder: Path, own: str, genomes: Iterable[Genome]) -> int:
    """Compile these candidates of a family into `folder`; how many there are. Raises
    BuildError."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = []
    for one in compiler.build((own, genome) for genome in genomes):
        if isinstance(one, compiler.BuildError):
            raise one
        (folder / f"{one.entry_fields['id']}.cubin").write_bytes(one.cubin)
        fields.append(one.entry_fields)
    (folder / INDEX).write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")
    print(f"{len(fields)} kernels in {folder}")
    return len(fields)


def load_all(folder: Path, device: int) -> dict[str, Loaded]:
    """All candidates by name, loaded."""
    loaded = {}
    for fields in json.loads((folder / INDEX).read_text(encoding="utf-8")):
        cubin = (folder / f"{fields['id']}.cubin").read_bytes()
        entry = candidate.entry(fields, cubin)
        loaded[entry.name] = Loaded(entry, launcher.load(device, entry, cubin))
    return loaded


def time_blocks(
    arms: Mapping[str, Arm], how: TimingPlan, blocks: int, seed: int
) -> dict[str, list[float]]:
    """us a call of each arm, block by block in random order."""
    at, shuffle = stage(DEVICE.index), random.Random(seed)
    samples: dict[str, list[float]] = {name: [] for name in arms}
    with at.active():
        bench = ArmBench(arms, how, at)
        for _ in range(blocks):
            order = list(arms)
            shuffle.shuffle(order)
            for name, each in bench.block(order)[0].items():
                samples[name].append(each)
        bench.free(arms)
    return samples


def judge(gate: Gate, kernel: Loaded, seed: int) -> dict[str, Any] | str:
    """What the numeric gate says of a kernel, or why it failed."""
    try:
        result = gate(kernel, seed)
    except NumericError as error:
        return str(error)
    return {"max_rel_err": result.max_rel_err, "shapes_tested": result.shapes_tested}


def first_right(
    gate: Gate, names: Sequence[str], kernels: Mapping[str, Loaded], seed: int
) -> tuple[str | None, dict[str, Any], dict[str, str]]:
    """The first of these kernels that the gate passes, what the gate says of it, and why those
    before it failed; None where all fail."""
    failed: dict[str, str] = {}
    for name in names:
        verdict = judge(gate, kernels[name], seed)
        if not isinstance(verdict, str):
            return name, verdict, failed
        failed[name] = verdict
    return None, {}, failed


def gate_all(gate: Gate, options: argparse.Namespace) -> int:
    """The verb `gate`: 1 if a kernel is wrong."""
    kernels = list(load_all(options.folder, DEVICE.index).values())[:: options.every]
    wrong = 0
    for kernel in kernels:
        verdict = judge(gate, kernel, options.seed)
        wrong += isinstance(verdict, str)
        print(kernel.entry.name, verdict, flush=True)
    print(f"{len(kernels) - wrong} of {len(kernels)} kernels are right")
    return int(wrong > 0)


def append(path: Path, line: Mapping[str, Any]) -> None:
    """One line more, on disk before the next is measured."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def append_header(path: Path, benchmark: str, seed: int) -> None:
    """The line that says what measures, where and when."""
    header = {
        "benchmark": benchmark,
        "device": _device(),
        "versions": runtime_versions(DEVICE.index),
        "seed": seed,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
    append(path, {"header": header})


def read_lines(path: Path) -> list[dict[str, Any]]:
    """What is there; a line that a killed run left half is left out."""
    found = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            found.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return found


def done_cases(path: Path) -> set[tuple[Any, ...]]:
    """The cases that the lines of a file have."""
    return {tuple(line["case"]) for line in read_lines(path) if "case" in line}


def measured_lines(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The last header of a file, and its lines with a confirmed measurement."""
    lines = read_lines(path)
    headers = [line["header"] for line in lines if "header" in line]
    return headers[-1], [line for line in lines if "us" in line]


def make_rows(
    measured: Sequence[tuple[AnyProblem, Line]],
    own: str,
    policy: WinPolicy,
    row: Callable[[Line, AnyProblem], AnyRow],
) -> tuple[list[AnyRow], list[SourceKernel]]:
    """A `row` of each problem, which names its kernel of that family where that won; and these
    kernels."""
    rows, kernels = [], {}
    for problem, line in measured:
        made = row(line, problem)
        if policy.clears(made):
            built, seen = line["built"], line["numerics"]
            numerics = Numerics("float64", round(seen["max_rel_err"], 9), seen["shapes_tested"])
            kernels[built["id"]] = SourceKernel(
                built["id"], built["name"], own, built["genome"], numerics
            )
            rows.append(made)
        else:
            rows.append(made._replace(kernel=None))
    return rows, [*kernels.values()]


def _device() -> Line:
    here = launcher.device_info(DEVICE.index)
    return dataclasses.asdict(here) | {"power_limit_w": profiles.power_limit_w(here)}


def profile_of(device: Line, bytes_per_us: float) -> DeviceProfile:
    """The profile of a header's device, which moved so many bytes."""
    speed = round(bytes_per_us / 1e3, 1)
    told = (device.get(name) or None for name in TOLERANCES)
    return DeviceProfile(device["name"], device["sm_count"], device["l2_bytes"], speed, *told)


def versions_of(header: Line) -> dict[str, str]:
    return {"driver": "unknown", "cublas": "unknown"} | header["versions"]


def say_written(options: argparse.Namespace, served: int, measured: int) -> None:
    print(f"wrote {options.source} and {options.pack}: {served} of {measured} rows have kernels")


def main(
    doc: str | None,
    arguments: Sequence[str],
    verbs: Mapping[str, Verb],
    add_run_options: Callable[[argparse.ArgumentParser], None],
) -> int:
    """Run the verb that the arguments name."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parsers = parser.add_subparsers(dest="verb", required=True)
    for verb in ("build", "gate", "run"):
        own = parsers.add_parser(verb)
        own.add_argument("folder", type=Path, metavar="DIR")
        own.add_argument("--seed", type=int, default=26)
        if verb == "gate":
            own.add_argument("--every", type=int, default=1)
        if verb == "run":
            own.add_argument("out", type=Path, metavar="OUT.jsonl")
            add_run_options(own)
    packer = parsers.add_parser("pack")
    packer.add_argument("lines", type=Path, metavar="OUT.jsonl")
    packer.add_argument("source", type=Path, metavar="SOURCE_DIR")
    packer.add_argument("pack", type=Path, metavar="PACK_DIR")
    options = parser.parse_args(arguments)
    return verbs[options.verb](options)
