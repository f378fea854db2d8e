"""Problem -> kernel or fallback, with every step of the decision as a value.

Called by `dispatch` on a miss, once per problem and device, and by `report` for explain. A problem
goes to a kernel on measured evidence for this very device profile (`profiles`); where nobody
measured it, on a prediction whose errors were measured (`prediction`), if that is sure. The last
kind C decides by itself, where it was told what by (`tell_predictor`) and has the kernel.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from . import prediction, profiles, selftest
from .errors import PackError
from .pack import batch_invariant, discover
from .pack.folder import Pack
from .pack.identity import identity
from .pack.manifest import DeviceProfile, KernelEntry, Row
from .pack.manifest_reader import Manifest
from .problem import ALIGNED, DeviceInfo, Problem, Reason
from .settings import settings

#: Codes of refusal from the least to the most specific: the furthest step reached names a fallback.
STEPS = (
    "no_pack",
    "pack_refused",
    "launcher_abi",
    "arch",
    "driver",
    "profile",
    "not_measured",
    "cublas_measured_better",
    "below_noise_floor",
    "no_invariant_kernel",
    "quarantined",
    "strided",
    "unaligned",
)
#: Those of a row that a table has.
OF_ROWS = ("cublas_measured_better", "below_noise_floor", "quarantined")
#: Of these, those that say who is faster: what this machine has measured counts alone.
TORCH_STAYS = OF_ROWS[:2]


class Selection(NamedTuple):
    """The decision: all of `pack`, `kernel` and `row`, or none of them and a fallback. `dependent`
    is the kernel for launches behind our own ones in a graph, where there is one. In the
    batch-invariant mode there is none, and `row` only where it is the problem's own. A kernel that
    is predicted has neither, but the gain that is `expected`, as torch's time over its, and where
    that is another card's, `expected_on` which."""

    pack: Pack | None
    kernel: KernelEntry | None
    row: Row | None
    reasons: tuple[Reason, ...]
    dependent: KernelEntry | None = None
    expected: float | None = None
    expected_on: str | None = None

    @property
    def code(self) -> str:
        """ "kernel", "predicted", or the reason of the fallback: that of the pack that came
        closest."""
        if self.kernel is not None:
            return "kernel" if self.expected is None else "predicted"
        return max((reason.code for reason in self.reasons), key=STEPS.index)


_lock = threading.RLock()  # a provider wheel's own code runs below it and may call us
_found: discover.Found | None = None
# By identity, of earlier versions by cubin: such a record is of all kernels of that cubin.
_quarantine: dict[str, str] = {}
_never_dependent: dict[str, str] = {}  # beside those of the quarantine


def find_packs() -> discover.Found:
    """The packs of this process, looked for once, as are the kernels that failed before it."""
    global _found
    with _lock:
        if _found is None:
            _found = discover.find()
            for name, reason in selftest.read_quarantine(settings().cache).items():
                _quarantine.setdefault(name, reason)
        return _found


def prefer(pack: Pack) -> None:
    """Put a pack in front of the others of this process, until `reset`; behind the tables that
    this machine has measured."""
    global _found
    with _lock:
        known = find_packs()
        _found = discover.Found(discover.put_first(pack, known.packs), known.refused)
        prediction.tell_nothing()


def renew_local() -> None:
    """Look at the tables of this machine again, after one was measured; `launcher.reset_table` then
    has calls decided anew."""
    global _found
    with _lock:
        _found = discover.renew_local(find_packs())
        prediction.tell_nothing()


def refuse(pack: Pack, error: PackError) -> None:
    """Take a pack out, as if it had been refused when it was looked for: what was wanted of it now
    is damaged, so nothing of it is believed any more."""
    global _found
    with _lock:
        _found = discover.drop(pack, find_packs(), error)
        prediction.tell_nothing()


def verify_packs() -> discover.Found:
    """As `find_packs`, after every check of every pack, for those who show or measure whole
    packs."""
    for pack in find_packs().packs:
        try:
            pack.verify()
        except PackError as error:
            refuse(pack, error)
    return find_packs()


def reset() -> None:
    """Forget packs and quarantine; the next decision looks again, at the cache's quarantine too."""
    global _found
    with _lock:
        _found = None
        prediction.reset()
        _quarantine.clear()
        _never_dependent.clear()


