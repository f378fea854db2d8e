"""The verbs that packs travel by: words, files, exit codes, and what each prints."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hgemm_packs.distribution.kernels_layout import VARIANT
from hgemm_packs.settings import settings
from tests.distribution.world import ALICE, BLOB, MANIFEST, REPO, SIGNATURE, World, read, sha_of
from tests.packs import H200, WIN

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    command: Run,
    tmp_path: Path,
) -> Run:
    """The command, at the world's Hub, as alice, in a folder of its own."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", world.server.url)
    monkeypatch.setenv("HF_TOKEN", ALICE)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)

    return command


def test_push_prints_the_fetch_that_brings_it(run: Run, world: World) -> None:
    folder = world.private_key.parent / "good"
    code, out, _ = run("push", folder, "--repo", "alice/new", "--private")
    assert code == 0
    commit = world.server.repos["alice/new"].branches["main"]
    sha = sha_of(world.files)
    assert f"pushed alice/new@{commit}\n" in out
    pushed = world.server.repos["alice/new"].head()
    assert pushed["speedups.png"].startswith(b"\x89PNG") and len(pushed["speedups.png"]) > 10_000
    assert f"hgemm-packs fetch alice/new@{commit} --allow sha256:{sha}\n" in out
    code, out, _ = run("fetch", f"alice/new@{commit}", "--allow", f"sha256:{sha}")
    assert code == 0
    path = world.root / "v1" / "packs" / sha
    assert f"test-pack 1.0.0 for sm_90a at {path}, vouched for by sha256:{sha}\n" in out
    assert read(path) == world.files
    assert run("list", "--remote", "--author", "alice")[1] == f"alice/new@{commit}\n"


def test_what_one_process_fetches_the_next_one_uses(world: World, tmp_path: Path) -> None:
    """Endpoint, token and cache by the environment alone, as on another machine."""
    world.repo.private = True
    cache = tmp_path / "of another machine"
    environment = {name: value for name, value in os.environ.items() if name != "HGEMM_PACKS_PATH"}
    environment |= {"HF_ENDPOINT": world.server.url, "HF_TOKEN": ALICE, "HF_HOME": str(tmp_path)}
    environment["HGEMM_PACKS_CACHE"] = str(cache)

    def python(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    python("-m", "hgemm_packs.cli", "fetch", REPO, "--allow", world.allow[0])
    program = (
        "from hgemm_packs import select\n"
        "from hgemm_packs.problem import DeviceInfo, Problem\n"
        f"choice = select.resolve({WIN!r}, 0, {H200!r})\n"
        "print(choice.code, choice.pack.path)"
    )
    path = cache / "v1" / "packs" / sha_of(world.files)
    assert python("-c", program) == f"kernel {path}\n"
    assert cache.stat().st_mode & 0o777 == 0o700


def test_fetch_without_a_word_of_trust_is_refused(run: Run, world: World) -> None:
    code, _, err = run("fetch", REPO)
    assert code == 2
    assert "nobody you trust vouches for the manifest" in err
    assert run("fetch", REPO, "--allow", "everything")[0] == 2
    code, _, err = run("fetch", "../x")
    assert code == 2 and "is not NAME or OWNER/REPO" in err
    code, _, err = run("fetch", "alice/none")
    assert code == 2 and "no such repository" in err


def test_list_says_where_from_and_by_whom(run: Run, world: World) -> None:
    world.fetch()
    code, out, _ = run("list")
    assert code == 0
    assert re.search(r"test-pack\s+0\.9\.0 .*this machine", out)
    words = re.sub(r"[│\s]+", " ", out)
    assert f"test-pack 1.0.0 sm_90a {REPO}@{world.commit[:12]} key" in words


def test_export_as_a_directory_and_as_a_kernel(run: Run, world: World, tmp_path: Path) -> None:
    world.fetch()
    assert run("export", REPO, "plain")[0] == 0
    assert read(Path("plain")) == world.files
    code, _, err = run("export", REPO, "plain")
    assert code == 2 and "exists already" in err
    assert run("export", "plain", "again")[0] == 0
    assert read(Path("again")) == world.files
    assert run("export", REPO, "kernel", "--kernels")[0] == 0
    variant = Path("kernel") / "build" / VARIANT
    assert (variant / BLOB).read_bytes() == world.files[BLOB]
    assert run("export", "alice/never", "never")[0] == 2


def test_gc_removes_the_longest_unused(run: Run, world: World) -> None:
    kept = world.fetch()
    (old,) = (path for path in kept.parent.iterdir() if path != kept)
    os.utime(old, (1e9, 1e9))
    code, out, _ = run("gc", "--unused-days", 30, "--dry-run")
    assert code == 0 and f"would remove {old.name}" in out and old.exists()
    code, out, _ = run("gc", "--unused-days", 30)
    assert code == 0 and f"removed {old.name}" in out
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]
    assert "1 packs" in run("gc", "--max-mb", 0)[1]
    assert list(kept.parent.iterdir()) == []


def test_lock_and_sync(run: Run, world: World) -> None:
    world.fetch()
    code, out, _ = run("lock", REPO)
    assert code == 0 and "wrote hgemm-packs.lock: 1 packs" in out
    assert run("sync", "--check")[0] == 0
    run("gc", "--max-mb", 0)
    code, _, err = run("sync", "--check")
    assert code == 2 and "not_synced" in err
    code, out, _ = run("sync")
    assert code == 0 and "test-pack 1.0.0 for sm_90a" in out
    document = json.loads(Path("hgemm-packs.lock").read_text())
    document["packs"][0]["blob_sha256"] = "0" * 64
    Path("other.lock").write_text(json.dumps(document))
    code, _, err = run("sync", "--file", "other.lock")
    assert code == 2 and "lock_mismatch" in err


def test_verify_names_who_vouches(run: Run, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = world.fetch()
    code, out, _ = run("verify", path, "--allow", world.allow[0])
    assert code == 0 and "vouched for by key:" in out and "key key" not in out
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(world.private_key.parent / "other"))
    settings.cache_clear()
    code, out, _ = run("verify", "--allow", f"sha256:{sha_of(world.files)}")
    assert code == 1
    assert f"vouched for by sha256:{sha_of(world.files)}" in out
    assert "REFUSED" in out and "nobody you trust" in out
    names = {MANIFEST, BLOB, SIGNATURE}
    assert {file.name for file in path.iterdir()} == names


def test_newcomer_12_a_search_of_the_hub_that_finds_nothing_says_so(run: Run, world: World) -> None:
    code, out, _ = run("list", "--remote", "--author", "bob")
    assert (code, out) == (0, "the Hub has no pack of bob that says so by the tag hgemm-packs\n")


def test_newcomer_12_no_empty_bar_before_an_error(run: Run, world: World) -> None:
    for arguments in (("fetch", "../x"), ("fetch", "alice/none"), ("sync", "--file", "no.lock")):
        code, out, err = run(*arguments)
        assert (code, out) == (2, "") and len(err.splitlines()) == 1
