"""Which kernel runs a grouped product, with every reason, and that kernel loaded.

Asked by `grouped` once for all sizes between two that were measured, and by `report`. As `select`
and `dispatch` are for products; C remembers nothing here.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from .. import dispatch, launcher, neutral, profiles, select, selftest
from ..errors import PackError
from ..pack import grouped
from ..pack.folder import Pack
from ..pack.identity import identity
from ..pack.manifest import GroupedRow, KernelEntry
from ..pack.manifest_reader import Manifest
from ..problem import DeviceInfo, GroupedProblem, Reason

if TYPE_CHECKING:
    from .._C import Kernel


class Choice(NamedTuple):
    """The decision: all of `pack`, `kernel` and `row`, or none of them and a fallback."""

    pack: Pack | None
    kernel: KernelEntry | None
    row: GroupedRow | None
    reasons: tuple[Reason, ...]

    @property
    def code(self) -> str:
        """ "kernel", or the reason of the fallback: that of the pack that came closest."""
        if self.kernel is not None:
            return "kernel"
        return max((reason.code for reason in self.reasons), key=select.STEPS.index)


def resolve(problem: GroupedProblem, device: DeviceInfo) -> Choice:
    """Decide for one problem on one device."""
    reasons: list[Reason] = []
    for pack in select.find_packs().packs:
        try:
            row, reason = _consult(pack.manifest, problem, device)
            reasons.append(reason)
            if row is not None and row.kernel is not None:
                return Choice(pack, pack.manifest.kernel(row.kernel), row, tuple(reasons))
        except PackError as error:
            select.refuse(pack, error)
    return Choice(None, None, None, (*reasons, *select.find_packs().reasons(not reasons)))


def _consult(
    manifest: Manifest, problem: GroupedProblem, device: DeviceInfo
) -> tuple[GroupedRow | None, Reason]:
    """What one pack says: a row to use, or None and the first thing that speaks against it."""
    name = manifest.pack
    profile = profiles.find_profile(manifest, device)
    if isinstance(profile, Reason):
        return None, profile
    row = grouped.find(manifest.grouped, profile.name, problem)
    if row is None:
        return None, Reason("not_measured", f"{name}: {problem} is near no row of its weight")
    if row.kernel is None:
        text = f"{name}: measured on {row.date} with {row.m} rows, and no kernel had a win"
        return None, Reason("cublas_measured_better", text)
    if not manifest.policy.clears(row):
        floor = manifest.policy.noise_floor
        text = f"{name}: the lower bound of a kernel's gain is not above 1 + {floor:g}"
        return None, Reason("below_noise_floor", text)
    kernel = manifest.kernel(row.kernel)
    grouped.check_named([row], {kernel.id: kernel})
    why = select.exclusion_reason(kernel)
    if why is not None:
        return None, Reason("quarantined", f"{name}: {kernel.name}: {why}")
    gain = f"{row.hot.speedup:.3f}x on {row.date} with {row.m} rows"
    return row, Reason("kernel", f"{name}: {kernel.name}, measured {gain}", accepted=True)


def limits(problem: GroupedProblem, device: int) -> list[int]:
    """Numbers of rows between which every answer is the same, for the problem's weight."""
    facts = launcher.device_info(device)
    found: set[int] = set()
    for manifest, profile in profiles.find_measured(select.find_packs().packs, facts):
        found |= {*grouped.limits(manifest.grouped, profile.name, problem)}
    return sorted(found)


def load(problem: GroupedProblem, device: int, capturing: bool) -> Kernel | str:
    """The kernel of a problem, loaded, or why torch runs it: "cold_capture" where a kernel would
    have to be loaded while the caller's stream is being captured. Raises RuntimeError where there
    is no driver or device."""
    facts = launcher.device_info(device)
    choice = resolve(problem, facts)
    while choice.pack is not None and choice.kernel is not None:
        key = device, identity(choice.kernel), False
        if capturing and key not in dispatch._loaded:
            return "cold_capture"
        prove = functools.partial(_prove, problem)
        loaded = dispatch.load_chosen(choice.pack, choice.kernel, False, device, prove)
        if loaded is not None:
            return loaded
        choice = resolve(problem, facts)  # without what was just quarantined
    return choice.code


def _prove(problem: GroupedProblem, kernel: Kernel, entry: KernelEntry) -> None:
    """The self-test, where the caller's state of torch does not reach. Raises RuntimeError."""
    proof = functools.partial(selftest.prove_grouped, kernel, entry, problem)
    neutral.call_on(dispatch.kind, kernel.device, launcher._C.relaxed, proof)
