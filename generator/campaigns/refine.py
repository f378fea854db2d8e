"""What a run won, launched behind one another and for long, and the pack that follows from that.

Called by the CLI when a search is over. Of all confirmed kernels it measures which one a row should
name for dependent launch (`dependent`) and which one a large problem should have (`sustained`);
what the table then names for dependent launch is measured once more, by processes that chose
nothing. All of it is lines in files of the run's folder, from which a killed run goes on; what they
say of other cubins, or of other conditions than the findings', counts no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hgemm_packs.errors import PackError
from hgemm_packs.generator.campaigns import campaign, tasks
from hgemm_packs.generator.campaigns.campaign import Line, LinesFile, Task
from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.compiler import Built
from hgemm_packs.generator.compile.pack_writer import (
    SourceManifest,
    read_source,
    write_pack,
    write_source,
)
from hgemm_packs.generator.core.problems import cost
from hgemm_packs.generator.core.spec import CompiledKernel, conditions, known_facts
from hgemm_packs.generator.store import findings
from hgemm_packs.generator.store.findings import Findings
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.generator.store.schema import canonical, digest
from hgemm_packs.generator.tables import dependent, mixed_chains, table
from hgemm_packs.generator.tables import published as veto
from hgemm_packs.generator.tables import sustained as endurance
from hgemm_packs.generator.tables.table import Usable
from hgemm_packs.pack.folder import Pack
from hgemm_packs.problem import Problem
from hgemm_packs.profiles import names

#: In the run's folder, and the files of lines there.
FOLDER = "refined"
DEPENDENT, SUSTAINED, PUBLISHED = "dependent.jsonl", "sustained.jsonl", "published.jsonl"
#: How far below the best of its problem a kernel may be, launched plainly, and still be tried: the
#: fastest launched dependent leave room for the next grid, and are up to a third slower alone.
NEAR = 0.5


def document(
    found: Findings,
    keep: float,
    usable: Usable,
    *,
    sustained: Sequence[Line] = (),
    choosing: Sequence[Line] = (),
    published: Sequence[Line] = (),
    mixed: Sequence[Line] = (),
    public: Sequence[Line] = (),
    unseen: bool = False,
) -> tuple[SourceManifest, list[str]]:
    """The source manifest that follows from findings and the lines of `generate measure sustained`
    and `dependent`, and the names of kernels left out because they are not `usable`. `published`
    lines choose nothing, but what they had slower than torch leaves its row like any other. `mixed`
    lines choose again, between other problems; `public` ones veto, and what they have not seen
    stays out unless `unseen`. Raises what `table.source` does."""
    names = {id_: str(fields["name"]) for id_, fields in found.kernels.items()}
    rebuilt = table.rebuild(
        found, keep, usable, lambda listed: endurance.rank_sustained(listed, sustained, names)
    )
    launched, more = dependent.choose_dependent_kernels(
        rebuilt.source, found, rebuilt.listed, choosing, usable, published
    )
    level = dependent.drop_slow_rows(launched, [*choosing, *published])
    if mixed:
        level = mixed_chains.choose_mixed_kernels(level, mixed, public)
    return veto.drop_slow_rows(level, public, unseen), sorted({*rebuilt.gone, *more})


class Refinement:
    """A finished run, and what was measured of it since."""

    def __init__(self, store: Store) -> None:
        self.folder = store.folder / FOLDER
        self.found = findings.read(store)
        self._store = store
        self._under = digest(known_facts(conditions(self.found.device)))[:16]
        self._last = store.last_builds()
        self._named = {
            str(fields["name"]): id_
            for id_, fields in self.found.kernels.items()
            if id_ in self._last
        }

    def kernel(self, name: str) -> CompiledKernel:
        """The kernel of that name, as it was built last."""
        return self._store.kernel(self._named[name])

    def _select_usable(self, kernels: Mapping[str, object]) -> set[str]:
        """Lines know kernels by name, so of several that a choice was built to only the last. Their
        cubins are in the store: no compiler is asked."""
        return kernels.keys() & self._last

    def dependent_tasks(self) -> list[Task]:
        """Dependent launches of confirmed kernels. Raises ValueError without any."""
        _, pairs = dependent.candidates(self.found, self._select_usable, NEAR)
        return self._pairs(pairs)

    def sustained_tasks(self) -> list[Task]:
        """Sustained runs of the confirmed kernels of large problems."""
        names = {id_: name for name, id_ in self._named.items()}
        listed = endurance.find_confirmed(self.found)
        named = {
            problem: [names[id_] for id_ in listed[problem] if id_ in names]
            for problem in sorted(listed, key=cost)
        }
        return [
            self._extend_line(task, named[Problem(*task.fields["problem"])])
            for task in tasks.sustained_tasks(named, self.kernel)
        ]

    def published_tasks(self, keep: float) -> list[Task]:
        """Dependent launches as the table has them by now."""
        return self._pairs(_list_dependent(self.source(keep)))

    def _pairs(self, pairs: Iterable[tuple[Problem, str]]) -> list[Task]:
        return [
            self._extend_line(task, [task.fields["kernel"]])
            for task in tasks.dependent_tasks(pairs, self.kernel)
        ]

    def _extend_line(self, task: Task, names: Iterable[str]) -> Task:
        """The task, its line known by cubins and conditions as well: another compiler makes other
        code of the same name, and a run that goes on confirms more of a problem."""
        cubins = sorted(self._named[name] for name in names)
        return replace(task, fields={**task.fields, "cubins": cubins, "under": self._under})

    def gains(self, source: SourceManifest) -> list[tuple[float, float]]:
        """torch over the kernel that a row of `source` has for dependent launch, launched plainly
        and so, hot, of each row that was measured again."""
        lines = {dependent.pair(line): line for line in self._figures(PUBLISHED)}
        asked = [lines.get((problem.key[:5], name)) for problem, name in _list_dependent(source)]
        return [
            (dependent.over_torch(line, "plain")[0], dependent.over_torch(line, "pdl")[0])
            for line in asked
            if line is not None
        ]

    def source(self, keep: float) -> SourceManifest:
        """The table by all that is on file. Raises ValueError without finals or noise."""
        made, _ = document(
            self.found,
            keep,
            self._select_usable,
            sustained=self._figures(SUSTAINED),
            choosing=self._select_counting(campaign.answers(self._there(DEPENDENT))),
            published=self._select_counting(campaign.answers(self._there(PUBLISHED))),
        )
        return made

    def _figures(self, name: str) -> list[Line]:
        return self._select_counting(campaign.lines(self._there(name))[1])

    def _select_counting(self, lines: Iterable[Line]) -> list[Line]:
        """Those of cubins that are the last of their choice, under the findings' conditions."""
        return [
            line
            for line in lines
            if line["under"] == self._under and self._last.issuperset(line["cubins"])
        ]

    def _there(self, name: str) -> list[Path]:
        path = self.folder / name
        return [path] if path.is_file() else []

    def write(self, out: Path, keep: float, name: str | None = None) -> Pack:
        """Write `out`/source.json, the document that may be committed, and `out`/pack, from the
        cubins in the store; `keep` is the share of the log gain that pruning must leave. The pack
        is called `name`, or else as the one that it replaces, or after this machine. Raises
        ValueError without finals or noise, StoreError when a cubin is missing, PackError when the
        result is no valid pack."""
        source = self.source(keep)
        called = name or _read_name(out / "source.json") or source.pack.name
        source = replace(source, pack=source.pack._replace(name=called))
        out.mkdir(parents=True, exist_ok=True)
        write_source(out / "source.json", source)
        kernels = [self._store.kernel(each.id) for each in source.kernels]
        built = [Built(dict(kernel.fields), kernel.cubin) for kernel in kernels]
        return write_pack(out / "pack", source, built, generator_info=compiler.generator_info())


def _read_name(path: Path) -> str | None:
    """The name in an earlier document, where there is one; not one that is like the project's."""
    try:
        return names.check(read_source(path).pack.name)
    except (OSError, PackError, ValueError):
        return None


def unite(into: Path, other: Path) -> None:
    """Add to a run folder the lines that another has and it has not; twice is the same as once. For
    the writer of `into`. Raises OSError."""
    for name in (DEPENDENT, SUSTAINED, PUBLISHED):
        path, there = other / FOLDER / name, into / FOLDER / name
        if not path.is_file():
            continue
        known = {canonical(line) for line in read_records([there] if there.is_file() else [])}
        lines = LinesFile(there)
        for line in read_records([path]):
            if canonical(line) not in known:
                lines.write(line)
        lines.close()


def _list_dependent(source: SourceManifest) -> list[tuple[Problem, str]]:
    """Problems with a kernel for dependent launch, and its name."""
    names = {kernel.id: kernel.name for kernel in source.kernels}
    return [
        (Problem(*row.key), names[row.dependent])
        for row in source.table
        if row.dependent is not None
    ]
