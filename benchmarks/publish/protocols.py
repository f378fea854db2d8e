"""chained.json, energy.json and public.json from the lines that `generate measure` wrote.

    python -m benchmarks.publish.protocols

What was not measured has no file. The same lines give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import folders
from benchmarks.publish import summary
from hgemm_packs.generator.campaigns import campaign, chained, sustained
from hgemm_packs.generator.compile.pack_writer import read_source
from hgemm_packs.generator.tables import published


def chained_text(paths: Sequence[Path]) -> str:
    return json.dumps(chained.summary(*campaign.lines(paths)), indent=1) + "\n"


def sustained_text(paths: Sequence[Path]) -> str:
    """A problem a line."""
    document = sustained.summary(*campaign.lines(paths))
    rest = {name: each for name, each in document.items() if name != "problems"}
    problems = (json.dumps(each, separators=(",", ":")) for each in document["problems"])
    listed = ",\n  ".join(problems)
    return f'{json.dumps(rest, indent=1)[:-2]},\n "problems": [\n  {listed}\n ]\n}}\n'


def public_text(paths: Sequence[Path]) -> str:
    """Of the committed table and these lines."""
    headers, _ = campaign.lines(paths)
    document = published.summary(read_source(summary.MANIFEST), campaign.answers(paths))
    document["measured_on"] = headers[-1] if headers else {}
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


#: By the names of their files.
TEXTS: dict[str, Callable[[Sequence[Path]], str]] = {
    "chained": chained_text,
    "energy": sustained_text,
    "public": public_text,
}
FOLDERS = {"chained": "chained", "energy": summary.SUSTAINED, "public": summary.CALLED}


def lines(name: str) -> list[Path]:
    """The files of lines of a protocol."""
    return folders.list_files(FOLDERS[name], results=summary.RESULTS)


def main() -> None:
    for name, text in TEXTS.items():
        if lines(name):
            out = summary.RESULTS / f"{name}.json"
            out.write_text(text(lines(name)), encoding="utf-8")
            print(f"wrote {out.name}")


if __name__ == "__main__":
    main()
