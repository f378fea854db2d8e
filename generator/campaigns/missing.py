"""What the evidence behind a table lacks, as far as files say it.

Called by `benchmarks/publish/missing.py`, which reads the files and knows what fills each item.
Nothing is compiled: whether a kernel still builds as it did is not known here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hgemm_packs.generator.campaigns import remeasure
from hgemm_packs.generator.compile import pack_kernels
from hgemm_packs.generator.compile.pack_writer import SourceManifest
from hgemm_packs.generator.core import problems
from hgemm_packs.generator.redteam.corpus import PASS
from hgemm_packs.generator.store.findings import Findings
from hgemm_packs.generator.store.lines import Record
from hgemm_packs.generator.tables import dependent, mixed_chains, published, speedups, sustained
from hgemm_packs.pack.manifest import Row
from hgemm_packs.problem import Problem

#: Types are within so much of each other, or one has not seen the other's kernels.
LAG = 0.98


@dataclass(frozen=True, slots=True)
class Gap:
    """`missing` of `of` things lack what `item` is about. `lines` are these things as --shapes of
    the benchmarks takes them, for items that a command wants them of."""

    item: str
    missing: int
    of: int
    detail: str = ""
    lines: tuple[Record, ...] = ()


def find_unled(source: SourceManifest, found: Findings) -> list[Gap]:
    """Problems without a confirmation in led blocks: "rows" with a kernel; "near", those left to
    torch of which a confirmed kernel is ahead on file; "finals", those where one is ahead that was
    never confirmed. And the led "trials" of torch against itself that remeasure.TRIALS wants."""
    led = remeasure.find_led(found)
    confirmed = {each.problem for each in found.fields if each.stage == "confirm"}
    won = remeasure.table_wins(source)
    ahead = remeasure.rank(found, 1.0).keys() & (_problems(source) - won)
    near = ahead & confirmed
    return [
        Gap("rows", len(won - led), len(won)),
        Gap("near", len(near - led), len(near)),
        Gap("finals", len(ahead - confirmed), len(ahead)),
        Gap("trials", remeasure.count_missing_trials(found), remeasure.TRIALS),
    ]


def find_undependent(source: SourceManifest, lines: Iterable[Mapping[str, Any]]) -> Gap:
    """Rows whose own kernel has none of the `lines` of `generate measure dependent`, right or not:
    proven, and of a pack that builds, it may be chosen for dependent launch."""
    seen = {dependent.pair(each) for each in lines}
    won = _read_named(source)
    missing = [
        pair
        for pair in won.items()
        if (tuple(pack_kernels.problem_values(pair[0])), pair[1]) not in seen
    ]
    return Gap("dependent", len(missing), len(won), lines=_lines(missing))


def find_unpublished(source: SourceManifest, calls: Iterable[Mapping[str, Any]]) -> Gap:
    """Rows whose kernels have no line of `generate measure public`."""
    missing = speedups.find_unmeasured(source, calls)
    return Gap("published", len(missing), len(_read_named(source)), lines=_lines(missing))


def find_unsustained(found: Findings, lines: Iterable[Mapping[str, Any]]) -> Gap:
    """Problems from sustained.LEAST_FLOP on with confirmed wins, none of which has one of the
    `lines` of `generate measure sustained`: a table leaves them to torch. Each with the best of its
    wins."""
    seen = {(Problem(*each["problem"]), arm) for each in lines for arm in each["sustained"]}
    missing, large = [], 0
    for problem, ids in sustained.find_confirmed(found).items():
        names = [str(found.kernels[id_]["name"]) for id_ in ids]
        large += bool(names)
        if names and not any((problem, name) in seen for name in names):
            missing.append((problem, names[0]))
    kinds = _kinds(problem for problem, _ in missing)
    return Gap("sustained", len(missing), large, kinds, _lines(missing))


def choose_dependent(
    source: SourceManifest,
    found: Findings,
    lines: Sequence[Mapping[str, Any]],
    second: Sequence[Mapping[str, Any]],
    mixed: Sequence[Mapping[str, Any]],
    calls: Sequence[Mapping[str, Any]],
) -> SourceManifest:
    """`source` with the kernels for dependent launch that `lines` choose and the `second`
    measurement has seen, that `mixed` ones then choose of these, and that `calls` in public have
    not vetoed, a clean record or not. By these lines alone: confirmations, and what builds as it
    did, are for `refine.document` to look at."""
    seen = dependent.keep_remeasured(lines, second)
    document, _ = dependent.choose_dependent_kernels(source, found, {}, seen, set, second)
    document = dependent.drop_slow_rows(document, [*lines, *second])
    if mixed:
        document = mixed_chains.choose_mixed_kernels(document, mixed, calls)
    return published.drop_slow_rows(document, calls, unseen=True)


def find_unsanitized(
    source: SourceManifest, tools: Sequence[str], done: Collection[tuple[str, str]]
) -> Gap:
    """Runs of a kernel under a tool; `done` are ids of kernels and tools on file."""
    wanted = {(kernel.id, tool) for kernel in source.kernels for tool in tools}
    return Gap("sanitized", len(wanted.difference(done)), len(wanted))


def find_ungated(document: Mapping[str, Any]) -> Gap:
    """Of space_gates.json: kernels that have not passed the numeric gate and are not too large."""
    ends = Counter[str]()
    for family in document["families"].values():
        ends.update(family["genomes"])
    built = ends["tried"] - ends["refused"]
    detail = f"{ends['failed']} failed" if ends["failed"] else ""
    return Gap("gated", ends["left"] + ends["failed"], built, detail)


def find_unclean(document: Mapping[str, Any], tools: Sequence[str]) -> Gap:
    """Of space_gates.json: kernels and tools of the sanitizer without a clean record."""
    said = document.get("sanitized", {})
    clean = sum(said[tool]["clean"] for tool in tools if tool in said)
    runs = document["kernels"]["kernels"] * len(tools)
    return Gap("clean", runs - clean, runs)


def find_undecided(document: Mapping[str, Any]) -> list[Gap]:
    """Of the red team's verdicts, "honest" kernels that were refused, and "cheats" that were not,
    or not by the gate that must."""
    cases = [case for case in document["cases"] if not case["undecided"]]
    found = []
    for item, honest in (("honest", True), ("cheats", False)):
        each = [case for case in cases if (case["expect"] == [PASS]) is honest]
        wrong = [case for case in each if case["got_gate"] not in case["expect"]]
        words = ", ".join(f"{case['name']}: {case['got_gate']}" for case in wrong)
        found.append(Gap(item, len(wrong), len(each), words))
    return found


def find_lagging(source: SourceManifest, calls: Iterable[Mapping[str, Any]]) -> Gap:
    """Rows that gain less than LAG of what the same sizes and layout gain in the other type, hot,
    confirmed or in `calls` behind one another, by another genome: one that nobody tried here,
    perhaps."""
    rows = {row[:5]: row for row in published.select_products(source.table)}
    behind = speedups.chains(source, calls)
    genomes = {
        kernel.id: (kernel.family, {**kernel.genome, "dtype": ""}) for kernel in source.kernels
    }

    def ways(row: Row) -> list[tuple[float, Any]]:
        """What the row gains plainly and at best, and by which genome."""
        plain = speedups.plain(row).hot, genomes.get(row.kernel or "")
        chained = behind.get(row[:5])
        if chained is None or chained.hot < plain[0]:
            return [plain, plain]
        return [plain, (chained.hot, genomes[row.dependent or ""])]

    late = []
    for key, row in rows.items():
        other = rows.get((*key[:4], "bf16" if row.dtype == "f16" else "f16"))
        pairs = zip(ways(row), ways(other), strict=True) if other else ()
        if any(mine[0] < LAG * theirs[0] and mine[1] != theirs[1] for mine, theirs in pairs):
            late.append(row)
    kinds = Counter(f"{r.dtype} {r.layout} {problems.regime(r.m, r.n, r.k)}" for r in late)
    words = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common(3))
    return Gap("lagging", len(late), len(rows), f"most: {words}" if late else "")


def find_unlisted(source: SourceManifest, name: str, wanted: Collection[Problem]) -> Gap:
    """Problems of the list `name` that no row is about."""
    missing = set(wanted) - _problems(source)
    return Gap(name, len(missing), len(set(wanted)), _kinds(missing))


def find_outdated(item: str, measured: str, changed: Sequence[str] | None) -> Gap:
    """A result that holds for the sources of one commit: `measured` says which, `changed` what it
    depends on and is another now, None where nobody knows."""
    if changed is None:
        return Gap(item, 1, 1, f"{measured}, which git does not know")
    words = ", ".join(changed[:3]) + f" and {len(changed) - 3} more" * (len(changed) > 3)
    return Gap(item, int(bool(changed)), 1, f"{measured}; since then {words}" if changed else "")


def _read_named(source: SourceManifest) -> dict[Problem, str]:
    """The problems whose row has a kernel, and its name."""
    names = {kernel.id: kernel.name for kernel in source.kernels}
    return {Problem(*row.key): names[row.kernel] for row in source.table if row.kernel is not None}


def _problems(source: SourceManifest) -> set[Problem]:
    return {Problem(*row.key) for row in source.table}


def _lines(pairs: Iterable[tuple[Problem, str]]) -> tuple[Record, ...]:
    return tuple(
        {"problem": pack_kernels.problem_values(problem), "kernel": name} for problem, name in pairs
    )


def _kinds(each: Iterable[Problem]) -> str:
    """How many problems there are of each type and layout, in words."""
    counts = Counter(f"{problem.dtype} {problem.layout}" for problem in each)
    return ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
