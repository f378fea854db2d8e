"""How many GPUs there are and which, asked of the driver: importing torch takes seconds, in which a
process on a GPU could start.

Called by the CLI before it starts workers.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Callable
from typing import Any

DRIVER = "libcuda.so.1"
LONGEST_NAME = 256


def count(load: Callable[[str], Any] = ctypes.CDLL) -> int:
    """The GPUs that a process here may use, as CUDA_VISIBLE_DEVICES says; none without a driver
    that answers. Raises ModuleNotFoundError where there is no torch to use them."""
    if importlib.util.find_spec("torch") is None:
        raise ModuleNotFoundError("no torch", name="torch")
    try:
        driver = load(DRIVER)
    except OSError:
        return 0
    found = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(found)):
        return 0
    return found.value


def names() -> list[str]:
    """The names by which CUDA_VISIBLE_DEVICES knows them. Raises ModuleNotFoundError as `count`."""
    found = count()
    given = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return given[:found] if given else [str(i) for i in range(found)]


def cards(load: Callable[[str], Any] = ctypes.CDLL) -> list[str]:
    """What each of them is, "NVIDIA H200" for one, in the order of `names`. Raises
    ModuleNotFoundError as `count`."""
    found, device = [], ctypes.c_int()
    name = ctypes.create_string_buffer(LONGEST_NAME)
    for index in range(count(load)):
        driver = load(DRIVER)
        driver.cuDeviceGet(ctypes.byref(device), index)
        driver.cuDeviceGetName(name, LONGEST_NAME, device)
        found.append(name.value.decode())
    return found