def quarantine(kernel: KernelEntry, reason: str) -> None:
    """Never choose this kernel again in this process: it failed to load or to prove itself."""
    with _lock:
        _quarantine.setdefault(identity(kernel), reason)
        prediction.tell_nothing()


def quarantine_dependent(kernel: KernelEntry, reason: str) -> None:
    """The same for dependent launches alone: the kernel failed to load for these."""
    with _lock:
        _never_dependent.setdefault(identity(kernel), reason)


def exclusion_reason(kernel: KernelEntry, dependent: bool = False) -> str | None:
    """Why this kernel is never chosen, or never for `dependent` launches; None where it may be."""
    if not _quarantine and not _never_dependent:
        return None  # identities take time
    name = identity(kernel)
    why = _quarantine.get(name, _quarantine.get(kernel.id))
    return _never_dependent.get(name) if why is None and dependent else why


def resolve(
    problem: Problem,
    device_index: int,
    device: DeviceInfo | None = None,
    *,
    invariant: bool = False,
    unmeasured: bool = False,
) -> Selection:
    """Decide for one problem on one device; `device` spares asking the driver about it. In the
    batch-invariant mode any problem gets a kernel that takes it, measured on it or not. Of an
    `unmeasured` problem it is known that no pack has a row."""
    unfit = _find_unfit(problem)
    if invariant and unfit is not None:
        return Selection(None, None, None, (unfit,))
    if device is None:
        from .launcher import device_info

        device = device_info(device_index)
    reasons: list[Reason] = []
    for pack in find_packs().packs:
        try:
            if invariant and pack.local:
                continue  # it has few kernels, and this mode takes any that adds up in order
            if invariant:
                found, reason = _consult_invariant(pack.manifest, problem, device)
                reasons.append(reason)
                if found is not None:
                    own = found.row if found.row and found.row.key == problem.key else None
                    return Selection(pack, found.kernel, own, tuple(reasons))
                continue
            row, reason = _consult(pack.manifest, problem, device, unmeasured)
            reasons.append(reason)
            if row is not None and row.kernel is not None:
                dependent, refusal = _select_dependent(pack.manifest, row)
                reasons += [refusal] if refusal else []
                kernel = pack.manifest.kernel(row.kernel)
                return Selection(pack, kernel, row, tuple(reasons), dependent)
            if pack.local and reason.code in TORCH_STAYS:
                break
        except PackError as error:
            refuse(pack, error)
    reasons += find_packs().reasons(not reasons)
    fallback = Selection(None, None, None, tuple(reasons))
    if unfit is not None and not any(reason.code in OF_ROWS for reason in reasons):
        fallback = Selection(None, None, None, (unfit,))
    # A predictor sees the sizes of one product alone.
    seen = problem.packed and problem.base == ALIGNED and problem.batches == 1
    siblings = ("profile",) if settings().siblings else ()
    if invariant or fallback.code not in ("not_measured", "unaligned", *siblings):
        return fallback  # predicted kernels add up in whatever order they do
    if not (seen and settings().predict):
        return fallback
    refused_before = len(find_packs().refused)
    predicted = _predict(problem, device, reasons)
    if len(find_packs().refused) > refused_before:  # decide by what is left
        return resolve(problem, device_index, device, unmeasured=unmeasured)
    return predicted if unfit is None or predicted.kernel else fallback


def tell_predictor(device_index: int) -> None:
    """Let C decide by itself about problems without a row, where it would as `resolve` does: where
    no kernel has failed, and one pack at most has a predictor for the device, or for siblings."""
    from .launcher import device_info

    device = device_info(device_index)
    with _lock:
        if not _quarantine:
            asked = [each[:2] for each in _find_predicting(device)]
            prediction.tell(device_index, asked if settings().predict else [])


def _predict(problem: Problem, device: DeviceInfo, reasons: list[Reason]) -> Selection:
    """The first pack's prediction that is sure."""
    for pack, profile, is_sibling in _find_predicting(device):
        try:
            found, reason = prediction.predict(pack, problem, profile, is_sibling)
        except PackError as error:
            refuse(pack, error)
            continue
        reasons.append(reason)
        if found is None:
            continue
        why = exclusion_reason(found.kernel)
        if why is None:
            place = profile if is_sibling else None
            return Selection(pack, found.kernel, None, tuple(reasons), None, found.gain, place)
        reasons[-1] = Reason("quarantined", f"{found.kernel.name}: {why}")
    return Selection(None, None, None, tuple(reasons))


