"""A command on every GPU of a machine at once, each with its part of the work.

    python -m benchmarks.gpus CARD [--seconds 500] [--split LIST.jsonl] -- COMMAND ...

In words of COMMAND {gpu} is the GPU's number from 0 on, {part} its part as 1/2, and {split} a file
with its lines of LIST.jsonl, which are dealt in turn. Each process sees one GPU as device 0 and has
cores of its own, CORES of them: the others are free for what needs no GPU, beside it.

Nothing starts, and the exit status is 2, where a GPU's name lacks CARD: of machines that are lent
one may come with other cards, and what was measured on them is of no use. The status is 1 where a
process failed or was stopped after so many seconds; what it had written stays.

    python -m benchmarks.gpus H100 --split plan.jsonl -- \\
        python -m benchmarks.cards.rows run {split} packs/sm_90a out/{gpu} 400
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

CORES = 4
#: A number from 1 on, and how many there are.
Part = tuple[int, int]
ALL: Part = (1, 1)
T = TypeVar("T")
#: Seconds between asking a process to end and ending it.
GRACE_S = 5.0


def part_of(text: str) -> Part:
    """Which part, and of how many, for argparse: 1/2 is the first half. Raises ValueError for
    anything else."""
    number, parts = map(int, text.split("/"))
    if not 1 <= number <= parts:
        raise ValueError(f"no part: {text}")
    return number, parts


def share(items: Sequence[T], part: Part) -> Sequence[T]:
    """The items of a part, neighbours."""
    number, parts = part
    return items[len(items) * (number - 1) // parts : len(items) * number // parts]


def names() -> list[str]:
    """The names of all GPUs; none where there is no driver."""
    words = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []


def deal(lines: Sequence[str], count: int) -> list[list[str]]:
    """The lines for each of so many GPUs: each has some of the first and some of the last."""
    return [list(lines[gpu::count]) for gpu in range(count)]


def start(gpu: int, count: int, command: Sequence[str], split: Path, log: Path) -> subprocess.Popen:
    """The process of one GPU, with all that it prints in `log`."""
    known = {"{gpu}": str(gpu), "{part}": f"{gpu + 1}/{count}", "{split}": str(split)}
    words = [*command]
    for name, value in known.items():  # not str.format: words may have braces of their own
        words = [word.replace(name, value) for word in words]

    def stay_on_own_cores() -> None:
        every = sorted(os.sched_getaffinity(0))
        own = every[gpu * CORES : (gpu + 1) * CORES]
        os.sched_setaffinity(0, own or every)

    with log.open("w", encoding="utf-8") as out:
        return subprocess.Popen(
            words,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": str(gpu)},
            preexec_fn=stay_on_own_cores,
        )


def wait(processes: Sequence[subprocess.Popen], seconds: float) -> None:
    """Return once all have ended, by themselves or because the time is over."""
    ends = time.monotonic() + seconds
    for each in processes:
        try:
            each.wait(max(0.0, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            each.terminate()
    for each in processes:
        try:
            each.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            each.kill()
            each.wait()


def run(card: str, command: Sequence[str], split: Path | None, seconds: float) -> int:
    """The exit status, as the module says."""
    found = names()
    if not found or any(card not in name for name in found):
        print(f"no {card}: {', '.join(found) or 'no GPU'}")
        return 2
    lines = split.read_text(encoding="utf-8").splitlines(keepends=True) if split else []
    with tempfile.TemporaryDirectory() as place:
        folder, processes = Path(place), []
        for gpu, share in enumerate(deal(lines, len(found))):
            (folder / f"{gpu}.jsonl").write_text("".join(share), encoding="utf-8")
            log = folder / f"{gpu}.log"
            processes.append(start(gpu, len(found), command, folder / f"{gpu}.jsonl", log))
        wait(processes, seconds)
        for gpu, each in enumerate(processes):
            said = (folder / f"{gpu}.log").read_text(encoding="utf-8").splitlines()
            print(f"GPU {gpu}, status {each.returncode}:", *said[-3:], sep="\n  ")
    return int(any(each.returncode for each in processes))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("card", help="what the name of every GPU must have, as H100")
    parser.add_argument("--seconds", type=float, default=1e9, help="for all of it")
    parser.add_argument("--split", type=Path, help="a file of which each GPU gets some lines")
    parser.add_argument("command", nargs="+", metavar="-- COMMAND")
    given = parser.parse_args(arguments)
    return run(given.card, given.command, given.split, given.seconds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
