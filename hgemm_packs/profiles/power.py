"""The power limit of a GPU, from NVML's C library, since CUDA's driver does not tell it.

Called where a profile says one, once a process and GPU. Nothing is ever set. No package is needed:
four functions of a library that comes with every driver.
"""

from __future__ import annotations

import functools

LIBRARY = "libnvidia-ml.so.1"


@functools.cache
def enforced_limit_w(bus_id: str) -> float | None:
    """Watts that the driver enforces on the GPU at a PCI address such as 00000000:1b:00.0; of a MIG
    slice those of its whole card. None where NVML or the GPU is not to be had."""
    import ctypes  # not before: `import hgemm_packs` needs none of it

    try:
        nvml = ctypes.CDLL(LIBRARY)
        start, end = nvml.nvmlInit_v2, nvml.nvmlShutdown
        find, read = nvml.nvmlDeviceGetHandleByPciBusId_v2, nvml.nvmlDeviceGetEnforcedPowerLimit
    except (OSError, AttributeError):
        return None
    if start():
        return None
    try:
        handle, milliwatts = ctypes.c_void_p(), ctypes.c_uint()
        failed = find(bus_id.encode(), ctypes.byref(handle))
        failed = failed or read(handle, ctypes.byref(milliwatts))
    finally:
        end()
    return None if failed or not milliwatts.value else milliwatts.value / 1000
