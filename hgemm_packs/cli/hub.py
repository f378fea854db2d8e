"""`hgemm-packs fetch`, `push`, `list`, `export`, `gc`, `lock`, `sync`: packs that travel.

Words and output only; `packs`, `cache` and `lockfile` do the work. The network is touched by fetch,
push, list --remote and sync alone. The Hub and the account are those of HF_ENDPOINT and HF_TOKEN
(or `hf auth login`): a token on a command line can be read by everybody on the machine.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ..distribution import cache, kernels_layout, lockfile, packs, trust
from ..distribution.card import TAG
from ..errors import of_path
from ..pack.folder import FILES, Pack
from . import inspect, plots
from .console import TRAVELLERS, USERS, UserError, console, open_pack, progress

commands = typer.Typer()

MB = 1_000_000
DAY_S = 86_400
LOCK_FILE = Path(lockfile.FILE_NAME)

LockFile = Annotated[Path, typer.Option("--file", help="The lock file.")]


@contextlib.contextmanager
def _users() -> Iterator[None]:
    """A spec, name or address that is none is the user's to mend."""
    try:
        yield
    except ValueError as error:
        raise UserError(str(error)) from None


@commands.command(rich_help_panel=TRAVELLERS)
def fetch(
    spec: Annotated[str, typer.Argument(help="NAME or OWNER/REPO, with @COMMIT or @BRANCH.")],
    allow: Annotated[
        list[str] | None,
        typer.Option(
            help="Who may vouch for it: sha256:HEX of its manifest, key:FILE.pem, "
            "sigstore:'ISSUER IDENTITY' or sigstore:WORKFLOW@REF. Repeatable."
        ),
    ] = None,
) -> None:
    """Fetch a pack into the cache and verify it.

    An official pack, named by its NAME, needs no --allow. Any other pack needs a voucher.

    Example: hgemm-packs fetch OWNER/REPO@COMMIT --allow sha256:HEX
    """
    out = console()
    with _users(), progress(out, spec) as tick:
        path = packs.fetch(spec, allow=allow or (), tick=tick)
    receipt = trust.read_receipt(path.parents[2], path.name)
    vouched = receipt.vouched if receipt else "nobody"
    out.print(f"{_title(path)} at {path}, vouched for by {vouched}", soft_wrap=True)


def _title(path: Path) -> str:
    pack = Pack.open(path)
    pack.close()
    info = pack.manifest.pack
    return f"{info.name} {info.version} for {pack.manifest.arch}"


@commands.command(rich_help_panel=TRAVELLERS)
def push(
    folder: Annotated[Path, typer.Argument(help="A signed pack directory.")],
    repo: Annotated[
        str, typer.Option(help="Repository on the Hub. It is made if it does not exist.")
    ],
    private: Annotated[
        bool, typer.Option("--private", help="Make the repository private if it does not exist.")
    ] = (False),
    message: Annotated[str | None, typer.Option(help="Message of the commit.")] = None,
) -> None:
    """Put a signed pack on the Hub, with a card and plots.

    The push is one commit. The printed command fetches the pack on another machine.

    Example: hgemm-packs push packs/sm_90a --repo OWNER/NAME
    """
    pack = open_pack(folder)
    sha = pack.manifest_sha256
    with tempfile.TemporaryDirectory() as scratch:
        plot = Path(scratch) / "plot.png"
        picture = plot.read_bytes() if plots.plot_speedups(pack.manifest, plot) else None
    with _users():
        commit = packs.push(folder, repo, private=private, message=message, picture=picture)
    out = console()
    out.print(f"pushed {repo}@{commit}", soft_wrap=True)
    out.print(f"hgemm-packs fetch {repo}@{commit} --allow sha256:{sha}", soft_wrap=True)


@commands.command("list", rich_help_panel=USERS)
def list_packs(
    remote: Annotated[
        bool, typer.Option("--remote", help="List the packs on the Hub instead.")
    ] = False,
    author: Annotated[
        str | None, typer.Option(help="With --remote: only packs of this account.")
    ] = None,
) -> None:
    """List the packs that calls use, with --remote those of the Hub.

    The list is in search order, with the rows and wins of each profile and the origin of each pack.
    It says which packs were refused or are not for this GPU and why, who vouches for each pack of
    the cache, and which official packs were not fetched. --remote lists unchecked packs.

    Example: hgemm-packs list
    """
    out = console()
    if author is not None and not remote:
        raise UserError("--author needs --remote")
    if remote:
        with _users():
            found = packs.list_published(author)
        for each in found:
            out.print(f"{each.repo}@{each.commit}", soft_wrap=True)
        if not found:
            whose = "" if author is None else f" of {author}"
            out.print(f"the Hub has no pack{whose} that says so by the tag {TAG}")
        return
    inspect.list_found(out)
    here = packs.list_installed()
    _print_installed(out, here)
    fetched = {each.pack.manifest_sha256 for each in here}
    for name, pin in sorted(trust.registry().items()):
        if pin.manifest_sha256 not in fetched:
            out.print(f"official, not fetched: {name} ({pin.repo})", soft_wrap=True)