def _find_predicting(device: DeviceInfo) -> list[tuple[Pack, str, bool]]:
    """Packs that may predict for a device, with the name of the profile to predict for: those that
    were measured on it, then, where the user wants that, those that predict for siblings alone."""
    measured, siblings = [], []
    for pack in find_packs().packs:
        found = profiles.find_profile(pack.manifest, device)
        if isinstance(found, DeviceProfile):
            measured.append((pack, found.name, False))
        elif found.code != "profile":
            continue
        predicted = _list_predicted(pack) if settings().siblings else []
        if predicted and found not in predicted:
            siblings.append((pack, profiles.find_nearest(predicted, device).name, True))
    return measured + siblings


def _list_predicted(pack: Pack) -> list[DeviceProfile]:
    """The profiles that a pack predicts for; all where it is damaged: asked, it is refused."""
    manifest = pack.manifest
    try:
        return [each for each in manifest.device_profiles if manifest.predictor(each.name)]
    except PackError:
        return list(manifest.device_profiles)


def _find_unfit(problem: Problem) -> Reason | None:
    """What explains best why a table lacks a problem: most rows are of packed, aligned operands."""
    if not problem.packed:
        return Reason("strided", "an operand's strides are not minimal, as few rows have them")
    if problem.align < 16:
        return Reason(
            "unaligned",
            f"an operand is only {problem.align}-byte aligned: most kernels need addresses at "
            "multiples of 16 bytes, and N and K (in tn and tt M as well) that are multiples of 8",
        )
    return None


def _consult(
    manifest: Manifest, problem: Problem, device: DeviceInfo, unmeasured: bool
) -> tuple[Row | None, Reason]:
    """What one pack says: a row to use, or None and the first thing that speaks against it."""

    def no(code: str, text: str) -> tuple[None, Reason]:
        return None, Reason(code, f"{manifest.pack}: {text}")

    profile = profiles.find_profile(manifest, device)
    if isinstance(profile, Reason):
        return None, profile
    row = None if unmeasured else manifest.row(profile.name, problem.key)
    if row is None:
        return no("not_measured", f"{problem} is not in the table")
    if row.kernel is None:
        return no(
            "cublas_measured_better", f"measured on {row.date}, and no kernel had a confirmed win"
        )
    if not manifest.policy.clears(row):
        floor = manifest.policy.noise_floor
        return no(
            "below_noise_floor",
            f"a kernel won, but the lower bound of its gain is not above 1 + {floor:g}",
        )
    kernel = manifest.kernel(row.kernel)
    why = exclusion_reason(kernel)
    if why is not None:
        return no("quarantined", f"{kernel.name}: {why}")
    gain = f"{row.hot.speedup:.3f}x hot, {row.cold.speedup:.3f}x cold on {row.date}"
    return row, Reason("kernel", f"{manifest.pack}: {kernel.name}, measured {gain}", accepted=True)


def _consult_invariant(
    manifest: Manifest, problem: Problem, device: DeviceInfo
) -> tuple[batch_invariant.Candidate | None, Reason]:
    """What one pack says in the batch-invariant mode."""
    name = manifest.pack
    foreign = profiles.find_foreign(manifest, device)
    if foreign is not None:
        return None, foreign
    ranked = batch_invariant.rank(manifest, problem, device.sm_count)
    for found in ranked:
        if exclusion_reason(found.kernel) is None:
            text = f"{found.kernel.name}, one of {len(ranked)} that add up K in order"
            return found, Reason("kernel", f"{name}: {text}", accepted=True)
    if ranked:
        return None, Reason("quarantined", f"{name}: each of {len(ranked)} kernels has failed")
    return None, Reason(
        "no_invariant_kernel", f"{name}: no kernel that adds up K in order takes {problem}"
    )


def _select_dependent(manifest: Manifest, row: Row) -> tuple[KernelEntry | None, Reason | None]:
    """The kernel that a row names for dependent launches, if any, or why it is not used. The row's
    own serves all the same."""
    if row.dependent is None:
        return None, None
    kernel = manifest.kernel(row.dependent)
    why = exclusion_reason(kernel, dependent=True)
    if why is None:
        return kernel, None
    return None, Reason("quarantined", f"{manifest.pack}: dependent launch of {kernel.name}: {why}")
