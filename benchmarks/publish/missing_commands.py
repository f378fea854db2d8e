"""The commands that get what evidence lacks, as `missing` prints them.

A script writes lines where it is run, and `benchmarks.folders add` files them among the results.
"""

from __future__ import annotations

from hgemm_packs.generator.core import problems

EXPORT, TABLE = "benchmarks/results/confirmations", "manifests/sm_90a/h200"
_PACKS = "make packs  # no GPU"
_TABLE = "make table  # no GPU"
_UNITE = "make table RUNS={}  # no GPU"
_ADD = "python -m benchmarks.folders add {} {}  # no GPU"


def _pdl(role: str, pack: str = "packs/sm_90a", pairs: str = "pairs.jsonl") -> tuple[str, ...]:
    """What measures pairs behind one another, and files it."""
    lines = f"{role}.jsonl"
    script = f"hgemm-packs generate measure dependent {pack} {lines} --shapes {pairs}"
    return script, _ADD.format(f"dependent/{role}", lines)


_REMEASURE = f"hgemm-packs generate remeasure {EXPORT} --least 1 --out FOLDER"
_SPACE = "python -m benchmarks.gates.space_gates"
_SANITIZE = "hgemm-packs generate sanitize {} said.jsonl --known benchmarks/results/{}"


def _sanitize(pack: str, folder: str) -> tuple[str, ...]:
    """What asks the sanitizer about kernels without a record, and files it."""
    return _SANITIZE.format(pack, folder), _ADD.format(folder, "said.jsonl")


_WITH_PACK = "HGEMM_PACKS_PATH=packs/sm_90a python -m benchmarks"
COMMANDS = {
    # Both on one FOLDER: the second goes on where the first ended.
    "left": (
        f"{_REMEASURE} --left-by {TABLE} --only-build  # no GPU",
        f"{_REMEASURE} --left-by {TABLE}",
        _UNITE.format("FOLDER/export"),
    ),
    "rows": (
        f"{_REMEASURE} --only-build  # no GPU",
        _REMEASURE,
        _UNITE.format("FOLDER/export"),
    ),
    "sustain": (
        f"hgemm-packs generate contenders {EXPORT} --out FOLDER  # no GPU",
        "python -m benchmarks.publish.missing --list sustained > large.jsonl  # no GPU",
        "hgemm-packs generate measure sustained FOLDER/pack sustained.jsonl "
        f"--measured {EXPORT} --seconds 0.4 --shapes large.jsonl",
        _ADD.format("sustained", "sustained.jsonl"),
        _TABLE,
    ),
    "choose": (
        _PACKS,
        "python -m benchmarks.publish.missing --list dependent > pairs.jsonl  # no GPU",
        *_pdl("contenders"),
        *_pdl("published"),
        _TABLE,
    ),
    "publish": (
        _PACKS,
        "python -m benchmarks.publish.summary --unmeasured > rows.jsonl  # no GPU",
        "hgemm-packs generate measure public packs/sm_90a public.jsonl --shapes rows.jsonl",
        _ADD.format("dependent/public", "public.jsonl"),
        _TABLE,
    ),
    "sanitize": (
        "make waiting  # no GPU",
        *_sanitize("waiting/pack", "sanitizer/tables"),
        _TABLE,
    ),
    "space": (
        f"{_SPACE} build FOLDER  # no GPU",
        f"{_SPACE} run FOLDER OUT.jsonl",
        f"{_SPACE} summary FOLDER OUT.jsonl  # no GPU",
    ),
    "clean": (
        f"{_SPACE} build FOLDER  # no GPU",
        *_sanitize("FOLDER", "sanitizer/spaces"),
        f"{_SPACE} summary FOLDER benchmarks/results/spaces "
        "--sanitized benchmarks/results/sanitizer/spaces  # no GPU",
    ),
    "lag": (
        f"hgemm-packs generate follow {TABLE} --shapes grid "
        "--dtypes TYPE --layouts LAYOUT --regimes REGIME --run FOLDER",
        *_pdl("contenders", "FOLDER/pack", "FOLDER/pairs.jsonl"),
        *_pdl("published", "FOLDER/pack", "FOLDER/pairs.jsonl"),
        *_sanitize("FOLDER/pack", "sanitizer/tables"),
        _UNITE.format("FOLDER"),
    ),
    "redteam": ("hgemm-packs generate redteam --gpu --out benchmarks/results/redteam_h200.json",),
    "tests": ("make test-gpu",),
    "host": (_PACKS, f"{_WITH_PACK}.host.host_cost"),
    "load": (_PACKS, f"{_WITH_PACK}.host.load_cost"),
    "wheel": (
        "make wheel data-wheel  # no GPU",
        "python -m benchmarks.distribution.wheel_gpu "
        "dist/hgemm_packs-*x86_64.whl dist/hgemm_packs_sm90a-*.whl",
    ),
    "chained": (
        _PACKS,
        "hgemm-packs generate measure chained packs/sm_90a chained.jsonl",
        _ADD.format("chained", "chained.jsonl"),
        "make figures  # no GPU",
    ),
    **{
        name: (
            f"hgemm-packs generate --shapes {name} --budget TIME --run FOLDER",
            _UNITE.format("FOLDER"),
        )
        for name in problems.NAMED
    },
    "engines": (
        f"hgemm-packs generate archive {EXPORT}/05 {EXPORT}/09 "
        "benchmarks/results/tried/tokens --out UNION  # no GPU",
        f"hgemm-packs generate contenders UNION --proven {TABLE} --layouts nt --dtypes bf16 "
        "--out FOLDER  # no GPU",
        "hgemm-packs generate measure rows FOLDER/pack --shapes engines --most COUNT "
        "--budget TIME --run RUN",
        _UNITE.format("RUN"),
    ),
}
