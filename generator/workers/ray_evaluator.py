"""The evaluator of several hosts: one ray actor a GPU, wherever the cluster has one.

For runs that a single host is too slow for; needs the extra `ray`. Ray places and reaches the
processes, everything else is as on one host: a job whose actor or node is gone goes to another.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from hgemm_packs.generator.core.spec import DeviceFacts, Job, Reply, Status
from hgemm_packs.generator.workers.evaluators import START_S, TIMEOUT_S, gpu_lock, visible_gpu
from hgemm_packs.generator.workers.seats import Lost, SeatLost, Seats
from hgemm_packs.generator.workers.worker import Factory, answer


class RayEvaluator(Seats):
    """One actor for each of `count` GPUs, by default for all of the cluster.

    Connects to the cluster at `address`, unless this process is connected. `factory(index)` makes
    the device in the actor, which sees one GPU. `needs` are ray's options of an actor. Raises
    ValueError for a cluster without GPUs.
    """

    def __init__(
        self,
        factory: Factory,
        count: int | None = None,
        *,
        address: str = "auto",
        needs: Mapping[str, Any] | None = None,
        timeout_s: float = TIMEOUT_S,
        start_s: float = START_S,
    ) -> None:
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False)
        count = int(ray.cluster_resources().get("GPU", 0)) if count is None else count
        if not count:
            raise ValueError("the ray cluster has no GPU")
        options = {"num_gpus": 1} if needs is None else dict(needs)
        super().__init__(
            [_Actor(factory, index, options, timeout_s, start_s) for index in range(count)]
        )


class _Host:
    """What runs in the actor."""

    def __init__(self, factory: Factory, index: int) -> None:
        # Ray deals out the GPUs of its own jobs only.
        self._lock = gpu_lock(visible_gpu(0)) if ray.get_gpu_ids() else None
        self._device = factory(index)

    def facts(self) -> DeviceFacts:
        return self._device.facts

    def run(self, job: Job) -> Reply | str:
        """The reply, or the words of a device that is lost."""
        try:
            return answer(self._device, job)
        except Exception as error:
            return f"{type(error).__name__}: {error}"


class _Actor:
    """A seat on an actor."""

    def __init__(
        self, factory: Factory, index: int, needs: dict[str, Any], timeout_s: float, start_s: float
    ) -> None:
        self._factory, self._index, self._needs = factory, index, needs
        self._timeout_s, self._start_s = timeout_s, start_s
        self._actor: Any = None

    def prepare(self) -> None:
        """Nothing: an actor has its GPU to itself."""

    def start(self) -> DeviceFacts:
        self.stop()
        host = ray.remote(max_restarts=0, max_task_retries=0, **self._needs)(_Host)
        self._actor = host.remote(self._factory, self._index)
        try:
            facts: DeviceFacts = ray.get(self._actor.facts.remote(), timeout=self._start_s)
        except (GetTimeoutError, RayError) as error:
            self.stop()
            raise SeatLost(f"actor {self._index}: {_words(error)}") from error
        return facts

    def attempt(self, job: Job) -> Reply | Lost:
        began = time.monotonic()
        status = Status.LAUNCH
        try:
            found = ray.get(self._actor.run.remote(job), timeout=self._timeout_s)
            if isinstance(found, Reply):
                return found
            words = found
        except GetTimeoutError:
            status, words = Status.TIMEOUT, f"no answer in {self._timeout_s:g} s"
        except RayError as error:
            words = _words(error)
        self.stop()
        return Lost(status, words, time.monotonic() - began)

    def stop(self) -> None:
        """End the actor and its process, also in the midst of a job."""
        actor, self._actor = self._actor, None
        if actor is not None and ray.is_initialized():
            ray.kill(actor)


def _words(error: Exception) -> str:
    """The end of ray's message, where it says what happened."""
    return os.linesep.join(str(error).strip().splitlines()[-3:])
