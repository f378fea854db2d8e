"""Stand-ins for cards of one architecture, as their drivers describe them: what a rule that tells
GPUs apart is held against. Bandwidths follow from clock and width of the bus.
"""

from __future__ import annotations

import dataclasses

from hgemm_packs.pack.manifest import DeviceProfile
from hgemm_packs.problem import DeviceInfo

MIB = 1 << 20
#: kHz and bits of the H200's memory.
H200_MEMORY = 3_201_000, 6144


def card(
    name: str, sm_count: int, l2_mib: int, memory: tuple[int, int], power_limit_w: float | None
) -> DeviceInfo:
    khz, bits = memory
    gbps = 2 * khz * bits / 8e6
    return DeviceInfo(name, "sm_90a", sm_count, l2_mib * MIB, 13000, gbps, power_limit_w)


H200 = card("NVIDIA H200", 132, 60, H200_MEMORY, 700.0)
H200_NVL = card("NVIDIA H200 NVL", 132, 60, H200_MEMORY, 600.0)
H100 = card("NVIDIA H100 80GB HBM3", 132, 50, (2_619_000, 5120), 700.0)
H100_PCIE = card("NVIDIA H100 PCIe", 114, 50, (1_593_000, 5120), 350.0)
H100_NVL = card("NVIDIA H100 NVL", 132, 50, (2_619_000, 6016), 400.0)
GH200 = card("NVIDIA GH200 480GB", 132, 50, (2_619_000, 6144), 900.0)
GH200_144 = card("NVIDIA GH200 144G HBM3e", 132, 60, H200_MEMORY, 900.0)
H20 = card("NVIDIA H20", 78, 60, (2_619_000, 6144), 500.0)
CARDS = (H200, H200_NVL, H100, H100_PCIE, H100_NVL, GH200, GH200_144, H20)
#: Cards that differ from another in the name alone, with that one.
RENAMED = (
    (dataclasses.replace(H100, name="NVIDIA H800"), H100),
    (dataclasses.replace(H200, name="OEM Accelerator 141"), H200),
)


def profile(device: DeviceInfo) -> DeviceProfile:
    """What a manifest says of a card."""
    facts = device.theoretical_mem_bw_gbps, device.power_limit_w
    return DeviceProfile(device.name, device.sm_count, device.l2_bytes, 4000.0, *facts)


def unrecorded(device: DeviceInfo) -> DeviceProfile:
    """What a manifest of earlier versions says of it."""
    return profile(device)._replace(theoretical_mem_bw_gbps=None, power_limit_w=None)
