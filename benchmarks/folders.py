"""What is where in benchmarks/results/: the one place that says which folder is which protocol.

    python -m benchmarks.folders table [OPTION...]    # all that `generate table` is told but these
    python -m benchmarks.folders add FOLDER LINES.jsonl...
    python -m benchmarks.folders take RUN...          # what `make table RUNS=...` does first
    python -m benchmarks.folders cards                # other cards that have results

With `--card NAME` behind the verb the results are those of another card, in a folder of its name
with the same folders in it. What is said of kernels and not of times stands for all cards: SHARED.

A folder of lines has 01.jsonl.zip, 02.jsonl.zip ... in the order of measurement: of a task that was
measured twice the later line counts. Nothing in it is ever changed. `add` packs what a script wrote
as the next number. `take` puts all that runs have to say beside what is there: an export, what the
sanitizer said of their kernels, and the lines of `generate refine`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hgemm_packs.generator.store import export, lines, shards
from hgemm_packs.generator.store.run_folder import Store

RESULTS = Path(__file__).resolve().parent / "results"


class ResultsFolder(NamedTuple):
    """What a folder's lines were measured by, what they decide, and the option of `generate table`
    that takes them."""

    by: str
    decides: str
    option: str | None = None


#: A folder of exports; `generate table` takes it first.
CONFIRMATIONS = "confirmations"
#: Folders of lines, by path below `results/`.
FOLDERS = {
    "dependent/choice": ResultsFolder(
        "measure dependent", "the kernel of a row for dependent launch", "--dependent"
    ),
    "dependent/contenders": ResultsFolder(
        "measure dependent", "the same, of what `generate contenders --near` lists", "--dependent"
    ),
    "dependent/published": ResultsFolder(
        "measure dependent", "apart from the choice: what was slow leaves its row", "--published"
    ),
    "dependent/mixed": ResultsFolder(
        "measure mixed",
        "the kernel of a row for dependent launch, between other products",
        "--mixed",
    ),
    "dependent/public": ResultsFolder(
        "measure public", "figures; what is below 0.99 of torch leaves its row", "--public"
    ),
    "sustained": ResultsFolder(
        "measure sustained", "kernels from 1e11 operations on, by sustained time", "--sustained"
    ),
    "sanitizer/tables": ResultsFolder(
        "sanitize", "kernels without a clean record leave the table", "--sanitized"
    ),
    "sanitizer/spaces": ResultsFolder("sanitize", "nothing: evidence over whole spaces"),
    "spaces": ResultsFolder("space_gates", "nothing: evidence over whole spaces"),
    "bits": ResultsFolder(
        "bits", "kernels that add up in order and have none leave the table", "--bits"
    ),
    "models": ResultsFolder("models", "nothing: figures"),
    "serving": ResultsFolder("serving", "nothing: figures"),
    "epilogues": ResultsFolder("epilogues", "nothing: figures"),
    "prediction/training": ResultsFolder(
        "measure unseen", "the predictor of the table, which `generate fit` makes"
    ),
    "prediction/heuristics": ResultsFolder(
        "heuristics",
        "labels for the predictor: what cuBLASLt would run of timed and drawn problems",
    ),
    "agents/scripted": ResultsFolder("agents.scripted", "nothing: figures"),
    "agents/model": ResultsFolder("agents.small_model", "nothing: figures"),
    "agents/byhand": ResultsFolder(
        "agents.byhand", "which sources `agents.byhand admit` takes; figures"
    ),
    "agents/conversations": ResultsFolder(
        "agents.small_model", "nothing: what the model was asked and said, for replays"
    ),
    "gates/mutants": ResultsFolder("redteam --mutate", "nothing: figures"),
    "gates/table": ResultsFolder("table_gates", "nothing: figures"),
    "prediction/unseen": ResultsFolder(
        "unseen",
        "figures, of the last run; those before teach the predictor, but for weights that judge",
    ),
    "prediction/hosts": ResultsFolder(
        "unseen", "figures: what a decision costs hosts on which nothing was judged"
    ),
    "grouped": ResultsFolder("grouped", "the rows of grouped products"),
    "batched": ResultsFolder("batched", "the rows of batches"),
    "random_problems": ResultsFolder("random_problems", "nothing: evidence of kernels"),
    "chained": ResultsFolder("measure chained", "nothing: figures"),
    "screens": ResultsFolder("generate", "the constants of the prior"),
    "like": ResultsFolder("like", "nothing: what both ways were worth, measured again"),
}


#: Folders whose lines are about a kernel, whichever card ran it.
SHARED = ("sanitizer/tables", "bits")

#: Lines of `generate refine`, in the folder `refined` of a run -> where they belong.
REFINED = {
    "dependent.jsonl": "dependent/choice",
    "published.jsonl": "dependent/published",
    "sustained.jsonl": "sustained",
}


def list_files(*names: str, results: Path = RESULTS) -> list[Path]:
    """The files of these folders in the order of measurement; none where a folder is not there."""
    for name in names:
        if name not in FOLDERS:
            raise KeyError(name)
    return lines.files(results / name for name in names if (results / name).is_dir())


def find_folders(option: str) -> list[str]:
    """The folders that an option of `generate table` takes."""
    return [name for name, folder in FOLDERS.items() if folder.option == option]


def table_options(
    results: Path = RESULTS, left_out: Iterable[str] = (), card: str = ""
) -> list[str]:
    """What `generate table` is told: the exports, then each folder that decides; of another card
    its own, and of SHARED folders those of all cards too."""
    words = [str(results / card / CONFIRMATIONS)]
    for name, folder in FOLDERS.items():
        mine = [results / card / name, *([results / name] if card and name in SHARED else [])]
        if folder.option and folder.option not in left_out:
            for place in filter(Path.is_dir, mine):
                words += [folder.option, str(place)]
    return words


def cards(results: Path = RESULTS) -> list[str]:
    """Other cards that have results: folders with exports of their own."""
    return sorted(each.parent.name for each in results.glob(f"*/{CONFIRMATIONS}"))


def next_shard(folder: Path) -> Path:
    """The path of the next packed file of a folder."""
    known = [int(each.name.split(".")[0]) for each in lines.files([folder])]
    return folder / f"{max(known, default=0) + 1:02d}.jsonl{shards.SUFFIX}"


def next_export(results: Path = RESULTS) -> Path:
    """The folder of the next export."""
    place = results / CONFIRMATIONS
    known = [int(each.name) for each in place.iterdir()] if place.is_dir() else []
    return place / f"{max(known, default=0) + 1:02d}"


def add(name: str, paths: Sequence[Path], results: Path = RESULTS) -> list[Path]:
    """Pack files of lines as the next ones of a folder, each by itself, and never over another."""
    if name not in FOLDERS:
        raise KeyError(f"{name} is none of {', '.join(FOLDERS)}")
    folder, made = results / name, []
    folder.mkdir(parents=True, exist_ok=True)
    for path in paths:
        made.append(next_shard(folder))
        with made[-1].open("xb") as file:
            file.write(shards.pack(lines.read_records([path])))
    return made


def sanitizer_lines(run: Path) -> Iterator[dict[str, Any]]:
    """Lines as `generate sanitize` writes them of what a run's own gate found."""
    with Store(run, readonly=True) as store:
        verdicts = store.verdicts("sanitizer")
    yield {"header": {"benchmark": "generate", "kernels": len(verdicts)}}
    for id_, verdict in sorted(verdicts.items()):
        for tool, found in verdict.evidence.items():
            yield {"id": id_, "tool": tool, "findings": found, "detail": verdict.detail}


