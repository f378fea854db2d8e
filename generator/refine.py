"""What a run won, launched behind one another and for long, and the pack that follows from that.

Called by the CLI when a search is over. Of all confirmed kernels it measures which one a row should
name for dependent launch (`dependent`) and which one a large problem should have (`endurance`);
what the table then names for dependent launch is measured once more, by processes that chose
nothing. All of it is lines in files of the run's folder, from which a killed run goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hgemm_packs.generator import build, campaign, dependent, endurance, findings, table
from hgemm_packs.generator.build import Built
from hgemm_packs.generator.campaign import Line, Task
from hgemm_packs.generator.findings import Findings
from hgemm_packs.generator.packer import SourceManifest, write_pack, write_source
from hgemm_packs.generator.problems import cost
from hgemm_packs.generator.spec import Kernel
from hgemm_packs.generator.store import Store
from hgemm_packs.generator.table import Usable
from hgemm_packs.pack import Pack
from hgemm_packs.problem import Problem

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
) -> tuple[SourceManifest, list[str]]:
    """The source manifest that follows from findings and the lines of benchmarks/energy.py and
    pdl.py, and the names of kernels left out because they are not `usable`. `published` lines
    choose nothing, but what they had slower than torch leaves its row like any other. Raises what
    `table.source` does."""
    names = {id_: str(fields["name"]) for id_, fields in found.kernels.items()}
    rebuilt = table.rebuilt(
        found, keep, usable, lambda listed: endurance.ranked(listed, sustained, names)
    )
    launched, more = dependent.launched(rebuilt.source, found, rebuilt.listed, choosing, usable)
    level = dependent.level(launched, [*choosing, *published])
    return level, sorted({*rebuilt.gone, *more})


class Refinement:
    """A finished run, and what was measured of it since."""

    def __init__(self, store: Store) -> None:
        self.folder = store.folder / FOLDER
        self.found = findings.read(store)
        self._store = store
        self._last = store.last_builds()
        self._named = {
            str(fields["name"]): id_
            for id_, fields in self.found.kernels.items()
            if id_ in self._last
        }

    def kernel(self, name: str) -> Kernel:
        """The kernel of that name, as it was built last."""
        return self._store.kernel(self._named[name])

    def _usable(self, kernels: Mapping[str, object]) -> set[str]:
        """Lines know kernels by name, so of several that a choice was built to only the last. Their
        cubins are in the store: no compiler is asked."""
        return kernels.keys() & self._last

    def choosing(self) -> list[Task]:
        """Dependent launches of confirmed kernels. Raises ValueError without any."""
        _, pairs = dependent.candidates(self.found, self._usable, NEAR)
        return dependent.tasks(pairs, self.kernel)

    def lasting(self) -> list[Task]:
        """Sustained runs of the confirmed kernels of large problems."""
        names = {id_: name for name, id_ in self._named.items()}
        listed = endurance.confirmed(self.found)
        named = {
            problem: [names[id_] for id_ in listed[problem] if id_ in names]
            for problem in sorted(listed, key=cost)
        }
        return endurance.tasks(named, self.kernel)

    def publishing(self, keep: float) -> list[Task]:
        """Dependent launches as the table has them by now."""
        return dependent.tasks(_behind(self.source(keep)), self.kernel)

    def gains(self, source: SourceManifest) -> list[tuple[float, float]]:
        """torch over the kernel that a row of `source` has for dependent launch, launched plainly
        and so, hot, of each row that was measured again."""
        lines = {dependent.pair(line): line for line in campaign.lines(self._there(PUBLISHED))[1]}
        asked = [lines.get((problem.key[:5], name)) for problem, name in _behind(source)]
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
            self._usable,
            sustained=campaign.lines(self._there(SUSTAINED))[1],
            choosing=campaign.answers(self._there(DEPENDENT)),
            published=campaign.answers(self._there(PUBLISHED)),
        )
        return made

    def _there(self, name: str) -> list[Path]:
        path = self.folder / name
        return [path] if path.is_file() else []

    def write(self, out: Path, keep: float) -> Pack:
        """Write `out`/source.json, the document that may be committed, and `out`/pack, from the
        cubins in the store; `keep` is the share of the log gain that pruning must leave. Raises
        ValueError without finals or noise, StoreError when a cubin is missing, PackError when the
        result is no valid pack."""
        source = self.source(keep)
        out.mkdir(parents=True, exist_ok=True)
        write_source(out / "source.json", source)
        kernels = [self._store.kernel(each.id) for each in source.kernels]
        built = [Built(dict(kernel.fields), kernel.cubin) for kernel in kernels]
        return write_pack(out / "pack", source, built, generator_info=build.generator_info())


def _behind(source: SourceManifest) -> list[tuple[Problem, str]]:
    """Problems with a kernel for dependent launch, and its name."""
    names = {kernel.id: kernel.name for kernel in source.kernels}
    return [
        (Problem(*row.key), names[row.dependent])
        for row in source.table
        if row.dependent is not None
    ]
