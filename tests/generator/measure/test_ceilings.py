"""Which of the measured figures becomes the ceiling."""

from __future__ import annotations

import pytest

from hgemm_packs.generator.measure import ceilings

STREAMS = {"read": 4300.0, "write": 4100.0, "copy": 4200.5}
GEMMS = {"8192x8192x8192 nt f16 torch": 790.0, "8192x8192x8192 nt f16 cublaslt": 812.0}


def test_tensor_cores_at_the_top_clock() -> None:
    """989.4 TFLOP/s is the data sheet's figure of 132 SMs at 1830 MHz."""
    assert ceilings.tensor_tflops("sm_90a", 132, 1830.0) == pytest.approx(989.4, rel=1e-3)
    assert ceilings.tensor_tflops("sm_90a", 132, 0.0) == 0.0
    assert ceilings.tensor_tflops("sm_80", 108, 1410.0) == 0.0


def test_the_veto_divides_by_the_tensor_cores_where_they_are_known() -> None:
    known = ceilings.ceilings(GEMMS, STREAMS, 1070.5)
    assert (known["peak_tflops"], known["gemm_tflops"], known["peak_gbps"]) == (1070.5, 812, 4300)
    unknown = ceilings.ceilings(GEMMS, STREAMS, 0.0)
    assert (unknown["peak_tflops"], unknown["gemm_tflops"]) == (812.0, 812.0)
    assert unknown["gemms"] == GEMMS and unknown["streams"] == STREAMS
