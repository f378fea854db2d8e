"""The cache between processes: sixteen at once, killed anywhere, removed under a reader."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.distribution import cache_campaign
from hgemm_packs.distribution import cache
from hgemm_packs.pack.folder import Pack
from tests import packs
from tests.distribution.cache import cache_steps

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    return packs.write_good(tmp_path / "source")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def rounds(verb: str, root: Path, pack: Pack, *rest: object) -> Any:
    command = [
        sys.executable,
        "-m",
        "tests.distribution.cache.cache_rounds",
        verb,
        root,
        pack.path,
        *rest,
    ]
    done = subprocess.run(
        list(map(str, command)), cwd=REPOSITORY, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_sixteen_processes_fill_once_and_all_open_it(pack: Pack, root: Path) -> None:
    facts = rounds("together", root, pack, "folder", 16)
    assert facts == {"concurrent": 16, "downloads": 1, "loads": 16}
    assert list((root / "v1" / "temp").iterdir()) == []


def test_killed_before_every_change_of_the_disk(pack: Pack, root: Path) -> None:
    """A pack is absent or whole, one in place of a damaged one may still be that; and it goes on.

    In order: states only ever move on, and the last process of each job was not killed.
    """
    allowed = {
        "add": ["absent", "whole"],
        "mend": ["blob_size", "absent", "whole"],
        "remove": ["whole", "absent"],
    }
    for job, done in rounds("steps", root, pack).items():
        assert [each["error"] for each in done if each["error"]] == [], job
        states = [each["state"] for each in done]
        assert list(dict.fromkeys(states)) == allowed[job]
        assert states == sorted(states, key=allowed[job].index)
        assert [each["killed"] for each in done] == [True] * (len(done) - 1) + [False]
        assert max(each["left_folders"] for each in done) == (2 if job == "mend" else 1)


def test_killed_at_random_moments(pack: Pack, root: Path) -> None:
    added = 0
    for _ in range(4):
        moments = [random.uniform(0, 0.25) for _ in range(4)]
        facts = rounds("killed", root, pack, "folder", *moments)
        assert facts["error"] == "" and facts["state"] in ("absent", "whole"), facts
        assert all(process["killed"] for process in facts["processes"]), facts
        added += sum(process["added"] for process in facts["processes"])
    assert added > 0


@pytest.mark.parametrize(
    ("change", "bad"),
    [
        ({}, False),
        ({"state": "whole"}, False),
        ({"state": "blob_hash"}, True),
        ({"error": "OSError: no"}, True),
        ({"processes": [{"killed": True}, {"killed": False}]}, True),
    ],
)
def test_the_campaign_counts_what_is_bad(change: dict[str, Any], bad: bool) -> None:
    facts = {"state": "absent", "error": "", "processes": [{"killed": True}]} | change
    seen = cache_campaign.kill_round(lambda verb, origin, *moments: dict(facts), "folder")
    assert seen == {"from": "folder", **facts, "bad": bad}


READER = """
import mmap, sys
from hgemm_packs.pack.folder import Pack
pack = Pack.open(sys.argv[1])
with open(pack.path / "kernels.bin", "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print("open", flush=True)
sys.stdin.readline()
images = [bytes(pack.image(entry)) for entry in pack.manifest.kernels]
parts = [mapped[entry.offset : entry.offset + entry.size] for entry in pack.manifest.kernels]
print(images == parts and not pack.path.exists(), flush=True)
"""


def test_removed_while_another_process_has_it_mapped(pack: Pack, root: Path) -> None:
    folder = cache.add(pack.manifest_sha256, cache_steps.fill_from(pack.path), root)
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    assert reader.stdout is not None
    assert reader.stdout.readline() == "open\n"
    assert cache.remove(pack.manifest_sha256, root) is True
    assert reader.communicate("go on\n", timeout=60)[0] == "True\n"
