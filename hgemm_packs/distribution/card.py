"""The card of a pack: the README that its repository on the Hub shows.

Written by `publish` from the pack's own manifest, so that no figure on it can differ from the table
that `matmul` reads. It is for people: nothing ever reads it back.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import geometric_mean

from ..pack.folder import Pack
from ..pack.manifest import GeneratorInfo, Row, Timing, WinPolicy
from ..pack.manifest_reader import Manifest
from ..problem import REGIMES, regime

#: Of the card, beside it on the Hub. Nobody fetches it.
PICTURE_NAME = "speedups.png"
#: What a Hub search finds packs by.
TAG = "hgemm-packs"
LIBRARY = "hgemm_packs"

#: Where the bars of the plot begin, as speed-ups, and how long the longest is.
EDGES = (1.0, 1.02, 1.05, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0)
BAR_WIDTH = 40


def card(pack: Pack, repo: str, *, picture: bool = False) -> str:
    """Markdown with the Hub's front matter: use, measured tables, versions, what a cubin can do;
    with the picture that lies beside it, if there is one."""
    manifest = pack.manifest
    profiles = ", ".join(_plain(profile.name) for profile in manifest.device_profiles)
    parts = [
        _front(manifest),
        f"# {manifest.pack}",
        f"Matrix products in half precision for {manifest.arch} ({profiles}): "
        f"{len(manifest.kernels)} compiled kernels and the table of {len(manifest.table)} measured "
        "problems that says where they are faster than torch. Data only: no code of the host is "
        "in it. Everywhere else `hgemm_packs.matmul` is torch's own.",
        _use(repo, pack.manifest_sha256),
        *([f"![Speed-up over torch of each problem with a kernel]({PICTURE_NAME})"] * picture),
        *figures(manifest),
    ]
    return "\n\n".join(parts) + "\n"


def figures(manifest: Manifest) -> list[str]:
    """Sections that follow from the manifest alone, also in the REPORT.md of a data wheel: what was
    measured, with which versions, and what a cubin can do."""
    return [
        _describe_measurement(manifest),
        *([_plot(manifest)] if manifest.table else []),
        _versions(manifest),
        "## What it can do\n\nA cubin is native GPU code: it can read and write everything that "
        "the process has mapped on the GPU. Hashes and signatures say whose it is, not that it is "
        "harmless: see docs/trust.md of hgemm_packs.",
    ]


def _front(manifest: Manifest) -> str:
    known = manifest.pack.license == "Apache-2.0"
    lines = [
        "---",
        f"license: {'apache-2.0' if known else 'other'}",
        *([] if known else [f"license_name: {json.dumps(manifest.pack.license)}"]),
        f"library_name: {LIBRARY}",
        "tags:",
        f"- {TAG}",
        f"- {manifest.arch}",
        "---",
    ]
    return "\n".join(lines)


def _use(repo: str, sha256: str) -> str:
    return (
        "## Use\n\n"
        "```\n"
        "pip install 'hgemm-packs[cli,hub]'\n"
        f"hgemm-packs fetch {repo} --allow sha256:{sha256}\n"
        "```\n\n"
        "The hash is that of `manifest.json`, which holds the hashes of all the rest. Take it from "
        "the publisher, not from this page: who can change the pack can change the page."
    )


def _describe_measurement(manifest: Manifest) -> str:
    heads = ("regime", "problems", "with a kernel", "hot", "cold", "hot, best", "worst kernel")
    lines = [
        "## Measured",
        "",
        f"Speed-up of `matmul` over torch {manifest.baseline.torch}, geometric means over all "
        "measured problems; those without a kernel count as 1. `best` is against the better of "
        "torch and tuned cuBLASLt, which counts where there is no kernel too.",
    ]
    groups = sorted({(row.profile, row.dtype, row.layout) for row in manifest.table})
    for group in groups:
        rows = [row for row in manifest.table if (row.profile, row.dtype, row.layout) == group]
        lines += ["", f"### {', '.join(group)}", "", _line(heads), _line(["---"] * len(heads))]
        for name in REGIMES:
            members = [row for row in rows if regime(row.m, row.n, row.k) == name]
            if members:
                lines.append(_group(name, members, manifest.policy))
        lines.append(_group("all", rows, manifest.policy))
    return "\n".join(lines)


def _group(name: str, rows: Sequence[Row], policy: WinPolicy) -> str:
    """One line: what `matmul` is worth on these problems."""
    served = [row for row in rows if _is_served(row, policy)]
    ids = {id(row) for row in served}
    vs_best = (row.hot.vs_best if id(row) in ids else _torch_vs_best(row.hot) for row in rows)
    worst = min((min(row.hot.speedup, row.cold.speedup) for row in served), default=math.nan)
    cells = (
        name,
        str(len(rows)),
        str(len(served)),
        f"{geometric_mean(row.hot.speedup if id(row) in ids else 1.0 for row in rows):.3f}",
        f"{geometric_mean(row.cold.speedup if id(row) in ids else 1.0 for row in rows):.3f}",
        f"{geometric_mean(vs_best):.3f}",
        f"{worst:.3f}" if served else "-",
    )
    return _line(cells)


def _plot(manifest: Manifest) -> str:
    """How many problems with a kernel gain how much, as bars of text, for a wheel as well."""
    gains = [row.hot.speedup for row in manifest.table if _is_served(row, manifest.policy)]
    bins = pairwise((*EDGES, math.inf))
    counts = [sum(low <= gain < high for gain in gains) for low, high in bins]
    longest = max(counts, default=0) or 1
    bars = [
        f"{f'{low:.2f}x':>6} {'#' * math.ceil(BAR_WIDTH * count / longest):{BAR_WIDTH}} {count}"
        for low, count in zip(EDGES, counts, strict=True)
    ]
    text = "Problems with a kernel by their speed-up over torch, hot, from the left figure on:"
    return "\n".join([text, "", "```", *bars, "```"])


def _is_served(row: Row, policy: WinPolicy) -> bool:
    """Whether `matmul` launches a kernel here."""
    return row.kernel is not None and policy.clears(row)


def _torch_vs_best(timing: Timing) -> float:
    """What torch itself loses against the better of torch and cuBLASLt."""
    return min(timing.torch_us, timing.cublaslt_us) / timing.torch_us


def _versions(manifest: Manifest) -> str:
    baseline = manifest.baseline
    generator = manifest.generator
    dates = sorted({row.date for row in manifest.table})
    when = f"{dates[0]} to {dates[-1]}" if dates else "never"
    free = [each for each in manifest.kernels if "by" in each.genome]
    facts = {
        "arch": manifest.arch,
        "devices": "; ".join(f"{p.name}, {p.sm_count} SMs" for p in manifest.device_profiles),
        "driver": f"CUDA {manifest.min_driver // 1000}.{manifest.min_driver % 1000 // 10} or newer",
        "launcher ABI": str(manifest.launcher_abi),
        "measured": f"{when}, torch {baseline.torch}, cuBLAS {baseline.cublas}, "
        f"driver {baseline.driver}; {baseline.protocol}",
        "a row is used if": manifest.policy.rule,
        "built with": f"NVRTC {manifest.toolchain.nvrtc}, generator {generator.version}"
        f"{_sources(generator)}",
        "kernels": f"{len(manifest.kernels)}, {manifest.blob.bytes} bytes, sha256 "
        f"{manifest.blob.sha256}",
        **{each.name: f"of free source, by {each.genome['by']}" for each in free},
        "licence": manifest.pack.license,
    }
    lines = ["## Versions", "", _line(("what", "value")), _line(("---", "---"))]
    return "\n".join([*lines, *(_line((name, _plain(text))) for name, text in facts.items())])


def _sources(generator: GeneratorInfo) -> str:
    """The commit where the manifest names one: a pack that `build` made does not."""
    if not generator.commit.strip("0"):
        return ""
    dirty = ", with changes not committed" if generator.dirty else ""
    return f" at {generator.commit}{dirty}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """A manifest's free text without what Markdown would make of it."""
    return "".join(f"&#{ord(c)};" if c in "|<>&[]`*\\" else c for c in text)
