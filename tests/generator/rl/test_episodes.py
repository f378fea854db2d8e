"""What answers are worth: by recordings, by the evaluator, over turns."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import median

import pytest

from hgemm_packs.generator.core.spec import DeviceFacts, Status
from hgemm_packs.generator.devices.replay import ReplayDevice
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.generator.families import family
from hgemm_packs.generator.rl import reward, trl_environment
from hgemm_packs.generator.rl.actions import row_of, task
from hgemm_packs.generator.rl.episode import OVER, Episode
from hgemm_packs.generator.rl.evaluator_judge import EvaluatorJudge
from hgemm_packs.generator.rl.judges import NOISE_FLOOR, RecordedJudge
from hgemm_packs.generator.rl.trl_environment import KernelEnvironment
from hgemm_packs.problem import Problem

REPLAY = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "replay"
PROBLEM = Problem(1024, 512, 1024, "nn", "f16")
REFUSED = "{"


@pytest.fixture(scope="module")
def judge() -> RecordedJudge:
    return RecordedJudge.read(REPLAY / "h200.npz")


def test_recorded_kernels_are_paid_by_their_medians(judge: RecordedJudge) -> None:
    screen = judge.screens[PROBLEM]
    best = min(median(us) for us in screen.baselines.values())
    for choice in judge.working(PROBLEM)[::37]:
        answer = judge.judge(PROBLEM, judge.space.text(choice))
        us = float(screen.us[screen.row[choice]])
        speedup = best / us
        gain = 0.0 if 1 <= speedup <= 1 + NOISE_FLOOR else math.log2(speedup)
        assert answer.status == "OK"
        assert (answer.us, answer.speedup) == (us, speedup)
        assert answer.reward == pytest.approx(min(max(0.1 + gain, -0.4), 1.0))
        assert sum(answer.parts.values()) == pytest.approx(answer.reward)
        assert answer.choice == choice.key


def test_what_failed_or_was_not_recorded_is_paid_as_the_evaluator_pays_it(
    judge: RecordedJudge,
) -> None:
    seen = set()
    for problem, screen in judge.screens.items():
        for choice, status in zip(screen.choices, screen.status, strict=True):
            if status is not Status.OK and family(choice.family).is_valid(choice.genome):
                answer = judge.judge(problem, judge.space.text(choice))
                assert (answer.status, answer.us) == (status.value, None)
                seen.add((status.value, answer.reward))
    assert seen == {("BUILD", -0.8)}
    choice = judge.working(PROBLEM)[0]
    bare = RecordedJudge({PROBLEM: judge.screens[PROBLEM]})
    del bare.screens[PROBLEM].row[choice]
    answer = bare.judge(PROBLEM, bare.space.text(choice))
    assert (answer.status, answer.reward) == ("UNMEASURED", -0.4)


def test_the_evaluator_on_the_recording_agrees(judge: RecordedJudge) -> None:
    """On the same kernels: refusals alike, and of the rest the order of rewards."""
    facts = DeviceFacts("H200", "sm_90a", 132, 50 << 20, peak_tflops=990.0, peak_gbps=4800.0)
    problem = Problem(2048, 512, 2048, "nt", "f16")
    device = ReplayDevice({problem: judge.screens[problem]}, facts, 0, 3)
    slow = EvaluatorJudge(Evaluator(device), judge.space)
    screen = judge.screens[problem]
    ranked = sorted(
        judge.working(problem),
        key=lambda c: screen.us[screen.row[c]],
    )
    found = []
    for choice in (ranked[0], ranked[600], ranked[-1]):
        text = judge.space.text(choice)
        here, there = judge.judge(problem, text), slow.judge(problem, text)
        assert there.status in ("OK", "SLOWER", "NOISE") and here.choice == there.choice
        assert there.us == pytest.approx(here.us, rel=1e-3)
        assert there.reward <= here.reward + 0.02  # the evaluator pays a lower bound
        found.append(there.reward)
    assert found == sorted(found, reverse=True) and found[0] > found[2] == -0.4
    assert slow.judge(problem, REFUSED) == judge.judge(problem, REFUSED)
    text = judge.space.text(ranked[0])
    wrong = "PARSE: a kernel of sm90_direct was asked for, not of sm90_wgmma"
    for each in (judge, slow):
        assert each.judge(problem, text, "sm90_direct").words == wrong


def test_turns_are_paid_for_those_that_follow() -> None:
    assert reward.returns([-1.0, 0.5, 0.25]) == pytest.approx([-0.76, 0.6, 0.25])
    assert reward.episode_reward([0.3]) == 0.3
    assert reward.episode_reward([0.3, 0.3, 0.3]) == pytest.approx(0.3)
    assert reward.episode_reward([-1.0, 0.4]) == pytest.approx(-0.84 / 1.4)
    assert reward.episode_reward([]) == -1.0
    assert reward.advantages([0.5]) == [0.0]
    assert reward.advantages([0.4, 0.1, 0.1]) == pytest.approx([0.3, -0.15, -0.15])


def test_an_episode_ends_after_its_turns_and_keeps_its_lines(judge: RecordedJudge) -> None:
    episode = Episode(judge, PROBLEM, 2)
    best = judge.space.text(judge.screens[PROBLEM].optimum()[0])
    first = episode.step(REFUSED)
    second = episode.step(best)
    assert episode.step(best) == OVER and len(episode.turns) == 2
    won = judge.judge(PROBLEM, best)
    assert second == won.words and episode.reward == pytest.approx((-1 + 0.4 * won.reward) / 1.4)
    lines = episode.lines(model="m", group="g")
    assert [line["messages"][2:] for line in lines] == [
        [],
        [{"role": "assistant", "content": REFUSED}, {"role": "user", "content": first}],
    ]
    assert [line["return"] for line in lines] == pytest.approx([-1 + 0.4 * won.reward, won.reward])
    assert [line["verdict"] for line in lines] == ["PARSE", "OK"]
    assert json.loads(json.dumps(lines)) == lines and lines[1]["source"] == won.choice


def test_the_environment_of_trl_is_an_episode(judge: RecordedJudge) -> None:
    environment = trl_environment.factory(judge, 1)()
    assert isinstance(environment, KernelEnvironment)
    with pytest.raises(RuntimeError, match="reset comes before propose"):
        environment.propose("sm90_direct", {})
    best = json.loads(judge.space.text(judge.screens[PROBLEM].optimum()[0]))
    asked = environment.reset(**row_of(PROBLEM), prompt=[], only="sm90_wgmma")
    assert asked == task(PROBLEM, "sm90_wgmma") and environment.get_reward() == -1.0
    words = environment.propose(**best)
    assert words == judge.judge(PROBLEM, json.dumps(best)).words
    assert environment.get_reward() == judge.judge(PROBLEM, json.dumps(best)).reward
    assert environment.reset(**row_of(PROBLEM)) == task(PROBLEM)
    assert environment.get_reward() == -1.0
