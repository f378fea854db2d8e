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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from hgemm_packs.generator.workers import gpus

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


def start(number: int, name: str, words: Sequence[str]) -> subprocess.Popen:
    """The process of one GPU, which CUDA_VISIBLE_DEVICES calls `name`."""
    process = subprocess.Popen(words, env=os.environ | {"CUDA_VISIBLE_DEVICES": name})
    every = sorted(os.sched_getaffinity(0))
    own = every[number * CORES : (number + 1) * CORES]
    os.sched_setaffinity(process.pid, own or every)
    return process


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
    cards, processes = gpus.cards(), []
    if not cards or any(card not in each for each in cards):
        print(f"no {card}: {', '.join(cards) or 'no GPU'}")
        return 2
    lines = split.read_text(encoding="utf-8").splitlines(keepends=True) if split else []
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(gpus.names()):
            mine = Path(folder, f"{number}.jsonl")
            # In turn: of a list that was ordered each GPU has some of the first.
            mine.write_text("".join(lines[number :: len(cards)]), encoding="utf-8")
            known = {"gpu": number, "part": f"{number + 1}/{len(cards)}", "split": mine}
            processes.append(start(number, name, fill(command, known)))
        wait(processes, seconds)
    for number, each in enumerate(processes):
        print(f"GPU {number}: status {each.returncode}")
    return int(any(each.returncode for each in processes))


def fill(command: Sequence[str], known: Mapping[str, object]) -> list[str]:
    """The words with what is known in place of {its name}; other braces stay."""
    words = [*command]
    for name, value in known.items():
        words = [word.replace(f"{{{name}}}", str(value)) for word in words]
    return words


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
