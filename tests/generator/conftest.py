"""What every build in these tests needs: a cache of its own, and a watch on the compiler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A cache for tests that need kernels and do not ask how they came about: each is compiled
    once."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def cache(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """An empty cache, or the kept one for who asks for it; sources read anew before and after."""
    shared = "kept" in request.fixturenames
    root = Path(request.getfixturevalue("kept")) if shared else tmp_path / "cache"
    monkeypatch.setenv("HGEMM_PACKS_CACHE", str(root))
    compiler.expand_source.cache_clear()
    yield root / "v1" / "build"
    compiler.expand_source.cache_clear()


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Symbols that reach the compiler, in order."""
    seen: list[str] = []
    real = compiler._compile

    def counted(source: str, symbol: str) -> tuple[bytes, int, str]:
        seen.append(symbol)
        return real(source, symbol)

    monkeypatch.setattr(compiler, "_compile", counted)
    return seen


@pytest.fixture(scope="session")
def driver_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests import fake_driver

    return fake_driver.compile_driver(tmp_path_factory.mktemp("driver") / "libfake.so")


@pytest.fixture
def machine(
    clean_process: None, monkeypatch: pytest.MonkeyPatch, driver_library: Path
) -> Iterator[Any]:
    """A GPU device on the stand-in driver: see stand_in."""
    import torch

    from . import stand_in

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # products this small are slower on several
    yield stand_in.install(monkeypatch, driver_library)
    torch.set_num_threads(threads)
