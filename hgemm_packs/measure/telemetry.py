"""What the GPU was doing while it was measured: clocks, power, temperature, throttle reasons.

Read by NVML once per block and recorded with the samples. Nothing is ever set: a measurement
describes the card as it was found. Without nvidia-ml-py or without a driver there are no readings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..settings import LOGGER


@dataclass(frozen=True, slots=True)
class Conditions:
    """One reading. `throttle` is NVML's bit mask of reasons for running below the top clock."""

    sm_mhz: int
    memory_mhz: int
    power_w: float
    temperature_c: int
    throttle: int


class Telemetry:
    """NVML readings of one CUDA device; `read()` costs some tens of microseconds."""

    def __init__(self, device: int = 0) -> None:
        self._nvml: Any = None
        try:
            import pynvml
        except ModuleNotFoundError:
            LOGGER.info("nvidia-ml-py is not installed: no clocks are recorded")
            return
        try:
            pynvml.nvmlInit()
            # CUDA_VISIBLE_DEVICES renumbers CUDA's devices but not NVML's: go by UUID.
            uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except pynvml.NVMLError as error:
            LOGGER.info("NVML gives no readings: %s", error)
            return
        self._nvml = pynvml

    def top_sm_mhz(self) -> float:
        """The highest SM clock of this card, 0 where NVML is not to be had."""
        nvml = self._nvml
        if nvml is None:
            return 0.0
        try:
            return float(nvml.nvmlDeviceGetMaxClockInfo(self._handle, nvml.NVML_CLOCK_SM))
        except nvml.NVMLError as error:
            LOGGER.info("NVML gives no top clock: %s", error)
            return 0.0

    def energy_j(self) -> float | None:
        """Joules that the whole card has used since the driver was loaded; the counter moves in
        steps of some tens of milliseconds. None where NVML does not count them."""
        nvml = self._nvml
        if nvml is None:
            return None
        try:
            return float(nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1000.0
        except nvml.NVMLError as error:
            LOGGER.info("NVML counts no energy: %s", error)
            return None

    def read(self) -> Conditions | None:
        """The current reading, or None where NVML is not to be had."""
        nvml = self._nvml
        if nvml is None:
            return None
        try:
            return Conditions(
                nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM),
                nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_MEM),
                nvml.nvmlDeviceGetPowerUsage(self._handle) / 1000.0,
                nvml.nvmlDeviceGetTemperature(self._handle, nvml.NVML_TEMPERATURE_GPU),
                nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle),
            )
        except nvml.NVMLError as error:
            LOGGER.info("NVML stopped giving readings: %s", error)
            self._nvml = None
            return None
