"""A GPU's host-wide lock for one job, waited for as long as somebody wants the job.

Called by the service around each job: the job's wall time begins when the GPU is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hgemm_packs.generator.store.filelock import LockHeld
from hgemm_packs.generator.workers.evaluators import gpu_lock, visible_gpu

LOOK_S = 0.5  # between two looks whether the job is still wanted


@contextmanager
def turn(device: str, wanted: Callable[[], bool]) -> Iterator[bool]:
    """Yields True with the lock of the GPU that `device` names ("gpu:1"), at once for a device that
    is none; False when the job is no longer wanted while another program has the GPU."""
    if not device.startswith("gpu"):
        yield True
        return
    gpu = visible_gpu(int(device.partition(":")[2] or 0))
    while wanted():
        try:
            lock = gpu_lock(gpu, wait_s=LOOK_S)
        except LockHeld:
            continue
        try:
            yield True
        finally:
            lock.close()
        return
    yield False
