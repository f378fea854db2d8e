"""Writes the seeds of every target beside this file: `python -m tests.fuzz.write_seeds`.

Run when the format changes; test_readers.py says when that is. Seeds are small, so that a mutation
hits something that matters.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from hgemm_packs.distribution.lockfile import SCHEMA, LockedPack
from hgemm_packs.generator.compile.pack_writer import write_pack
from hgemm_packs.generator.families.base import dims
from hgemm_packs.pack.folder import BLOB_NAME, MANIFEST_NAME
from hgemm_packs.pack.manifest import (
    GROUPED_ABI,
    GROUPED_LAYOUT,
    LAUNCHER_ABI,
    OF_BATCH,
    WITH_ADDEND,
    GroupedRow,
    Timing,
)
from hgemm_packs.pack.receipts import Receipt, write_receipt
from tests import cards, packs, predictions
from tests.fuzz.targets import SEPARATOR

SEEDS = Path(__file__).parent / "seeds"
DOCUMENTS = {
    "numbers": b'[0,-1,1.5e300,12345678901234567890,1e-7,"x",true,null]',
    "flags": b'{"dirty":false,"commit":"0","pdl":true,"kernel":null,"box":[64,128],"us":11.25}',
    "nested": b'{"a":[{"b":[[[[{}]]]]}],"c":{"d":{"e":""}}}',
    "text": '{"\\u00e9\\n":"\u00e9\\ud83d\\ude00\\"","":" \\t"}'.encode(),
}


POLICIES = {
    "hashes": f'# ours\nsha256 = [\n  "{"a" * 64}",\n  "{"b" * 64}",\n]\n',
    "all": f"""keys = ["key.pem"]
sha256 = ["{"a" * 64}"]
[[sigstore]]
issuer = "https://token.actions.githubusercontent.com"
identity = "https://github.com/o/r/.github/workflows/release.yml@refs/heads/main"
""",
}
LOCKS = [
    LockedPack("mine", "1.0.0", "sm_90a", None, None, "a" * 64, "b" * 64),
    LockedPack("theirs", "2.1", "sm_80", "o/r", "c" * 40, "d" * 64, "e" * 64),
]
RECEIPTS = {
    "unsigned": Receipt("a" * 64, "b" * 64, None, None, "sha256", None, "2026-11-20T00:00:00Z"),
    "signed": Receipt(
        "a" * 64, "b" * 64, "o/r", "c" * 40, "sigstore", "https://i id@ref", "2026-11-20T01:02:03Z"
    ),
}


def write_pair(name: str, folder: Path) -> None:
    """A pack as seeds of both its targets."""
    manifest, blob = (folder / MANIFEST_NAME).read_bytes(), (folder / BLOB_NAME).read_bytes()
    (SEEDS / "manifest" / name).write_bytes(manifest)
    (SEEDS / "pack" / name).write_bytes(manifest + SEPARATOR + blob)


def write_grouped(folder: Path) -> None:
    """A pack of two rows of grouped products."""
    record = {"cluster": [1, 1, 1], "dims": dims(), "layout": "nt"}
    kernel = packs.built("k_grouped", GROUPED_LAYOUT, size=80, **record)
    timing = Timing(10.0, 12.0, 12.0, 1.2, 1.1)
    own = kernel.entry_fields["id"]
    rows = tuple(
        GroupedRow(
            *(8, m, 64, 128, "nt", "f16"),
            *(name, packs.H200.name, timing, timing, 60, "2026-11-25"),
        )
        for m, name in ((16, own), (64, None))
    )
    source = packs.source([kernel], [], launcher_abi=GROUPED_ABI, grouped=rows)
    write_pack(
        folder,
        source,
        [kernel],  # type: ignore[list-item]
        generator_info=packs.GENERATOR,
    ).close()


def write_batched(folder: Path) -> None:
    """A pack of batches: packed, with rows in turn, and with a sum."""
    kinds = (("tma2_v1", "none"), ("tma3_v1_addend", "residual"))
    kernels = [
        packs.built(f"k_{epilogue}", OF_BATCH[layout], size=80, epilogue=epilogue)
        for layout, epilogue in kinds
    ]
    plain, adding = (
        replace(packs.WIN, batches=4, epilogue=epilogue, packed=epilogue == "none")
        for _, epilogue in kinds
    )
    rows = [packs.row(plain, kernels[0]), packs.row(adding, kernels[1])]
    rows += [packs.row(replace(plain, packed=False), None)]
    write_pack(
        folder,
        packs.source(kernels, rows, launcher_abi=LAUNCHER_ABI),
        kernels,  # type: ignore[arg-type]
        generator_info=packs.GENERATOR,
    ).close()


def main() -> None:
    for target in ("json", "lock", "manifest", "pack", "policy", "receipt"):
        (SEEDS / target).mkdir(parents=True, exist_ok=True)
    for name, data in DOCUMENTS.items():
        (SEEDS / "json" / name).write_bytes(data)
    for count in range(3):
        packs_locked = [asdict(each) for each in LOCKS[:count]]
        data = json.dumps({"packs": packs_locked, "schema": SCHEMA}, indent=2).encode()
        (SEEDS / "lock" / f"packs{count}").write_bytes(data)
    for name, text in POLICIES.items():
        (SEEDS / "policy" / name).write_text(text)
    with tempfile.TemporaryDirectory() as scratch:
        for name, receipt in RECEIPTS.items():
            data = write_receipt(Path(scratch), receipt).read_bytes()
            (SEEDS / "receipt" / name).write_bytes(data)
        packs.write_good(Path(scratch) / "good").close()
        write_pair("good", Path(scratch) / "good")
        known = (cards.profile(cards.H200), cards.profile(cards.H100), cards.unrecorded(cards.H20))
        packs.write_good(Path(scratch) / "recorded", device_profiles=known).close()
        write_pair("recorded", Path(scratch) / "recorded")
        predictions.write(Path(scratch) / "predicting").close()
        write_pair("predicting", Path(scratch) / "predicting")
        for layout in WITH_ADDEND:
            kernels = [packs.built(f"k_{layout}", layout, size=80)]
            win = packs.row(packs.WIN, kernels[0], dependent=kernels[0])
            rows = [win, packs.row(packs.CUBLAS, None)]
            folder = Path(scratch) / layout
            write_pack(
                folder,
                packs.source(kernels, rows),
                kernels,  # type: ignore[arg-type]
                generator_info=packs.GENERATOR,
            ).close()
            write_pair(layout, folder)
        write_grouped(Path(scratch) / "grouped")
        write_pair("grouped", Path(scratch) / "grouped")
        write_batched(Path(scratch) / "batched")
        write_pair("batched", Path(scratch) / "batched")


if __name__ == "__main__":
    main()
