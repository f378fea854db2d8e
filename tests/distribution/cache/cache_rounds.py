"""Processes that use one cache at once, and what they leave when they are killed.

    python -m tests.distribution.cache.cache_rounds together ROOT SOURCE FROM COUNT
    python -m tests.distribution.cache.cache_rounds killed ROOT SOURCE FROM MOMENT_S...
    python -m tests.distribution.cache.cache_rounds steps ROOT SOURCE

SOURCE is a pack's folder. It is added from there where FROM is "folder", else fetched by
`hub.fetch`, FROM being the name that the Hub at HF_ENDPOINT has it under. Each prints one JSON
object. A program of its own, because it forks and kills; run by the tests and, a hundred times, by
benchmarks/distribution/cache_campaign.py.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hgemm_packs.distribution import cache, hub, remote
from hgemm_packs.errors import PackError
from hgemm_packs.pack.folder import MANIFEST_NAME, Pack
from tests.distribution.cache import cache_steps

CHUNK = 1 << 16
#: A fill takes this much longer than copying, so that sixteen processes do meet.
PAUSE_S = 0.2
STAGES = ("start", "add", "fill", "check", "open", "remove")


def sha_of(source: Path) -> str:
    return hashlib.sha256((source / MANIFEST_NAME).read_bytes()).hexdigest()


def fork(body: Callable[[], None]) -> int:
    """A process that ends with 0 when `body` returns, with 1 when it raises."""
    child = os.fork()
    if child:
        return child
    try:
        body()
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def load(folder: Path, sha: str) -> None:
    """Open a pack and read every kernel. Raises PackError when a byte is wrong."""
    pack = Pack.open(folder)
    if pack.manifest_sha256 != sha:
        raise PackError("manifest_hash", pack.manifest_sha256)
    for entry in pack.manifest.kernels:
        pack.image(entry)
    pack.close()


def adding(root: Path, source: Path, origin: str) -> Callable[[Callable[[str], None]], Path]:
    """How this round gets its pack into the cache; the stages of a fill are told to the caller."""
    sha = sha_of(source)
    if origin != "folder":
        os.environ["HGEMM_PACKS_CACHE"] = str(root)
        remote.library()  # imported once, before the processes part
        return lambda note: hub.fetch(origin, allow=[f"sha256:{sha}"])

    def from_folder(note: Callable[[str], None]) -> Path:
        def fill(temp: Path) -> None:
            note("fill")
            copy(source, temp)
            note("check")

        return cache.add(sha, fill, root)

    return from_folder


def copy(source: Path, temp: Path) -> None:
    """In small pieces, so that a kill finds half a file."""
    for file in sorted(source.iterdir()):
        with open(file, "rb") as old, open(temp / file.name, "wb") as new:
            while piece := old.read(CHUNK):
                new.write(piece)
                new.flush()


def together(root: Path, source: Path, origin: str, count: int) -> dict[str, int]:
    """Let `count` processes add one pack at once. Fills are counted here, and those of a Hub by the
    Hub."""
    sha, add = sha_of(source), adding(root, source, origin)
    log = os.open(root.with_suffix(".fills"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    start, gate = os.pipe()

    def note(stage: str) -> None:
        if stage == "fill":
            os.write(log, b"x")
            time.sleep(PAUSE_S)

    def body() -> None:
        os.close(gate)
        os.read(start, 1)  # until the last holder of the gate has closed it
        load(add(note), sha)

    children = [fork(body) for _ in range(count)]
    os.close(gate)
    codes = [os.waitpid(child, 0)[1] for child in children]
    return {"concurrent": count, "downloads": os.fstat(log).st_size, "loads": codes.count(0)}


def killed(root: Path, source: Path, origin: str, moments_s: list[float]) -> dict[str, Any]:
    """Let processes add, open and remove a pack without end, each killed at its own moment.

    Of each: the moment, what it was doing, how often it had added the pack; then `after`.
    """
    sha, add = sha_of(source), adding(root, source, origin)
    shared = mmap.mmap(-1, 2 * len(moments_s))  # of each its stage and its count

    def body(place: int) -> None:
        def note(stage: str) -> None:
            shared[place] = STAGES.index(stage)

        while True:
            note("add")
            try:
                folder = add(note)
                note("open")
                load(folder, sha)
            except PackError as error:  # another process has removed it meanwhile
                if error.code != "missing_file":
                    raise
            shared[place + 1] = min(shared[place + 1] + 1, 255)
            note("remove")
            cache.remove(sha, root)

    begin = time.monotonic()
    children = [fork(partial(body, 2 * i)) for i in range(len(moments_s))]
    processes = []
    for i in sorted(range(len(moments_s)), key=lambda i: moments_s[i]):
        time.sleep(max(0.0, begin + moments_s[i] - time.monotonic()))
        os.kill(children[i], signal.SIGKILL)
        status = os.waitpid(children[i], 0)[1]
        doing, added = STAGES[shared[2 * i]], shared[2 * i + 1]
        by_us = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        processes.append(
            {"moment_s": moments_s[i], "doing": doing, "added": added, "killed": by_us}
        )
    return {"processes": processes, **after(root, source, lambda: add(lambda stage: None))}


def after(root: Path, source: Path, add: Callable[[], Path]) -> dict[str, Any]:
    """What killed processes have left: folders and bytes, whether the pack is "absent", "whole" or
    refused with a code; and what went wrong when the cache was used again, "" for nothing."""
    sha, base = sha_of(source), root / "v1"
    folders = [each for name in ("temp", "downloads") for each in (base / name).glob("*")]
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    facts: dict[str, Any] = {
        "left_folders": len(folders),
        "left_bytes": sum(file.stat().st_size for file in files),
        "state": "absent",
        "error": "",
    }
    try:
        for entry in cache.packs(root):
            load(entry.path, sha)
            facts["state"] = "whole"
    except PackError as error:
        facts["state"] = error.code
    try:
        load(add(), sha)
        cache.gc(root)
        names = [each.name for name in ("packs", "temp") for each in (base / name).iterdir()]
        if names != [sha]:
            raise RuntimeError(f"found {names}")
    except Exception as error:
        facts["error"] = f"{type(error).__name__}: {error}"
    return facts


def steps(root: Path, source: Path) -> dict[str, Any]:
    """Kill a process before every single change of the disk: of an add, of an add in place of a
    damaged pack, and of a remove."""
    sha = sha_of(source)

    def add() -> Path:
        return cache.add(sha, cache_steps.fill_from(source), root)

    def damaged() -> None:
        os.truncate(add() / "kernels.bin", 1)

    jobs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "add": (lambda: None, add),
        "mend": (damaged, add),
        "remove": (add, lambda: cache.remove(sha, root)),
    }
    result: dict[str, Any] = {}
    for name, (prepare, job) in jobs.items():
        rounds: list[dict[str, Any]] = []
        while not rounds or rounds[-1]["killed"]:
            shutil.rmtree(root, ignore_errors=True)
            prepare()
            child = fork(partial(die_at, len(rounds), job))
            status = os.waitpid(child, 0)[1]
            if os.WIFEXITED(status) and os.WEXITSTATUS(status):
                raise RuntimeError(f"{name}, step {len(rounds)}: the process failed")
            rounds.append({"killed": os.WIFSIGNALED(status), **after(root, source, add)})
        result[name] = rounds
    return result


def die_at(step: int, job: Callable[[], Any]) -> None:
    count = 0

    def counting(real: Callable[..., Any], name: str, args: Any, kwargs: Any) -> Any:
        nonlocal count
        if count == step:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1
        return real(*args, **kwargs)

    cache_steps.replace(counting, cache_steps.CHANGING, lambda n, f: setattr(os, n, f))
    job()


def main(verb: str, root: str, source: str, *rest: str) -> None:
    place, pack = Path(root), Path(source)
    if verb == "together":
        facts: dict[str, Any] = together(place, pack, rest[0], int(rest[1]))
    elif verb == "killed":
        facts = killed(place, pack, rest[0], [float(moment) for moment in rest[1:]])
    else:
        facts = steps(place, pack)
    print(json.dumps(facts))


if __name__ == "__main__":
    main(*sys.argv[1:])
