"""A pack in a folder, and the root of trust of `sigstore_world` in place of the public one."""

from __future__ import annotations

from pathlib import Path

import pytest

from hgemm_packs.distribution import signatures
from tests import packs
from tests.distribution.trust.sigstore_world import world


@pytest.fixture
def own_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sigstore.models import TrustedRoot
    from sigstore.verify import Verifier

    root = world().trusted_root(tmp_path / "trusted_root.json")
    verifier = Verifier(trusted_root=TrustedRoot.from_file(str(root)))
    monkeypatch.setattr(signatures, "_verifier", lambda: verifier)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return packs.write_good(tmp_path / "pack").path
