"""The words that every part of the generator shares: choice, job, reply, verdict.

A strategy proposes choices, the build service compiles them, a device runs jobs on the result and
answers with replies; the store keeps all four. Nothing here touches a compiler or a GPU.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any, Final, Protocol

from hgemm_packs import profiles
from hgemm_packs.generator.families import Genome, family
from hgemm_packs.problem import Problem


class Status(str, Enum):
    """What became of a candidate: a closed list, in the order in which things can fail."""

    OK = "OK"
    PARSE = "PARSE"  # not a genome, not a launch record
    STATIC = "STATIC"  # the source uses what no kernel needs
    BUILD = "BUILD"  # the compiler refused it, or it spills or serialises
    DATAFLOW = "DATAFLOW"  # operands or sums go where they must not
    COVERAGE = "COVERAGE"  # a comparison on sizes that no problem takes both ways
    BINARY = "BINARY"  # the cubin is not what the record declares
    LAUNCH = "LAUNCH"  # the driver refused it, or its context was lost
    TIMEOUT = "TIMEOUT"
    NUMERIC = "NUMERIC"  # wrong values, guards touched, runs that differ
    SANITIZER = "SANITIZER"
    HACK = "HACK"  # faster than the machine: quarantined
    SLOWER = "SLOWER"  # correct, but no win
    NOISE = "NOISE"  # a win inside the noise floor


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one gate says of one kernel; `detail` is empty when it passed."""

    gate: str
    status: Status
    detail: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return self.status is Status.OK


@dataclass(frozen=True, slots=True)
class Choice:
    """A family and a genome, hashable; `of` makes one, `genome` gives the genes back."""

    family: str
    genes: tuple[tuple[str, int | str | bool], ...]

    @classmethod
    def of(cls, family_name: str, genome: Genome) -> Choice:
        return cls(family_name, tuple(sorted(genome.items())))

    @property
    def genome(self) -> Genome:
        return dict(self.genes)

    @property
    def key(self) -> str:
        """sha256 of the canonical JSON: what the store files a candidate under."""
        text = json.dumps([self.family, dict(self.genes)], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def name(self) -> str:
        """Name and symbol of the kernel it makes. Raises KeyError for an unknown family."""
        return family(self.family).kernel_name(self.genome)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A choice with its lineage: who proposed it, by which operator, from which parents (keys)."""

    choice: Choice
    proposer: str
    operator: str = ""
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a strategy is told: `us` is the screened time, infinite unless `status` is OK."""

    proposal: Proposal
    status: Status
    us: float
    facts: Mapping[str, float] = field(default_factory=dict)  # registers, shared bytes, SASS counts


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A built kernel on its way to a device: every manifest field but offset and size, the cubin,
    and what the compiler said. `proof` is the verdict of the numeric gate that came with it."""

    fields: Mapping[str, Any]
    cubin: bytes
    facts: Mapping[str, float] = field(default_factory=dict)
    proof: Verdict | None = field(default=None, compare=False)

    @property
    def id(self) -> str:
        return str(self.fields["id"])


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """The machine that measured. `peak_gbps` is that of its best stream as measured; `peak_tflops`
    what its tensor cores do at the top clock it reports, for a kernel may beat the best GEMM of a
    library honestly. See `measure.ceilings`. The last two are what a table's profile has of it
    (`hgemm_packs.profiles`). Zero is unknown."""

    name: str
    arch: str
    sm_count: int
    l2_bytes: int
    uuid_hash: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    peak_tflops: float = 0.0
    peak_gbps: float = 0.0
    theoretical_mem_bw_gbps: float = 0.0
    power_limit_w: float = 0.0


#: Facts that early runs did not record, and by how much two GPUs of one kind may differ in them.
TOLERANCES: Final = {
    "theoretical_mem_bw_gbps": profiles.BANDWIDTH_TOLERANCE,
    "power_limit_w": profiles.POWER_TOLERANCE,
}


def conditions(facts: DeviceFacts) -> DeviceFacts:
    """What figures depend on, and every run has recorded: the kind of GPU and its libraries; which
    one of several it was, and what its ceilings are, makes no difference."""
    unknown = dict.fromkeys(("peak_tflops", "peak_gbps", *TOLERANCES), 0.0)
    return replace(facts, uuid_hash="", **unknown)  # type: ignore[arg-type]


def same(a: DeviceFacts | None, b: DeviceFacts) -> bool:
    """Whether figures of both may stand in one table."""
    if a is None or conditions(a) != conditions(b):
        return False
    pairs = ((getattr(a, name), getattr(b, name), most) for name, most in TOLERANCES.items())
    return all(not x or not y or profiles.is_near(x, y, most) for x, y, most in pairs)


def known_facts(facts: DeviceFacts) -> dict[str, Any]:
    """The facts as plain values, without those of TOLERANCES that are unknown: what is kept of runs
    stays what it was before these were recorded."""
    return {k: v for k, v in asdict(facts).items() if v or k not in TOLERANCES}


#: The two states of the caches that a win must hold in.
PROTOCOLS: Final = ("hot", "cold")

#: The arm that runs where a table names no kernel: what a kernel gains for its callers, and what
#: decides whether a table names it, is what it gains on this one.
FALLBACK: Final = "torch"

#: screen: hot, a few samples a kernel, values checked. behind: the same, each call launched with
#: programmatic dependent launch behind the one before. race: hot and cold, losers dropped while it
#: runs. finals, confirm: hot and cold against torch and tuned cuBLASLt. gate: the numeric gate.
#: noise: torch against itself. ceilings: what the roofline veto divides by.
JOB_KINDS = ("screen", "behind", "race", "finals", "confirm", "gate", "noise", "ceilings")


class DeviceLost(RuntimeError):
    """The CUDA context is gone, and its process with it: only a new device will do. The message
    names the kernel that ran last, where one did."""


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of exclusive work for one GPU."""

    kind: str
    problem: Problem | None
    kernels: tuple[CompiledKernel, ...]
    seed: int


@dataclass(frozen=True, slots=True)
class Result:
    """One kernel's part of a reply. `samples`: protocol -> us, one per block or replay."""

    status: Status
    samples: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    detail: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer to a job: results by kernel id, the baselines' samples ("torch", "cublaslt") by
    protocol, and what it cost. `evidence` holds clocks, power, noise bounds or ceilings; `device`,
    who answered, is filled in by the evaluator.

    A job that failed through none of its kernels, as for want of memory, has the words of it as the
    evidence "failed"; kernels without a result are neither right nor wrong."""

    results: Mapping[str, Result]
    baselines: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    gpu_seconds: float = 0.0
    device: DeviceFacts | None = None


class Device(Protocol):
    """One GPU, real, simulated or replayed; used by one worker at a time."""

    @property
    def facts(self) -> DeviceFacts: ...

    def run(self, job: Job) -> Reply:
        """Do a job. Failures of a kernel are results, one of the job as a whole is evidence; an
        exception means the device is lost."""
        ...
