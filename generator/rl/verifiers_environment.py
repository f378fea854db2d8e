"""Kernels as an environment of the package verifiers (extra `verifiers`): taskset and environment.

Its runners and trainers find both by the name of this module: --env.taskset.id
hgemm_packs.generator.rl.verifiers_environment. An episode is as everywhere: an action a turn, the
verdict as the next message of the user. Importing this needs verifiers.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

try:
    import verifiers.v1 as vf
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"this environment needs the extra verifiers ({error.name} is not installed)"
    ) from error

from hgemm_packs.generator.rl.actions import problem_of, row_of, task
from hgemm_packs.generator.rl.episode import TURNS, Episode
from hgemm_packs.generator.rl.judges import Judge, RecordedJudge

__all__ = ["KernelEnv", "KernelEnvConfig", "KernelTaskset", "KernelTasksetConfig"]


class KernelTasksetConfig(vf.TasksetConfig):  # type: ignore[misc]
    """`recording` is a file of recorded screens, whose problems are the tasks."""

    recording: str


class KernelData(vf.TaskData):  # type: ignore[misc]
    """`info` is the problem's row, and the recording that answers."""

    info: dict[str, Any]


class KernelTask(vf.Task[KernelData, vf.State, vf.TaskConfig]):  # type: ignore[misc]
    """A problem."""


class KernelTaskset(vf.Taskset[KernelTask, KernelTasksetConfig]):  # type: ignore[misc]
    """The problems of a recording."""

    def load(self) -> Iterator[KernelTask]:
        """In the order of the recording. Raises what `recording.load` raises."""
        judge = judge_of(self.config.recording)
        for problem in judge.screens:
            data = KernelData(
                name=str(problem),
                prompt=task(problem),
                system_prompt=judge.space.rules(),
                info={**row_of(problem), "recording": self.config.recording},
            )
            yield KernelTask(data, self.config.task)


class KernelEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    """`turns` of an episode at most. The player only talks, so it needs no box of its own."""

    player: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})
    turns: int = TURNS


class KernelEnv(vf.Env[KernelEnvConfig]):  # type: ignore[misc]
    """The judge answers as the user does; the episode's reward is the trace's."""

    async def run(self, task: KernelTask, agents: Any) -> None:
        """Play one problem."""
        info = task.data.info
        judge: Judge = judge_of(info["recording"])
        episode = Episode(judge, problem_of(info), self.config.turns)
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated:
                reply = episode.step(segment.last_reply.strip())
                if episode.over:
                    break
                segment = await interaction.turn(reply)
        interaction.trace.record_reward("kernel", episode.reward, 1.0)
        for turn, (_, judged) in enumerate(episode.turns):
            interaction.trace.record_metric(f"reward_of_turn_{turn}", judged.reward)


@functools.cache
def judge_of(recording: str) -> RecordedJudge:
    """One judge a file in this process."""
    return RecordedJudge.read(Path(recording))
