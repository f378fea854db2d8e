"""Device profiles by name: to ask about a GPU that is not here."""

from __future__ import annotations

from .. import profiles, select
from ..problem import DeviceInfo
from .console import UserError, cuda_device, generator, manifests_dir


def find_device(name: str | None) -> DeviceInfo:
    """The device of that profile name; the one here when `name` is None.

    Raises UserError when there is none here, or no pack and no committed manifest knows the name.
    """
    if name is None:
        index = cuda_device()
        if index is None:
            names = ", ".join(f'"{each}"' for each in _profiles()) or "none"
            raise UserError(f"no CUDA device here: give --device-profile (known: {names})")
        from ..launcher import device_info

        return device_info(index)
    known = of_packs()
    if name not in known:
        known = _profiles()
    if name not in known:
        raise UserError(f"unknown device profile {name!r}; known: {', '.join(known) or 'none'}")
    return known[name]


def _profiles() -> dict[str, DeviceInfo]:
    """Profiles of the packs found, then of the committed manifests."""
    known = of_packs()
    read_source = generator("compile.pack_writer").read_source
    for path in sorted(manifests_dir().glob("sm_*/*/pack.json")):
        source = read_source(path.parent)
        for each in source.device_profiles:
            device = profiles.as_device(each, source.arch, source.min_driver)
            known.setdefault(each.name, device)
    return known


def of_packs() -> dict[str, DeviceInfo]:
    """Profiles of the packs found, each with the oldest driver that its kernels run on."""
    known: dict[str, DeviceInfo] = {}
    for pack in select.find_packs().packs:
        manifest = pack.manifest
        for each in manifest.device_profiles:
            known[each.name] = profiles.as_device(each, manifest.arch, manifest.min_driver)
    return known
