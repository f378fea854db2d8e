"""Whether kernels compute one problem at all, before they are timed on it.

Used by `devices.gpu`: each kernel is called once on the same operands, laid out anew where a kernel
before wrote over them, and its values are held against float64.
"""

from __future__ import annotations

import math

from hgemm_packs.generator.measure.values import Finding, sample_reference
from hgemm_packs.measure.operands import operands
from hgemm_packs.measure.replay import Arm
from hgemm_packs.measure.timing import torch_arm
from hgemm_packs.problem import Problem


class Admission:
    """Operands and reference of a problem on a device."""

    def __init__(self, problem: Problem, device: int, seed: int) -> None:
        self._problem, self._device, self._seed = problem, device, seed
        self._lay_out()

    def check(self, arm: Arm) -> Finding:
        """What one call gives. Raises whatever the arm raises."""
        finding = self._call_arm(arm)
        # Torch wrong too: a kernel before wrote over A or B.
        if finding.detail and self._call_arm(torch_arm(self._problem)).detail:
            self._lay_out()
            finding = self._call_arm(arm)
        return finding

    def _lay_out(self) -> None:
        self._one = operands(self._problem, self._device, seed=self._seed)[0]
        self._reference = sample_reference(self._problem, self._one, self._seed)

    def _call_arm(self, arm: Arm) -> Finding:
        one = self._one
        one.c.fill_(math.nan)
        arm(one.a, one.b, one.c)
        return self._reference.check(one.c)
