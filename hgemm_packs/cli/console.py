"""What every verb shares: the console, progress bars, errors that are the user's to mend."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..errors import PackError
from ..pack.folder import Pack

#: Tables of this project are laid out for this many columns; a pipe or a log gets them whole.
LOG_COLUMNS = 120

#: Verbs of `hgemm-packs --help`, by who needs them.
USERS, MAKERS, TRAVELLERS = "Use packs", "Make packs", "Fetch and publish packs"

NO_TORCH = "torch 2.10 or newer is needed: see pytorch.org"

Tick = Callable[[int, int], None]


class UserError(Exception):
    """Something asked for cannot be done here; the text says what and how to mend it."""


def console() -> Console:
    """A console on standard output. It prints words as they are: names come from packs, paths from
    users, and neither is markup."""
    out = Console(highlight=False, markup=False, emoji=False)
    if not out.is_terminal:
        out.width = LOG_COLUMNS
    return out


@contextlib.contextmanager
def progress(out: Console, text: str) -> Iterator[Tick]:
    """A bar that a callback `tick(done, total)` moves, and shows at its first call: what fails
    before shows none. In a log it prints one line at the end."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=out)
    task = bar.add_task(text, total=None)
    shown = False

    def tick(done: int, total: int) -> None:
        nonlocal shown
        if not shown:
            shown = True
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield tick
    finally:
        if shown:
            bar.stop()


def generator(module: str) -> ModuleType:
    """A module of the generator, which only the verbs that compile or prove kernels need."""
    try:
        return importlib.import_module(f"hgemm_packs.generator.{module}")
    except ModuleNotFoundError as error:
        if error.name == "torch":  # no extra brings it
            raise UserError(NO_TORCH) from error
        raise UserError(
            f"{error.name} is missing: pip install 'hgemm-packs[cli,generator]'"
        ) from error


def open_pack(folder: Path) -> Pack:
    """A pack directory that the user named, all of it checked. Raises UserError, which names it
    too."""
    try:
        return Pack.open_verified(folder)
    except PackError as error:
        words = str(error) if error.where else f"{error.code}: {_drop_path(folder, error.detail)}"
        raise UserError(f"{folder}: {words}") from error


def _drop_path(folder: Path, detail: str) -> str:
    """The detail of an error, which may name the folder itself."""
    return detail.removeprefix(f"{folder}: ")


def cuda_device() -> int | None:
    """Index of the CUDA device that torch would use, or None on a machine without one."""
    try:
        import torch
    except ModuleNotFoundError as error:
        raise UserError(NO_TORCH) from error
    return torch.cuda.current_device() if torch.cuda.is_available() else None


def manifests_dir() -> Path:
    """The committed manifests: beside the package in a checkout, below it when installed."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package.parent / "manifests", package / "generator" / "manifests"):
        if (folder / "shapes").is_dir():
            return folder
    raise UserError(f"this installation has no manifests below {package}")
