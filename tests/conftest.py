"""Fixtures for every test folder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hgemm_packs import select
from hgemm_packs.pack import discover
from hgemm_packs.settings import settings


@pytest.fixture
def clean_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No HGEMM_PACKS_* variable, an empty cache, nothing remembered; the same again afterwards."""

    def forget() -> None:
        settings.cache_clear()
        discover._warned.clear()
        select.reset()

    for name in ("OFF", "PATH", "LOG", "STRICT", "POLICY", "SELFTEST", "PREDICT", "SIBLINGS"):
        monkeypatch.delenv(f"HGEMM_PACKS_{name}", raising=False)
    monkeypatch.setenv("HGEMM_PACKS_CACHE", str(tmp_path / "no-cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    forget()
    yield
    forget()


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """The command, run in this process: exit code, standard output, standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hgemm-packs", *(str(each) for each in arguments)])
        from hgemm_packs import cli

        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return code, printed.out, printed.err

    return call
