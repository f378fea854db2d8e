"""Problem that was never measured -> a kernel that is expected to gain, or why none is.

Called by `select` where no pack has a row. A predictor is made ready for C once for each pack and
device profile; C then evaluates it, in one call a problem, and is told to decide by it without
asking where one predictor says it all (`tell`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..errors import PackError
from ..pack.manifest_reader import Manifest
from ..pack.predictor import Predictor, check_candidate
from ..problem import Problem, Reason

if TYPE_CHECKING:
    from ..pack.folder import Pack
    from ..pack.manifest import KernelEntry


class Expected(NamedTuple):
    """A kernel, and torch's time over its as predicted: the gain itself, and the least of it that
    the predictor believes in."""

    kernel: KernelEntry
    gain: float
    sure: float


class _Ready(NamedTuple):
    """A predictor as C takes it, and the kernels that were held against their candidates, by place
    among these."""

    predictor: Predictor
    handle: object
    kernels: dict[int, KernelEntry]


#: By hash of the manifest and device profile.
_ready: dict[tuple[str, str], _Ready | None] = {}


def reset() -> None:
    """Forget what was made ready, as C does."""
    _ready.clear()
    tell_nothing()


def tell_nothing() -> None:
    """Have C ask about every problem: what it decides by may be wrong from now on."""
    from .. import launcher

    launcher.forget_predictors()


def _make_ready(manifest: Manifest, profile: str) -> _Ready | None:
    from .. import launcher

    found = manifest.predictor(profile)
    if found is None or launcher._C is None:
        return None
    device = next(each for each in manifest.device_profiles if each.name == profile)
    return _Ready(found, launcher.predictor(found, device), {})


def _find_ready(pack: Pack, profile: str) -> _Ready | None:
    key = pack.manifest_sha256, profile
    if key not in _ready:
        _ready[key] = _make_ready(pack.manifest, profile)
    return _ready[key]


def tell(device_index: int, packs: Sequence[tuple[Pack, str]]) -> None:
    """Have C decide by the one predictor of these packs, each with the name of a profile, or for
    torch where there is none. Of two Python knows the order, and a damaged one is refused when a
    prediction is wanted of it."""
    from .. import launcher

    try:
        found = [_find_ready(pack, profile) for pack, profile in packs]
    except PackError:
        return
    handles = [ready.handle for ready in found if ready is not None]
    if len(handles) <= 1:
        launcher.know_predictor(device_index, handles[0] if handles else None)


def _kernel(manifest: Manifest, ready: _Ready, index: int) -> KernelEntry:
    """The kernel of a candidate, which is what the candidate says."""
    candidate = ready.predictor.candidates[index]
    kernel = manifest.kernel(candidate.kernel)
    try:
        check_candidate(candidate, kernel, ready.predictor.families, f"candidates[{index}]")
    except PackError as error:
        raise error.within("predictors") from None
    return kernel


def predict(
    pack: Pack, problem: Problem, profile: str, is_sibling: bool = False
) -> tuple[Expected | None, Reason]:
    """The kernel that a pack's predictor for a profile is sure of, with the reason, or what speaks
    against any. The device is not that profile where it `is_sibling`. Raises PackError for a
    predictor that is damaged."""
    manifest = pack.manifest
    name = f"{manifest.pack}, for {profile} and not for this GPU" if is_sibling else manifest.pack

    def no(text: str) -> tuple[None, Reason]:
        return None, Reason("not_measured", f"{name}: {text}")

    ready = _find_ready(pack, profile)
    if ready is None:
        return no(f"nothing is predicted for {profile}")
    if problem.epilogue != "none" or not problem.packed:
        return no("only plain products of packed operands are predicted")
    from .. import launcher

    found = launcher.predict(ready.handle, problem)
    if found is None:
        return no(f"no candidate of the predictor takes {problem}")
    index, ours, torch, doubt, given_up = found
    gain, sure = math.exp(torch - ours), math.exp(torch - ours - doubt)
    if given_up or not sure >= ready.predictor.margin:
        return no(
            f"a kernel is expected to take {gain:.3f}x torch's speed, surely {sure:.3f}x; "
            f"it serves from {ready.predictor.margin:.3f}x on"
            f"{', and also by the first trees alone' if sure >= ready.predictor.margin else ''}"
        )
    if index not in ready.kernels:
        ready.kernels[index] = _kernel(manifest, ready, index)
    kernel = ready.kernels[index]
    unfit = kernel.admits(problem)
    if unfit is not None:
        return no(unfit.text)
    text = f"{kernel.name}, expected {gain:.3f}x torch, at least {sure:.3f}x; never measured"
    return Expected(kernel, gain, sure), Reason("predicted", f"{name}: {text}", accepted=True)
