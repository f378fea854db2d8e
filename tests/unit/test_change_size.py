""".ci/change_size: what a change adds to the repository for good is counted, and bounded."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "change_size"
TOO_MUCH = 6_000_000

pytestmark = pytest.mark.skipif(
    shutil.which("git") is None or shutil.which("bash") is None, reason="no git or bash"
)


def git(folder: Path, *arguments: str) -> None:
    who = (
        "-c",
        "user.name=test",
        "-c",
        "user.email=test@example.org",
        "-c",
        "commit.gpgsign=false",
    )
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path, message: str) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message)


def measure(folder: Path, base: str | None = None) -> tuple[int, str, str]:
    """Exit status and what was printed; `base` is HGEMM_PACKS_BASE."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment.pop("HGEMM_PACKS_BASE", None)
    if base is not None:
        environment["HGEMM_PACKS_BASE"] = base
    done = subprocess.run(
        ["bash", ".ci/change_size"], cwd=folder, env=environment, capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One commit, with the script and a file that is larger than a change may be."""
    folder = tmp_path / "repository"
    (folder / ".ci").mkdir(parents=True)
    shutil.copy(SCRIPT, folder / ".ci" / "change_size")
    git(folder, "init", "--quiet")
    (folder / "large").write_bytes(os.urandom(TOO_MUCH))
    commit(folder, "first")
    return folder


def test_a_small_change_passes_and_is_measured(repository: Path) -> None:
    (repository / "small").write_bytes(os.urandom(1000))
    commit(repository, "second")
    code, printed, _ = measure(repository)
    assert code == 0
    counted = int(printed.split()[1])
    assert printed.startswith("change: ") and 1000 <= counted < 1100, printed


def test_a_large_file_is_refused_and_named(repository: Path) -> None:
    (repository / "raw results.gz").write_bytes(os.urandom(TOO_MUCH))
    commit(repository, "second")
    code, _, error = measure(repository)
    assert code == 1 and "raw results.gz" in error


def test_a_file_that_a_later_commit_deletes_counts(repository: Path) -> None:
    (repository / "gone").write_bytes(os.urandom(TOO_MUCH))
    commit(repository, "second")
    (repository / "gone").unlink()
    commit(repository, "third")
    assert measure(repository)[0] == 0, "its own commit deletes alone"
    assert measure(repository, "HEAD~2")[0] == 1


def test_what_history_has_costs_nothing(repository: Path) -> None:
    (repository / "large").rename(repository / "moved")
    commit(repository, "second")
    assert measure(repository)[0] == 0
    (repository / "moved").unlink()
    commit(repository, "third")
    git(repository, "revert", "--no-edit", "HEAD")
    assert measure(repository)[0] == 0


def test_a_blob_that_is_allowed_by_name_costs_nothing_and_others_do(repository: Path) -> None:
    """One change repacked all raw results, and no other may for that: blobs are allowed, not a
    change or a path."""
    large = repository / "results.zip"
    large.write_bytes(os.urandom(TOO_MUCH))
    words = ["git", "hash-object", str(large)]
    blob = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    (repository / ".ci" / "allowed_blobs").write_text(f"# repacked\n{blob} results.zip\n")
    commit(repository, "second")
    code, printed, _ = measure(repository)
    assert code == 0 and int(printed.split()[1]) < 1000
    large.write_bytes(os.urandom(TOO_MUCH))
    commit(repository, "third")
    assert measure(repository)[0] == 1


@pytest.mark.parametrize("base", [None, "", "0" * 40, "nothing"])
def test_without_a_commit_to_compare_with_it_says_so(repository: Path, base: str | None) -> None:
    code, printed, _ = measure(repository, base)
    assert code == 0 and "not measured" in printed
