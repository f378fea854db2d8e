"""A pack in a folder, signed or not, and what refuses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.distribution import trust
from hgemm_packs.distribution.trust import Signer
from hgemm_packs.errors import TrustError
from tests.distribution.trust.sigstore_world import (
    IDENTITY,
    ISSUER,
)

SIGNER = Signer(ISSUER, IDENTITY)


def refused(folder: Path, **how: Any) -> str:
    with pytest.raises(TrustError) as error:
        trust.verify(folder, **how)
    return error.value.code
