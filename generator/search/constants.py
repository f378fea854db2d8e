"""What each family's formulas were fitted to; benchmarks/calibrate_prior.py prints them.

Read by the analytic prior only; nothing here is a claim. Clocks, bytes a clock and SM, or shares,
unless the name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

WGMMA: Mapping[str, float] = {
    "launch_us": 0.554,
    "smem_us": 0.136,  # per 100 kB of ring: set-up of a CTA
    "cluster": 742.0,
    "fill": 2140.0,
    "mma": 1.05,  # a tensor instruction, on a quarter of an SM
    "mma_cluster": 1.06,  # the same over again, for rings coupled by multicast
    "mma_smem": 16.0,  # of 16 rows of A from shared memory, under N = 64
    "step": 11.6,  # a K tile, one consumer
    "step_shared": 3.07,  # a K tile, when others multiply meanwhile
    "latency": 724.0,  # of a load, against the bytes in flight
    "l2": 114.0,  # when all SMs load
    "beyond": 6.54,  # cost of a loaded row outside the matrix (TMA fills in zeros), over one inside
    "store_staged": 29.4,
    "store_grouped": 33.4,
    "store_bulk": 32.6,
    "store_wait": 19.5,
    "pingpong_store": 1.43,
    "overlap": 1.02,  # share of a CTA's serial part that co-resident CTAs do not hide
    "whole_waves": 0.762,  # 1: every tile of a wave ends at once; 0: waves overlap freely
    "reduce": 405.0,
    "reduce_rank": 24.9,
    "reduce_bytes": 12.2,
    "fit_3": 0.882,  # share of SMs that clusters of 3, 4 and more find
    "fit_4": 0.834,
    "fit_8": 0.811,
    "dram_gbps": 5510.0,
    "l2_mb": 32.6,
}
SPLITK: Mapping[str, float] = {
    "launch_us": 0.688,
    "smem_us": 0.1,
    "cluster": 600.0,
    "fill": 1110.0,
    "mma": 0.892,
    "mma_cluster": 1.1,
    "mma_smem": 16.4,
    "step": 17.5,
    "step_shared": 3.23,
    "latency": 1060.0,
    "l2": 65.7,
    "beyond": 2.42,
    "store_staged": 24.7,
    "store_grouped": 32.7,
    "store_bulk": 34.6,
    "store_wait": 18.6,
    "pingpong_store": 1.3,
    "overlap": 1.18,
    "whole_waves": 0.619,
    "reduce": 353.0,
    "reduce_rank": 19.6,
    "reduce_bytes": 11.1,
    "fit_3": 0.882,
    "fit_4": 0.943,
    "fit_8": 0.97,
    "dram_gbps": 4390.0,
    "l2_mb": 35.8,
    "slice": 1950.0,  # a counter in L2, and the last arriver's first read
    "slice_bytes": 65.7,  # partials of one CTA, written and read
}
ONESHOT: Mapping[str, float] = {
    "launch_us": 0.351,
    "smem_us": 0.414,
    "cluster": 308.0,
    "fill": 1800.0,
    "mma": 0.92,
    "mma_cluster": 1.1,
    "mma_smem": 12.2,
    "step": 12.8,
    "step_shared": 3.22,
    "latency": 159.0,
    "l2": 74.5,
    "beyond": 1.86,
    "store_staged": 35.3,
    "store_grouped": 38.7,
    "store_bulk": 34.6,
    "store_wait": 18.7,
    "pingpong_store": 1.3,
    "overlap": 1.13,
    "whole_waves": 0.724,
    "reduce": 224.0,
    "reduce_rank": 21.8,
    "reduce_bytes": 15.1,
    "fit_3": 0.882,
    "fit_4": 0.97,
    "fit_8": 0.926,
    "dram_gbps": 5070.0,
    "l2_mb": 34.5,
    "store_plain": 7.48,
}
SWAPAB: Mapping[str, float] = {
    "launch_us": 0.161,
    "smem_us": 0.158,
    "cluster": 438.0,
    "fill": 2560.0,
    "mma": 0.897,
    "mma_cluster": 1.1,
    "mma_smem": 21.1,
    "step": 4.87,
    "step_shared": 3.01,
    "latency": 1190.0,
    "l2": 224.0,
    "beyond": 12.6,
    "store_staged": 32.8,
    "store_grouped": 35.6,
    "store_bulk": 34.6,
    "store_wait": 18.6,
    "pingpong_store": 1.3,
    "overlap": 1.45,
    "whole_waves": 0.877,
    "reduce": 709.0,
    "reduce_rank": 22.5,
    "reduce_bytes": 16.3,
    "fit_3": 0.882,
    "fit_4": 0.898,
    "fit_8": 0.848,
    "dram_gbps": 4380.0,
    "l2_mb": 36.1,
}
WRITEBOUND: Mapping[str, float] = {
    "launch_us": 0.549,
    "smem_us": 0.0747,
    "cluster": 1370.0,
    "fill": 3020.0,
    "mma": 0.941,
    "mma_cluster": 1.1,
    "mma_smem": 16.0,
    "step": 15.4,
    "step_shared": 3.3,
    "latency": 553.0,
    "l2": 54.0,
    "beyond": 3.02,
    "store_staged": 34.3,
    "store_grouped": 35.8,
    "store_bulk": 35.4,
    "store_wait": 26.2,
    "pingpong_store": 1.51,
    "overlap": 0.849,
    "whole_waves": 0.826,
    "reduce": 500.0,
    "reduce_rank": 25.5,
    "reduce_bytes": 15.0,
    "fit_3": 0.882,
    "fit_4": 0.855,
    "fit_8": 0.811,
    "dram_gbps": 7020.0,
    "l2_mb": 33.2,
}
DIRECT: Mapping[str, float] = {
    "launch_us": 1.22,
    "latency": 189.0,
    "load": 0.412,  # a load instruction of a warp
    "load_nn": 3.8,  # the same for B in rows, relative
    "mma": 9.91,  # a tensor instruction, on a quarter of an SM
    "l1": 217.0,
    "l2": 46.4,
    "reduce": 54.3,
    "reduce_bytes": 96.4,
    "store": 33.9,
    "ragged": 16.8,
    "ragged_share": 1.04,
    "warp": 2.69,
    "wave": 38.6,
    "cluster": 383.0,
    "fixed": 0.937,  # time of a kernel compiled for one K
    "whole_waves": 0.51,
    "dram_gbps": 4760.0,
    "l2_mb": 40.0,
}
GEMV: Mapping[str, float] = {
    "launch_us": 1.97,
    "latency": 217.0,
    "load": 0.611,  # a load instruction of a warp
    "load_nn": 4.35,  # the same for B in rows, relative
    "mma": 3.43,
    "l1": 27.1,
    "l2": 277.0,
    "reduce": 84.2,
    "reduce_bytes": 192.0,
    "store": 44.8,
    "ragged": 18.0,
    "ragged_share": 1.03,
    "warp": 1.46,
    "wave": 53.2,
    "cluster": 861.0,
    "fixed": 0.95,  # time of a kernel compiled for one K
    "whole_waves": 0.324,
    "dram_gbps": 4260.0,
    "l2_mb": 34.3,
}
