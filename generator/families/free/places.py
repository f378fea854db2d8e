"""Where the kernels' sources are."""

from __future__ import annotations

from pathlib import Path

#: Below `sources_dir`: kernels of free source.
FREE = "free"


def sources_dir() -> Path:
    """Folder of the kernel sources: beside the generator in a checkout, inside the package when
    installed."""
    here = Path(__file__).resolve().parents[2]
    for folder in (here.parent / "csrc" / "kernels", here / "kernels"):
        if (folder / "common").is_dir():
            return folder
    raise FileNotFoundError("kernel sources not found beside the generator")