def take(runs: Sequence[Path], results: Path = RESULTS) -> list[Path]:
    """Put beside what is there all that a table needs of finished runs, or of their exports."""
    made = [next_export(results)]
    export.write(export.union([export.load(run) for run in runs]), made[0])
    for run in runs:
        if (run / "store.sqlite").is_file():
            said = list(sanitizer_lines(run))
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "sanitizer.jsonl"
                path.write_text("".join(json.dumps(line) + "\n" for line in said), "utf-8")
                # A run of a pack's kernels asks the sanitizer of none.
                made += add("sanitizer/tables", [path], results) if len(said) > 1 else []
        for name, place in REFINED.items():
            if (run / "refined" / name).is_file():
                made += add(place, [run / "refined" / name], results)
    return made


def main(arguments: Sequence[str]) -> int:
    words, card = list(arguments), ""
    if "--card" in words[:-1]:
        place = words.index("--card")
        card = words[place + 1]
        del words[place : place + 2]
    match words:
        case ["table", *left_out]:
            results = RESULTS.relative_to(Path.cwd())
            print(" ".join(table_options(results, left_out, card)))
        case ["take", *runs] if runs:
            for path in take([Path(each) for each in runs], RESULTS / card):
                print(f"wrote {path}")
        case ["add", name, *paths] if paths:
            for path in add(name, [Path(each) for each in paths], RESULTS / card):
                print(f"wrote {path}")
        case ["cards"]:
            print(" ".join(cards()))
        case _:
            sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
