"""The cache of packs under kill -9 and under sixteen processes at once.

    python -m benchmarks.distribution.cache_campaign [--rounds 100] [--together 20] [--out FOLDER]

Rounds alternate between a pack from a local folder and one fetched from a Hub on this machine.
kill9.json: a round lets processes add, open and remove the pack without end, kills each at a random
moment, and is bad unless the cache then is empty or has the right pack, and the next add succeeds.
fetch.json: sixteen processes add one pack to an empty cache; `downloads` is the most and `loads`
the least of any round. Both keep every round as it was.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hgemm_packs.cli.console import console, progress
from tests import packs
from tests.distribution.hub import server

REPOSITORY = Path(__file__).resolve().parents[2]
OUT = REPOSITORY / "benchmarks" / "results" / "distribution"
CONCURRENT = 16
KILLED = 4  # processes of a round
KERNEL_BYTES = 1_400_000
#: Where a pack comes from, and the last moment of a kill: a process adds about ten times by then
#: from a folder, and from a Hub, whose client alone takes 0.3 s to start, two or three times.
LATEST_S = {"folder": 0.6, "owner/pack": 1.2}
ORIGINS = tuple(LATEST_S)

Verb = Callable[..., dict[str, Any]]


@contextmanager
def campaign() -> Iterator[tuple[Verb, server.Hub]]:
    """A pack of 4 MB, in a folder and on a Hub, and the way to run a round with it in an empty
    cache."""
    with tempfile.TemporaryDirectory() as scratch, server.serving() as hub:
        source = Path(scratch, "source")
        packs.write_good(source, lambda name, layout: packs.fake_cubin(name, KERNEL_BYTES))
        hub.repos["owner/pack"] = repo = server.Repo(private=False)
        repo.commit({file.name: file.read_bytes() for file in source.iterdir()})
        environment = os.environ | {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_TELEMETRY": "1"}

        def run(verb: str, *rest: object) -> dict[str, Any]:
            with tempfile.TemporaryDirectory(dir=scratch) as place:
                program = [sys.executable, "-m", "tests.distribution.cache.cache_rounds", verb]
                words = [Path(place, "cache"), source, *rest]
                done = subprocess.run(
                    program + [str(word) for word in words],
                    cwd=REPOSITORY, env=environment, capture_output=True, text=True,
                )  # fmt: skip
            if done.returncode:
                sys.exit(done.stderr)
            facts: dict[str, Any] = json.loads(done.stdout)
            return facts

        yield run, hub


def kill_round(run: Verb, origin: str) -> dict[str, Any]:
    """One round of kills at moments of its own, and whether it was a bad one."""
    moments = [round(random.SystemRandom().uniform(0, LATEST_S[origin]), 4) for _ in range(KILLED)]
    facts = run("killed", origin, *moments)
    sound = facts["state"] in ("absent", "whole") and not facts["error"]
    facts["bad"] = not (sound and all(each["killed"] for each in facts["processes"]))
    return {"from": origin, **facts}


def fetch_round(run: Verb, origin: str, hub: server.Hub) -> dict[str, Any]:
    """Sixteen processes at once. What a Hub sent is counted by the Hub."""
    before = hub.gets("kernels.bin")
    facts = run("together", origin, CONCURRENT)
    if origin != "folder":
        facts["downloads"] = hub.gets("kernels.bin") - before
    return {"from": origin, **facts}


def write(path: Path, figures: dict[str, Any], raw: list[dict[str, Any]]) -> None:
    """Figures first, then where it ran, then a line for each round."""
    machine = {"python": platform.python_version(), "cpus": os.cpu_count()}
    head = json.dumps(figures | {"machine": machine})[1:-1]
    lines = ",\n".join(json.dumps(each) for each in raw)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{{head},\n"raw": [\n{lines}\n]}}\n', encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="of kills, for each origin")
    parser.add_argument("--together", type=int, default=20, help="rounds, for each origin")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    out = console()
    kills: list[dict[str, Any]] = []
    fetches: list[dict[str, Any]] = []
    with campaign() as (run, hub):
        with progress(out, "sixteen at once") as tick:
            for done in range(2 * args.together):
                fetches.append(fetch_round(run, ORIGINS[done % 2], hub))
                tick(done + 1, 2 * args.together)
        with progress(out, "kill -9") as tick:
            for done in range(2 * args.rounds):
                kills.append(kill_round(run, ORIGINS[done % 2]))
                tick(done + 1, 2 * args.rounds)
    bad = sum(each["bad"] for each in kills)
    most = max(each["downloads"] for each in fetches)
    least = min(each["loads"] for each in fetches)
    write(args.out / "kill9.json", {"rounds": len(kills), "bad": bad}, kills)
    figures = {"concurrent": CONCURRENT, "downloads": most, "loads": least, "rounds": len(fetches)}
    write(args.out / "fetch.json", figures, fetches)
    out.print(f"kill -9: {len(kills)} rounds, {bad} bad")
    out.print(f"{CONCURRENT} at once: at most {most} download, at least {least} loads")


if __name__ == "__main__":
    main()
