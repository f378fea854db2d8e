"""What tells this GPU from its siblings, as its driver and NVML say it."""

from __future__ import annotations

import pytest
import torch

from hgemm_packs import launcher, profiles, select
from hgemm_packs.problem import Reason

pytestmark = pytest.mark.gpu


def test_driver_and_nvml_tell_what_a_profile_names() -> None:
    pynvml = pytest.importorskip("pynvml")
    here, told = launcher.device_info(0), torch.cuda.get_device_properties(0)
    assert (here.sm_count, here.l2_bytes) == (told.multi_processor_count, told.L2_cache_size)
    assert here.theoretical_mem_bw_gbps is not None
    assert 1000 < here.theoretical_mem_bw_gbps < 20_000
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{told.uuid}")
    limit_w = pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000
    pynvml.nvmlShutdown()
    assert profiles.power_limit_w(here) == limit_w


def test_this_gpu_is_a_profile_of_the_pack() -> None:
    packs = select.find_packs().packs
    found = [profiles.find_profile(each.manifest, launcher.device_info(0)) for each in packs]
    assert found and not [each for each in found if isinstance(each, Reason)]
