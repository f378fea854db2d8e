"""The build cache: nothing is compiled twice, damage heals, nothing half-written stays."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.compiler import BuildError
from tests.generator.kernels import DIRECT, Job, sources_at

QUICK: Job = ("sm90_direct", DIRECT)


def entries(cache: Path) -> list[Path]:
    """Every file of the cache, whatever its name."""
    return [path for path in cache.rglob("*") if path.is_file()]


def test_a_second_build_compiles_nothing(compilations: list[str]) -> None:
    first = compiler.build_one(*QUICK)
    assert compiler.build_one(*QUICK) == first
    assert compilations == [first.entry_fields["symbol"]]


def _flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data + b"\0",
        lambda data: _flip(data, 0),
        lambda data: _flip(data, data.index(b"\n") + 1),  # registers
        lambda data: _flip(data, len(data) - 100),  # cubin
        lambda data: b"\xff\xfe not an entry",
        lambda data: b'{"regs":1}\n',
    ],
    ids=["empty", "torn", "tail", "digest", "registers", "cubin", "noise", "foreign"],
)
def test_a_damaged_entry_is_compiled_again(
    damage: Any, cache: Path, compilations: list[str]
) -> None:
    good = compiler.build_one(*QUICK)
    (path,) = entries(cache)
    data = path.read_bytes()
    path.write_bytes(damage(data))
    assert path.read_bytes() != data
    assert compiler.build_one(*QUICK) == good
    assert len(compilations) == 2
    assert path.read_bytes() == data, "and mended"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_leaves_nothing(
    step: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, step, full)
        with pytest.raises(OSError, match="no space left"):
            compiler.build_one(*QUICK)
    assert entries(cache) == []
    compiler.build_one(*QUICK)
    assert len(entries(cache)) == 1


def test_a_killed_write_is_no_entry(cache: Path) -> None:
    """Killed between write and rename, as by the out-of-memory killer."""
    path = cache / "ab" / "abcd"

    def die() -> None:
        os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        compiler._write_entry(path, b"cubin", 32)

    child = multiprocessing.get_context("fork").Process(target=die)
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert not path.exists()
    assert compiler._read_entry(path) is None
    compiler._write_entry(path, b"cubin", 32)
    assert compiler._read_entry(path) == (b"cubin", 32)


def test_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiler.cache_dir() == tmp_path / "cache" / "v1" / "build"
    monkeypatch.delenv("HGEMM_PACKS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert compiler.cache_dir() == tmp_path / "xdg" / "hgemm_packs" / "v1" / "build"


def test_a_refused_kernel_is_not_cached(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sources_at(tmp_path / "kernels", monkeypatch) / "sm90" / "direct.cuh"
    path.write_text(path.read_text(encoding="utf-8").replace("kMI = HGP_MI;", "kMI = ;"))
    for _ in range(2):
        with pytest.raises(BuildError, match="expected an expression"):
            compiler.build_one(*QUICK)
    assert entries(cache) == []


def test_another_compiler_version_is_refused(
    cache: Path, monkeypatch: pytest.MonkeyPatch, compilations: list[str]
) -> None:
    monkeypatch.setattr(compiler.importlib.metadata, "version", lambda _: "13.0.89")
    with pytest.raises(BuildError, match=r"need nvidia-cuda-nvrtc==13\.0\.88, found 13\.0\.89"):
        compiler.build_one(*QUICK)
    assert (compilations, entries(cache)) == ([], [])