def _print_installed(out: Console, here: list[packs.Installed]) -> None:
    if not here:
        return
    table = Table(title="packs in the cache")
    for name in ("pack", "arch", "from", "vouched for by", "manifest"):
        table.add_column(name, overflow="fold")
    for name in ("MB", "days unused"):
        table.add_column(name, justify="right")
    for each in here:
        info, receipt = each.pack.manifest.pack, each.receipt
        table.add_row(
            f"{info.name} {info.version}",
            each.pack.manifest.arch,
            f"{receipt.repo}@{str(receipt.revision)[:12]}" if receipt.repo else "this machine",
            receipt.vouched,
            each.pack.manifest_sha256[:16],
            f"{each.bytes / MB:.1f}",
            f"{max(0.0, time.time() - each.last_used) / DAY_S:.0f}",
        )
    out.print(table)


@commands.command(rich_help_panel=TRAVELLERS)
def export(
    pack: Annotated[
        str, typer.Argument(help="A pack of the cache, named as for fetch, or a directory.")
    ],
    out: Annotated[Path, typer.Argument(help="Directory to write. It must not exist.")],
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Write the layout of Hugging Face's kernels library.")
    ] = False,
) -> None:
    """Copy a pack out of the cache into a folder.

    The copy is for a machine without network; with --kernels, for Hugging Face's kernels library.

    Example: hgemm-packs export OWNER/REPO pack
    """
    with _users():
        folder = Path(pack) if Path(pack).is_dir() else packs.find(pack).pack.path
    if out.exists():
        raise UserError(f"{out} exists already")
    open_pack(folder).close()
    with of_path(out):
        written = kernels_layout.export(folder, out) if kernels else _copy(folder, out)
    console().print(f"wrote {written}", soft_wrap=True)


def _copy(folder: Path, out: Path) -> Path:
    out.mkdir(parents=True)
    for name in FILES:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, out / name)
    Pack.open_verified(out).close()
    return out


@commands.command(rich_help_panel=TRAVELLERS)
def gc(
    unused_days: Annotated[
        float | None, typer.Option(min=0, help="Remove packs unused for this many days.")
    ] = None,
    max_mb: Annotated[
        float | None,
        typer.Option(min=0, help="Then remove the longest unused, until the rest fits in this."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Remove nothing: only name the packs.")
    ] = False,
) -> None:
    """Remove packs from the cache by last use.

    Remains of broken downloads are removed, too. `gc --max-mb 0` clears the cache.

    Example: hgemm-packs gc --unused-days 30 --dry-run
    """
    limit = None if max_mb is None else int(max_mb * MB)
    gone = cache.gc(unused_days=unused_days, max_bytes=limit, dry_run=dry_run)
    out = console()
    for entry in gone:
        said = "would remove" if dry_run else "removed"
        out.print(f"{said} {entry.path.name}, {entry.bytes / MB:.1f} MB", soft_wrap=True)
    out.print(f"{len(gone)} packs, {sum(entry.bytes for entry in gone) / MB:.1f} MB")


@commands.command(rich_help_panel=TRAVELLERS)
def lock(
    specs: Annotated[
        list[str] | None,
        typer.Argument(help="Packs of the cache, named as for fetch. Default: all."),
    ] = None,
    file: LockFile = LOCK_FILE,
) -> None:
    """Write down the exact packs of a deployment.

    The lock file names the repository, commit and hashes of each pack.

    Example: hgemm-packs lock
    """
    with _users():
        text = lockfile.lock(specs or ())
    with of_path(file):
        file.write_text(text, encoding="utf-8")
    console().print(f"wrote {file}: {len(lockfile.read(file))} packs", soft_wrap=True)


@commands.command(rich_help_panel=TRAVELLERS)
def sync(
    file: LockFile = LOCK_FILE,
    check: Annotated[
        bool, typer.Option("--check", help="Fetch nothing: only say whether all packs are there.")
    ] = False,
) -> None:
    """Fetch the packs of a lock file into the cache.

    The packs must be exactly those of the lock file; a difference is an error.

    Example: hgemm-packs sync --file hgemm-packs.lock
    """
    out = console()
    if check:
        found = lockfile.check(file)
    else:
        with _users(), progress(out, str(file)) as tick:
            found = lockfile.sync(file, tick=tick)
    for path in found.values():
        out.print(f"{_title(path)} at {path}", soft_wrap=True)
