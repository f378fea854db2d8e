"""`hgemm-packs list`, `explain`, `verify`: what is installed, what it decides, whether it holds.

Every verdict comes from `select` and `pack`; this module only prints them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .. import profiles, report, select
from ..distribution import trust
from ..errors import PackError
from ..pack import discover
from ..pack.folder import Pack
from ..pack.manifest import GroupedRow, Row
from ..problem import Problem, Reason, cuda_of
from ..settings import settings
from .console import UserError, cuda_device, generator, open_pack, progress
from .devices import find_device


def list_found(out: Console) -> None:
    """Packs in search order, each profile with its rows and wins and each pack with its origin,
    then every place that was refused and why, and what is not for the GPU here."""
    _say_if_off(out)
    known = select.verify_packs()
    table = Table(title="packs in search order")
    table.add_column("pack", overflow="fold")
    table.add_column("profile", overflow="fold")
    for name in ("kernels", "rows", "wins"):
        table.add_column(name, justify="right")
    table.add_column("origin", overflow="fold")
    for pack in known.packs:
        for line in _describe(pack):
            table.add_row(*line)
    if known.packs:
        out.print(table)
    else:
        out.print("no pack found: `hgemm-packs build` makes one, HGEMM_PACKS_PATH names one")
    for refused in known.refused:
        out.print(f"refused {refused.place}: {refused.error}")
    _show_machine(out)


def _describe(pack: Pack) -> Iterator[tuple[str, ...]]:
    """The lines of a pack, one a profile. Grouped rows count as all others."""
    manifest = pack.manifest
    try:
        origin = discover.origin(pack)
    except PackError as error:
        origin = str(error)
    first = str(manifest.pack), str(len(manifest.kernels))
    place = f"{origin}\n{pack.path}"
    for profile in manifest.device_profiles:
        rows: list[Row | GroupedRow] = [*manifest.table, *manifest.grouped]
        rows = [row for row in rows if row.profile == profile.name]
        wins = sum(row.kernel is not None and manifest.policy.clears(row) for row in rows)
        name, kernels = first
        yield name, f"{profile.name} ({manifest.arch})", kernels, str(len(rows)), str(wins), place
        first, place = ("", ""), ""


def _say_if_off(out: Console) -> None:
    if settings().off:
        out.print("HGEMM_PACKS_OFF=1 is set: torch runs every call. Without that:")


def _show_machine(out: Console) -> None:
    try:
        index = cuda_device()
    except UserError as error:
        out.print(str(error))
        return
    import torch

    out.print(f"torch {torch.__version__}", end=", ")
    if index is None:
        out.print("no CUDA device: matmul is torch's own here")
        return
    device = find_device(None)
    driver = f"driver for {cuda_of(device.driver)}"
    out.print(f"{device.name} ({device.arch}, {device.sm_count} SMs), {driver}")
    for pack in select.find_packs().packs:
        found = profiles.find_profile(pack.manifest, device)
        if isinstance(found, Reason):
            out.print(f"not used here: {found.text}", soft_wrap=True)


def explain(out: Console, problem: Problem, profile: str | None) -> None:
    """The decision for one problem on a device here or a named one, with every step to it."""
    device = find_device(profile)
    # Versions of this process belong to the answer only where the device is this machine's.
    versions = report.runtime_versions(cuda_device() or 0) if profile is None else {}
    _say_if_off(out)
    out.print(report.explain_problem(problem, device=device, versions=versions))


def verify(out: Console, folder: Path | None, gpu: bool, allow: Collection[str] = ()) -> bool:
    """Check every hash of a pack (or of all that are found); with `gpu` every kernel's values, with
    `allow` that one of these words (see TrustPolicy.extend) or the policy file vouches for it.

    Returns whether all of it held. Raises UserError when there is nothing to verify.
    """
    sound = True
    if folder is not None:
        packs = [open_pack(folder)]
    else:
        known = select.verify_packs()
        packs = list(known.packs)
        for refused in known.refused:
            sound = sound and refused.error.code == "stale"  # which is no fault of the files
            out.print(f"REFUSED {refused.place}: {refused.error}")
        if not packs and sound:
            raise UserError("no pack found to verify: give its folder or set HGEMM_PACKS_PATH")
    for pack in packs:
        manifest = pack.manifest
        out.print(
            f"ok {manifest.pack}: manifest, {len(manifest.kernels)} "
            f"kernels and {manifest.blob.bytes} bytes match their hashes"
        )
        if allow:
            sound = _verify_trust(out, pack, allow) and sound
        if gpu:
            sound = _verify_values(out, pack) and sound
    return sound


def _verify_trust(out: Console, pack: Pack, allow: Collection[str]) -> bool:
    try:
        receipt = trust.verify(pack.path, allow=allow)
    except PackError as error:
        out.print(f"REFUSED {pack.path}: {error}")
        return False
    out.print(f"vouched for by {receipt.vouched}")
    return True


def _verify_values(out: Console, pack: Pack) -> bool:
    index = cuda_device()
    if index is None:
        raise UserError("verify --gpu needs a CUDA device")
    check = generator("gates.pack_gate")
    with progress(out, "kernels against float64") as tick:
        results = check.verify_kernels(pack, index, tick)
    failed = [result for result in results if not result.ok]
    for result in failed:
        out.print(f"WRONG {result.name}: {result.detail}")
    right = [result.max_rel_err for result in results if result.ok]
    worst = f", largest relative error {max(right):.1e}" if right else ""
    out.print(f"{len(right)} of {len(results)} kernels right{worst}")
    return not failed
