"""Which device profile of a pack a GPU is, if any: the rule of what may share a table.

Asked by `select` and by whoever shows a pack. Hardware decides and not a name, for one card is sold
under several: SMs, L2, memory bandwidth and power limit must be the profile's. Where one of the
last two is unknown, of the GPU or of the profile, the name must be the profile's as well. A GPU
that kernels of a pack run on, and that is none of its profiles, is a sibling: it gets no row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ..pack.manifest import DeviceProfile
from ..pack.manifest_reader import Manifest
from ..problem import DeviceInfo, Reason, cuda_of
from . import power

if TYPE_CHECKING:
    from ..pack.folder import Pack

#: By how much, as parts of the larger, two GPUs of one profile may differ. Drivers round the clock
#: of a memory by some MHz, and no two cards of an architecture are as near in both.
BANDWIDTH_TOLERANCE, POWER_TOLERANCE = 0.02, 0.05

#: The facts of a profile that may be unknown, so that the name decides.
BEYOND_NAMES = ("theoretical_mem_bw_gbps", "power_limit_w")


class Comparison(NamedTuple):
    """A device beside a profile, in words: what differs, and what cannot be compared."""

    unlike: tuple[str, ...]
    unknown: tuple[str, ...]


def compare(profile: DeviceProfile, device: DeviceInfo) -> Comparison:
    """Hold a device against a profile. The power limit is asked for where all else is alike."""
    unlike, unknown = [], []
    if device.sm_count != profile.sm_count:
        unlike.append(f"{device.sm_count} SMs, not {profile.sm_count}")
    if device.l2_bytes != profile.l2_bytes:
        unlike.append(f"{device.l2_bytes / 2**20:g} MiB of L2, not {profile.l2_bytes / 2**20:g}")
    here, there = device.theoretical_mem_bw_gbps, profile.theoretical_mem_bw_gbps
    if here is None or there is None:
        unknown.append("memory bandwidth")
    elif not is_near(here, there, BANDWIDTH_TOLERANCE):
        unlike.append(f"{here:.0f} GB/s of memory bandwidth, not {there:.0f}")
    if unlike:
        return Comparison(tuple(unlike), tuple(unknown))
    there = profile.power_limit_w
    here = None if there is None else power_limit_w(device)
    if here is None or there is None:
        unknown.append("power limit")
    elif not is_near(here, there, POWER_TOLERANCE):
        unlike.append(f"a power limit of {here:g} W, not {there:g}")
    if unknown and not unlike and device.name != profile.name:
        unlike.append(f"another name, and {' and '.join(unknown)} cannot be compared")
    return Comparison(tuple(unlike), tuple(unknown))


def is_near(one: float, other: float, tolerance: float) -> bool:
    """Whether two facts are of one kind of GPU."""
    return abs(one - other) <= tolerance * max(one, other)


def power_limit_w(device: DeviceInfo) -> float | None:
    """What the device says itself, as one that stands for a profile does, or else NVML of it."""
    if device.power_limit_w is None and device.bus_id:
        return power.enforced_limit_w(device.bus_id)
    return device.power_limit_w


def match(profiles: Iterable[DeviceProfile], device: DeviceInfo) -> DeviceProfile | None:
    """The profile that a device is: of several the one of its name, or else the first."""
    found = [each for each in profiles if not compare(each, device).unlike]
    named = [each for each in found if each.name == device.name]
    return next(iter(named or found), None)


def find_nearest(profiles: Iterable[DeviceProfile], device: DeviceInfo) -> DeviceProfile:
    """Of profiles that a device is not the one that is most like it: by factors between SMs, L2
    and, where they are known, memory bandwidths."""

    def distance(profile: DeviceProfile) -> float:
        bandwidths = device.theoretical_mem_bw_gbps, profile.theoretical_mem_bw_gbps
        pairs = [(device.sm_count, profile.sm_count), (device.l2_bytes, profile.l2_bytes)]
        pairs += [bandwidths] if None not in bandwidths else []  # type: ignore[list-item]
        return sum(abs(math.log(max(here, 1) / there)) for here, there in pairs)

    return min(profiles, key=distance)


def find_foreign(manifest: Manifest, device: DeviceInfo) -> Reason | None:
    """Why no kernel of a pack can run on a device at all."""
    if manifest.arch != device.arch:
        text = f"the pack is made for {manifest.arch}, the device is {device.arch}"
        return Reason("arch", f"{manifest.pack}: {text}")
    if device.driver < manifest.min_driver:
        needed, found = cuda_of(manifest.min_driver), cuda_of(device.driver)
        text = f"the pack needs a driver for {needed}, the driver here is for {found}"
        return Reason("driver", f"{manifest.pack}: {text}")
    return None


def find_profile(manifest: Manifest, device: DeviceInfo) -> DeviceProfile | Reason:
    """The profile of a pack that a device is, whose rows count there, or why none does."""
    foreign = find_foreign(manifest, device)
    if foreign is not None:
        return foreign
    found = match(manifest.device_profiles, device)
    if found is not None:
        return found
    nearest = find_nearest(manifest.device_profiles, device)
    unlike = "; ".join(compare(nearest, device).unlike)
    text = (
        f"{manifest.pack}: measured on {nearest.name}, and {device.name} here has {unlike}. "
        "`hgemm-packs tune` measures here; HGEMM_PACKS_SIBLINGS=1 predicts from there"
    )
    return Reason("profile", text)


def find_measured(
    packs: Iterable[Pack], device: DeviceInfo
) -> Iterator[tuple[Manifest, DeviceProfile]]:
    """Those of the packs that were measured on a device, each with the profile that it is."""
    for pack in packs:
        found = find_profile(pack.manifest, device)
        if not isinstance(found, Reason):
            yield pack.manifest, found


def as_device(profile: DeviceProfile, arch: str, driver: int) -> DeviceInfo:
    """A device that is this profile, for questions about a GPU that is not here."""
    return DeviceInfo(
        *(profile.name, arch, profile.sm_count, profile.l2_bytes, driver),
        theoretical_mem_bw_gbps=profile.theoretical_mem_bw_gbps,
        power_limit_w=profile.power_limit_w,
    )
