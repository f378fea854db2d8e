"""Pages of the public names, from their docstrings: `python packaging/api_pages.py FOLDER`.

Run by `make api`. pdoc writes a page a module; it needs the extra `docs`, and torch, which
`hgemm_packs.nn` imports.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pdoc

import hgemm_packs

MODULES = ("hgemm_packs", "hgemm_packs.nn", "hgemm_packs.distribution.packs")


def write(folder: Path) -> list[Path]:
    """Write the pages and return them."""
    for name in hgemm_packs.__all__:  # pdoc looks for no name that is made when it is asked for
        setattr(hgemm_packs, name, getattr(hgemm_packs, name))
    pdoc.render.configure(show_source=False, search=False)
    pdoc.pdoc(*MODULES, output_directory=folder)
    return sorted(folder.rglob("*.html"))


if __name__ == "__main__":
    for page in write(Path(sys.argv[1])):
        print(page)
