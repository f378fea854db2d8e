"""REPORT.md of a pack: what its manifest says, for people.

Called by `data_wheel`; the same text is what PyPI shows. It follows from the manifest alone, so the
same pack has the same report, and its figures are those of the pack's card on the Hub.
"""

from __future__ import annotations

from hgemm_packs.distribution import card
from hgemm_packs.pack.manifest_reader import Manifest

INTRODUCTION = """\
# {name} {version}

Kernels for half-precision matrix products on {devices} (`{arch}`), with the table that says which
problem gets one. `hgemm-packs` finds this package by itself; every other problem, and every other
GPU, runs torch's own matmul. The sha256 of its `manifest.json`, which holds the hashes of all the
rest: `{sha256}`."""


def report(manifest: Manifest, manifest_sha256: str) -> str:
    """The page of a pack whose manifest, as a file, has this sha256."""
    introduction = INTRODUCTION.format(
        name=manifest.pack.name,
        version=manifest.pack.version,
        devices=", ".join(profile.name for profile in manifest.device_profiles),
        arch=manifest.arch,
        sha256=manifest_sha256,
    )
    return "\n\n".join([introduction, *card.figures(manifest)]) + "\n"
