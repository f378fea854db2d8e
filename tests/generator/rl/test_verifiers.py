"""The environment of the package verifiers, driven by its own machinery and a scripted model.

Needs the extra verifiers and uv, which verifiers starts its player with.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.rl.actions import task
from hgemm_packs.generator.rl.judges import RecordedJudge
from tests.generator.rl.scripted_player import serving

REPOSITORY = Path(__file__).resolve().parents[3]
RECORDING = REPOSITORY / "benchmarks" / "results" / "replay" / "h200.npz"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("verifiers")
    if shutil.which("uv") is None:
        pytest.skip("uv is not installed")
    monkeypatch.syspath_prepend(str(REPOSITORY / "packaging" / "environment"))
    monkeypatch.setenv("SCRIPTED_KEY", "none")
    module = __import__("hgemm_kernels")
    yield module.KernelEnv(
        module.KernelEnvConfig(
            taskset=module.KernelTasksetConfig(id="hgemm-kernels", recording=str(RECORDING))
        )
    )
    sys.modules.pop("hgemm_kernels", None)


def test_an_episode_is_paid_by_the_recording(environment: Any) -> None:
    from verifiers.v1.clients import EvalClientConfig, ModelContext

    judge = RecordedJudge.read(RECORDING)
    tasks = [*environment.taskset]
    assert [each.data.name for each in tasks] == [str(problem) for problem in judge.screens]
    problem = next(iter(judge.screens))
    best = judge.space.text(judge.screens[problem].optimum()[0])

    async def play(url: str) -> Any:
        client = EvalClientConfig(base_url=url, api_key_var="SCRIPTED_KEY")
        async with environment.serving():
            return await environment.run_episode(tasks[0], ModelContext("scripted", client))

    with serving(["rubbish", best]) as (url, asked):
        episode = asyncio.run(play(url))
    (trace,) = episode.traces
    won, lost = judge.judge(problem, best), judge.judge(problem, "rubbish")
    assert episode.ok and trace.rewards["kernel"].score == pytest.approx(
        (lost.reward + 0.4 * won.reward) / 1.4
    )
    assert trace.metrics == {
        "reward_of_turn_0": lost.reward,
        "reward_of_turn_1": pytest.approx(won.reward),
    }
    assert [message["content"] for message in asked[1]["messages"]] == [
        *(judge.space.rules(), task(problem), "rubbish", lost.words)
    ]
