"""What each family's formulas were fitted to; benchmarks/calibrate_prior.py prints them.

Read by the analytic prior only; nothing here is a claim. Clocks, bytes a clock and SM, or shares,
unless the name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

WGMMA: Mapping[str, float] = {
    "launch_us": 0.519,
    "smem_us": 0.101,  # per 100 kB of ring: set-up of a CTA
    "cluster": 1370.0,
    "fill": 2380.0,
    "mma": 1.12,  # clocks over the tensor cores' own
    "mma_cluster": 1.1,  # the same over again, for rings coupled by multicast
    "mma_smem": 18.4,  # of 16 rows of A from shared memory, under N = 64
    "step": 15.4,  # a K tile, one consumer
    "step_shared": 3.23,  # a K tile, when others multiply meanwhile
    "latency": 748.0,  # of a load, against the bytes in flight
    "l2": 96.0,  # when all SMs load
    "beyond": 3.02,  # cost of a loaded row outside the matrix (TMA fills in zeros), over one inside
    "store_staged": 29.2,
    "store_grouped": 35.6,
    "store_bulk": 34.6,
    "store_wait": 18.7,
    "pingpong_store": 1.3,
    "overlap": 0.849,  # share of a CTA's serial part that co-resident CTAs do not hide
    "whole_waves": 0.644,  # 1: every tile of a wave ends at once; 0: waves overlap freely
    "reduce": 500.0,
    "reduce_rank": 25.5,
    "reduce_bytes": 15.0,
    "fit_3": 0.882,  # share of SMs that clusters of 3, 4 and more find
    "fit_4": 0.855,
    "fit_8": 0.811,
    "dram_gbps": 4570.0,
    "l2_mb": 36.1,
}
SPLITK: Mapping[str, float] = {
    **WGMMA,
    "slice": 1500.0,  # a counter in L2, and the last arriver's first read
    "slice_bytes": 40.0,  # partials of one CTA, written and read
}
ONESHOT: Mapping[str, float] = {**WGMMA, "fill": 1500.0, "cluster": 900.0, "store_plain": 25.0}
SWAPAB: Mapping[str, float] = {**WGMMA, "cluster": 900.0, "l2": 60.0}
WRITEBOUND: Mapping[str, float] = {**WGMMA}
DIRECT: Mapping[str, float] = {
    "launch_us": 1.49,
    "latency": 263.0,
    "load": 0.502,  # a load instruction of a warp
    "load_nn": 4.35,  # the same for B in rows, relative
    "mma": 6.17,  # a tensor instruction, on a quarter of an SM
    "l1": 297.0,
    "l2": 41.4,
    "reduce": 70.6,
    "reduce_bytes": 206.0,
    "store": 34.0,
    "ragged": 18.0,
    "ragged_share": 1.03,
    "warp": 1.49,
    "wave": 38.6,
    "cluster": 1000.0,
    "fixed": 0.95,  # time of a kernel compiled for one K
    "whole_waves": 0.471,
    "dram_gbps": 4760.0,
    "l2_mb": 40.0,
}
GEMV: Mapping[str, float] = {**DIRECT}
