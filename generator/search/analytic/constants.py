"""What each family's formulas were fitted to; benchmarks/search/calibrate_prior.py prints them.

Read by the analytic prior only; nothing here is a claim. Clocks, bytes a clock and SM, or shares,
unless the name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

WGMMA: Mapping[str, float] = {
    "launch_us": 0.61,
    "smem_us": 0.158,  # per 100 kB of ring: set-up of a CTA
    "cluster": 624.0,
    "fill": 2120.0,
    "mma": 1.05,  # a tensor instruction, on a quarter of an SM
    "mma_cluster": 1.06,  # the same over again, for rings coupled by multicast
    "mma_smem": 16.0,  # of 16 rows of A from shared memory, under N = 64
    "step": 8.6,  # a K tile, one consumer
    "step_shared": 2.89,  # a K tile, when others multiply meanwhile
    "latency": 734.0,  # of a load, against the bytes in flight
    "l2": 117.0,  # when all SMs load
    "beyond": 6.89,  # cost of a loaded row outside the matrix (TMA fills in zeros), over one inside
    "store_staged": 29.9,
    "store_grouped": 34.0,
    "store_bulk": 33.2,
    "store_wait": 20.1,
    "pingpong_store": 1.42,
    "overlap": 1.02,  # share of a CTA's serial part that co-resident CTAs do not hide
    "whole_waves": 0.765,  # 1: every tile of a wave ends at once; 0: waves overlap freely
    "reduce": 359.0,
    "reduce_rank": 24.4,
    "reduce_bytes": 9.52,
    "fit_3": 0.882,  # share of SMs that clusters of 3, 4 and more find
    "fit_4": 0.82,
    "fit_8": 0.811,
    "dram_gbps": 5400.0,
    "l2_mb": 31.6,
}
#: Not fitted: WGMMA, and what copying by threads should take by count of instructions.
UNALIGNED: Mapping[str, float] = {
    **WGMMA,
    "beyond": 0.2,  # nothing is copied there
    "copy": 1.6,  # a warp's cp.async with its address
    "copy_2": 5.0,  # two loads of 2 bytes, and the store of both
    "in_flight": 2600.0,  # of a batch of loads, until the next
}
SPLITK: Mapping[str, float] = {
    "launch_us": 0.739,
    "smem_us": 0.119,
    "cluster": 600.0,
    "fill": 1650.0,
    "mma": 0.854,
    "mma_cluster": 1.1,
    "mma_smem": 16.0,
    "step": 16.7,
    "step_shared": 3.32,
    "latency": 933.0,
    "l2": 87.4,
    "beyond": 3.26,
    "store_staged": 14.0,
    "store_grouped": 32.0,
    "store_bulk": 34.6,
    "store_wait": 18.7,
    "pingpong_store": 1.3,
    "overlap": 1.31,
    "whole_waves": 0.831,
    "reduce": 426.0,
    "reduce_rank": 14.2,
    "reduce_bytes": 12.7,
    "fit_3": 0.886,
    "fit_4": 0.909,
    "fit_8": 0.909,
    "dram_gbps": 4190.0,
    "l2_mb": 36.4,
    "slice": 1840.0,  # the way of partial sums through L2
    "slice_bytes": 70.2,  # partial sums of one CTA, written and read
}
ONESHOT: Mapping[str, float] = {
    "launch_us": 0.312,
    "smem_us": 0.499,
    "cluster": 268.0,
    "fill": 1860.0,
    "mma": 0.732,
    "mma_cluster": 1.1,
    "mma_smem": 10.5,
    "step": 12.1,
    "step_shared": 3.22,
    "latency": 146.0,
    "l2": 74.0,
    "beyond": 1.71,
    "store_staged": 34.8,
    "store_grouped": 38.5,
    "store_bulk": 34.6,
    "store_wait": 18.7,
    "pingpong_store": 1.3,
    "overlap": 1.15,
    "whole_waves": 0.706,
    "reduce": 198.0,
    "reduce_rank": 21.2,
    "reduce_bytes": 15.3,
    "fit_3": 0.882,
    "fit_4": 0.97,
    "fit_8": 0.966,
    "dram_gbps": 4900.0,
    "l2_mb": 33.8,
    "store_plain": 6.87,
    "cp_async": 300.0,  # clocks that it saves, by hand, of 0.08 to 0.13 us (tried/small.jsonl.gz)
}
SWAPAB: Mapping[str, float] = {
    "launch_us": 0.107,
    "smem_us": 0.204,
    "cluster": 318.0,
    "fill": 2020.0,
    "mma": 0.918,
    "mma_cluster": 1.1,
    "mma_smem": 21.1,
    "step": 3.44,
    "step_shared": 2.7,
    "latency": 1210.0,
    "l2": 336.0,
    "beyond": 19.8,
    "store_staged": 42.1,
    "store_grouped": 35.6,
    "store_bulk": 34.6,
    "store_wait": 18.4,
    "pingpong_store": 1.3,
    "overlap": 1.63,
    "whole_waves": 0.96,
    "reduce": 1180.0,
    "reduce_rank": 20.4,
    "reduce_bytes": 17.4,
    "fit_3": 0.882,
    "fit_4": 0.905,
    "fit_8": 0.87,
    "dram_gbps": 4360.0,
    "l2_mb": 34.3,
}
WRITEBOUND: Mapping[str, float] = {
    "launch_us": 0.529,
    "smem_us": 0.0607,
    "cluster": 1370.0,
    "fill": 2980.0,
    "mma": 0.94,
    "mma_cluster": 1.1,
    "mma_smem": 16.0,
    "step": 15.4,
    "step_shared": 3.32,
    "latency": 554.0,
    "l2": 50.1,
    "beyond": 3.02,
    "store_staged": 36.0,
    "store_grouped": 37.6,
    "store_bulk": 37.1,
    "store_wait": 21.4,
    "pingpong_store": 1.64,
    "overlap": 0.849,
    "whole_waves": 0.645,
    "reduce": 500.0,
    "reduce_rank": 25.5,
    "reduce_bytes": 15.0,
    "fit_3": 0.882,
    "fit_4": 0.855,
    "fit_8": 0.811,
    "dram_gbps": 7490.0,
    "l2_mb": 32.8,
}
DIRECT: Mapping[str, float] = {
    "launch_us": 1.24,
    "latency": 210.0,
    "load": 0.354,  # a load instruction of a warp
    "load_nn": 3.17,  # the same for B in rows, relative
    "mma": 8.94,  # a tensor instruction, on a quarter of an SM
    "l1": 161.0,
    "l2": 47.8,
    "reduce": 48.6,
    "reduce_bytes": 99.2,
    "store": 33.9,
    "ragged": 16.0,
    "ragged_share": 1.03,
    "warp": 4.94,
    "wave": 38.6,
    "cluster": 338.0,
    "fixed": 0.942,  # time of a kernel compiled for one K
    "whole_waves": 0.523,
    "dram_gbps": 4760.0,
    "l2_mb": 40.0,
}
GEMV: Mapping[str, float] = {
    "launch_us": 2.14,
    "latency": 219.0,
    "load": 0.829,  # a load instruction of a warp
    "load_nn": 4.35,  # the same for B in rows, relative
    "mma": 2.67,
    "l1": 25.2,
    "l2": 482.0,
    "reduce": 85.9,
    "reduce_bytes": 216.0,
    "store": 57.7,
    "ragged": 18.0,
    "ragged_share": 1.03,
    "warp": 1.42,
    "wave": 73.9,
    "cluster": 694.0,
    "fixed": 0.95,  # time of a kernel compiled for one K
    "whole_waves": 0.282,
    "dram_gbps": 4220.0,
    "l2_mb": 34.8,
}
#: Those of sm90_wgmma, whose ring and schedules it has: no screens of the family are recorded yet,
#: so nothing is fitted (UNCALIBRATED).
TOKENS: Mapping[str, float] = WGMMA
#: Those of sm90_direct; a load has an eighth of the bytes.
ELEMENTS: Mapping[str, float] = {
    **DIRECT,
    "load": 8 * DIRECT["load"],
    "l1": DIRECT["l1"] / 8,
}
UNCALIBRATED = ("sm90_tokens", "sm90_unaligned", "sm90_elements")
