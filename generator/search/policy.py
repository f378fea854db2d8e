"""A policy over kernels: softmax of a logit a gene value, linear in the shape, on top of the prior.
Trained by REINFORCE on its own proposals, or on any history.

All problems share its weights, so it generalises to shapes that it has not seen. NumPy only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Outcome, Proposal
from hgemm_packs.generator.search.analytic.features import PLACES, Array, Places, shape
from hgemm_packs.generator.search.history import History, Told, draws
from hgemm_packs.generator.search.prior import Rows, rows_of
from hgemm_packs.problem import Problem

BETA = 24.0  # logits that a doubling of the prior's time costs
WORST = -2.0  # reward of a failure, and of four times the best
RATE = 0.7
ENTROPY = 0.02
CLIP = 5.0  # norm of one group's gradient
#: Fit to a history: steps of gradient ascent with momentum, pull of the weights to zero.
STEPS = 120
MOST_TIMES = 4000
FIT_RATE = 1.0
MOMENTUM = 0.9
DECAY = 0.1

Mask = NDArray[np.bool_]


def leave_one_out(rewards: Array) -> Array:
    """Each reward less the mean of the others: an advantage whose baseline does not depend on the
    reward itself, so that the gradient stays unbiased. A group of one has none."""
    if len(rewards) < 2:
        return np.zeros(len(rewards))
    advantages: Array = (rewards - rewards.mean()) * len(rewards) / (len(rewards) - 1)
    return advantages


class Policy:
    """Weights: a row a gene value, a column a number of the shape. Zero weights are the prior."""

    def __init__(self) -> None:
        self.weights: Array = np.zeros((len(PLACES), len(shape(Problem(64, 64, 64, "nt", "f16")))))

    def logits(self, rows: Rows) -> Array:
        """One a row, up to a constant."""
        scores = rows.table.gather(self.weights @ shape(rows.problem)) - BETA * rows.prior
        return np.asarray(scores - scores.max())

    def probabilities(self, rows: Rows, allowed: Mask) -> Array:
        """Of each row, zero where not allowed."""
        logits = np.where(allowed, self.logits(rows), -np.inf)
        shares = np.exp(logits - logits.max())
        return np.asarray(shares / shares.sum())

    def sample(self, rows: Rows, allowed: Mask, n: int, rng: np.random.Generator) -> list[int]:
        """Up to `n` distinct allowed rows, drawn one after the other."""
        at = np.flatnonzero(allowed)
        noisy = self.logits(rows)[at] + rng.gumbel(size=len(at))
        return [int(i) for i in at[np.argsort(-noisy, kind="stable")[:n]]]

    def gradient(self, rows: Rows, allowed: Mask, picks: Sequence[int], rewards: Array) -> Array:
        """REINFORCE's estimate of the slope of the expected reward, of one group of draws."""
        push = leave_one_out(rewards) / len(rewards)
        pull = -push.sum() * self.probabilities(rows, allowed)
        np.add.at(pull, list(picks), push)
        slope: Array = np.outer(rows.table.scatter(pull), shape(rows.problem)).astype(np.float64)
        return slope

    def entropy_gradient(self, rows: Rows, allowed: Mask) -> Array:
        """Slope of the entropy of `probabilities`, in nats."""
        share = self.probabilities(rows, allowed)
        logs = np.log(np.maximum(share, 1e-300))
        pull = -share * (logs - share @ logs)
        slope: Array = np.outer(rows.table.scatter(pull), shape(rows.problem)).astype(np.float64)
        return slope

    def reinforce(self, rows: Rows, allowed: Mask, picks: Sequence[int], rewards: Array) -> None:
        """One step up."""
        slope = self.gradient(rows, allowed, picks, rewards)
        slope += ENTROPY * self.entropy_gradient(rows, allowed)
        self.weights += RATE * slope * min(1.0, CLIP / max(float(np.linalg.norm(slope)), 1e-12))

    def fit(self, history: History, seed: int = 0) -> None:
        """Start anew and learn from all that was told, whoever proposed it: among a problem's told
        choices the fast ones should be likely, at the policy's own temperature. Concave, and the
        order of telling does not matter."""
        listed = history.sample(MOST_TIMES, seed)
        self.weights = np.zeros_like(self.weights)
        if not listed:
            return
        hot, x, base, wanted, starts = _lessons(listed)
        counts = np.diff(np.append(starts, len(hot)))
        speed = np.zeros_like(self.weights)
        for _ in range(STEPS):
            logits = np.einsum("rf,rf->r", hot @ self.weights, x) + base
            logits -= np.repeat(np.maximum.reduceat(logits, starts), counts)
            share = np.exp(logits)
            share /= np.repeat(np.add.reduceat(share, starts), counts)
            slope = hot.T @ ((wanted - share)[:, None] * x) / len(listed) - DECAY * self.weights
            speed = MOMENTUM * speed + slope
            self.weights = self.weights + FIT_RATE * (1 - MOMENTUM) * speed

    def state(self) -> dict[str, Any]:
        """What `load` takes; JSON."""
        return {"weights": self.weights.tolist()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over a state. Raises ValueError when it is of other genes or shapes."""
        weights = np.array(state["weights"], dtype=float)
        if weights.shape != self.weights.shape:
            raise ValueError(f"weights are {weights.shape}, not {self.weights.shape}")
        self.weights = weights


def _lessons(listed: Sequence[Told]) -> tuple[Array, Array, Array, Array, Places]:
    """Timed choices of all problems below each other: gene values, shape, the prior's logit, the
    share that each should have of its problem; and where the problems start."""
    hot, x, base, wanted, starts = [], [], [], [], [0]
    for told in listed:
        choices, log_us = told.front()
        rows = Rows(choices, told.problem)
        share = np.exp(-BETA * (log_us - log_us.min()))
        hot.append(rows.table.hot())
        x.append(np.tile(shape(told.problem), (len(choices), 1)))
        base.append(-BETA * rows.prior)
        wanted.append(share / share.sum())
        starts.append(starts[-1] + len(choices))
    stacked = [np.concatenate(part) for part in (hot, x, base, wanted)]
    return stacked[0], stacked[1], stacked[2], stacked[3], np.array(starts[:-1])


class PolicySearch:
    """Draws from the policy; every group of its own draws that it is told trains it."""

    name = "policy"

    def __init__(self, seed: int) -> None:
        self.policy = Policy()
        self._seed = seed
        self._history = History()

    def ask(self, space: Space, n: int) -> list[Proposal]:
        told = self._history.of(space.problem)
        rows = rows_of(space)
        rng = np.random.default_rng(draws(self._seed, told).getrandbits(64))
        allowed = rows.open(told)
        fine = allowed & (self._history.penalty(rows.table) < 1)
        picks = self.policy.sample(rows, fine, n, rng)
        picks += self.policy.sample(rows, allowed & ~fine, n - len(picks), rng)
        return [Proposal(rows.choices[i], self.name, "policy") for i in picks]

    def tell(self, space: Space, outcomes: Sequence[Outcome]) -> None:
        rows, told = rows_of(space), self._history.of(space.problem)
        allowed = rows.open(told)
        self._history.add(space.problem, outcomes)
        best = self._history.of(space.problem).best_us
        group = {
            rows.row[o.proposal.choice]: o.us
            for o in outcomes
            if o.proposal.proposer == self.name and o.proposal.choice in rows.row
        }
        picks = [i for i in group if allowed[i]]
        if len(picks) > 1 and best < np.inf:
            slower = np.log2([max(group[i], best) / best for i in picks])
            rewards = np.maximum(WORST, -slower)
            self.policy.reinforce(rows, allowed, picks, rewards)


def make(seed: int) -> PolicySearch:
    """A policy search that knows the prior and nothing else."""
    return PolicySearch(seed)
