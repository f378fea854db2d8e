"""`hgemm-packs sign`: a signature beside the manifest of a pack, which `push` and users ask for."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from ..distribution import signatures
from ..pack.folder import MANIFEST_NAME
from .console import open_pack


def run(out: Console, folder: Path, key: Path | None) -> None:
    """Sign a pack that holds, with a PEM key or else with an identity of sigstore.

    Raises UserError for a folder that is no pack, TrustError for a key that cannot be used.
    """
    pack = open_pack(folder)
    pack.close()
    if key is None:
        path = signatures.sign_sigstore(folder / MANIFEST_NAME)
    else:
        path = signatures.sign_key(folder, key)
    out.print(f"wrote {path}")
    out.print(f"manifest sha256:{pack.manifest_sha256}")
