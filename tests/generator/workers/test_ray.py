"""The ray evaluator on a cluster of several nodes on this host: actors and nodes may die."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")

from ray.cluster_utils import Cluster  # noqa: E402

from hgemm_packs.generator.core.spec import Job, Status  # noqa: E402
from hgemm_packs.generator.store.run_folder import Store  # noqa: E402
from hgemm_packs.generator.workers.evaluators import Inline  # noqa: E402
from hgemm_packs.generator.workers.ray_evaluator import RayEvaluator  # noqa: E402
from hgemm_packs.generator.workers.seats import DevicesLost  # noqa: E402
from tests.generator.fake_device import FakeDevice, Make, broken  # noqa: E402
from tests.generator.run import killed_run  # noqa: E402
from tests.generator.store.sample_store import PROBLEMS, choices, kernel  # noqa: E402

SIMULATED = {"num_cpus": 0, "resources": {"simulated": 1}}
KERNELS = [kernel(choice) for choice in choices(4)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without devices, and two nodes with one each."""
    small = {"object_store_memory": 80 << 20, "num_cpus": 0, "num_gpus": 0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        made = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
        nodes = [made.add_node(**small, resources={"simulated": 1}) for _ in range(2)]
        ray.init(address=made.address, log_to_driver=False)
        yield made, nodes
        ray.shutdown()
        made.shutdown()


def test_actors_answer_and_the_culprit_is_found(cluster: Any) -> None:
    job = Job("screen", PROBLEMS[0], tuple(KERNELS), 7)
    right = FakeDevice().run(job)
    with RayEvaluator(Make({KERNELS[2].id: "crash"}), 2, needs=SIMULATED) as evaluator:
        assert evaluator.facts().name == "Fake 1"
        reply = evaluator.submit(job).result(60)
    for id_, result in reply.results.items():
        if id_ == KERNELS[2].id:
            assert result.status is Status.LAUNCH
        else:
            assert result.samples == right.results[id_].samples
    assert reply.device is not None and len(reply.results) == 4


def test_fresh_and_killed_actors(cluster: Any) -> None:
    job = Job("noise", PROBLEMS[0], (), 7)
    with RayEvaluator(Make(), 1, needs=SIMULATED) as evaluator:
        first = evaluator.submit(job).result(60).evidence["pid"]
        os.kill(first, signal.SIGKILL)
        second = evaluator.submit(job).result(60).evidence["pid"]
        evaluator.fresh()
        third = evaluator.submit(job).result(60).evidence["pid"]
    assert len({first, second, third}) == 3
    with (
        RayEvaluator(broken, 1, needs=SIMULATED) as evaluator,
        pytest.raises(DevicesLost, match="no device 0"),
    ):
        evaluator.facts()


def test_a_run_outlives_a_node(cluster: Any, tmp_path: Path) -> None:
    """Half of the devices go in the middle of the search; nothing is lost, nothing done twice."""
    made, nodes = cluster
    whole = killed_run.run(tmp_path / "whole", Inline(FakeDevice()))
    (tmp_path / "jobs").mkdir()
    make = Make(log=tmp_path / "jobs", sleep_s=0.01)
    with RayEvaluator(make, 2, needs=SIMULATED, start_s=5.0) as evaluator:
        until = time.monotonic() + 30
        while list(evaluator._generations) != [0, 0]:  # both are up
            assert time.monotonic() < until
            time.sleep(0.01)
        node = threading.Timer(0.5, lambda: made.remove_node(nodes[1], allow_graceful=False))
        node.start()
        summary = killed_run.run(tmp_path / "run", evaluator)
        node.join()
    assert (summary.confirmed, summary.speedup) == (whole.confirmed, pytest.approx(whole.speedup))
    with (
        Store(tmp_path / "run", readonly=True) as store,
        Store(tmp_path / "whole", readonly=True) as right,
    ):
        found, expected = (
            Counter((job.kind, job.problem, k) for job in each.finished_jobs() for k in job.kernels)
            for each in (store, right)
        )
        assert found == expected
        devices = Counter(job.reply.evidence.get("index") for job in store.finished_jobs("screen"))
        assert set(devices) == {0, 1}
        assert store.refused_kernels() == {}
