"""A census of a kernel's instructions: tensor-core work by class and accumulator, memory, clocks.

`census` disassembles a cubin with nvdisasm, which comes as a pinned wheel, and keeps the result in
the cache under the cubin's hash; a quarter of a second the first time. Called by the binary gate
and for the facts of a build; never judges.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from packaging.version import Version

from hgemm_packs.generator.compile import grid_wait
from hgemm_packs.generator.compile.cache import cache_root, write_atomically

NVDISASM_PIN = "13.5.37"
_WHEEL = "nvidia-cuda-nvdisasm"
_FORMAT = 5  # of a kept census

#: Shapes of the warp-level instruction; the digits run together, so they cannot be split by rule.
_WARP_SHAPES = {
    "884": (8, 8, 4),
    "1684": (16, 8, 4),
    "1688": (16, 8, 8),
    "16816": (16, 8, 16),
    "16832": (16, 8, 32),
    "8816": (8, 8, 16),
    "8832": (8, 8, 32),
    "16864": (16, 8, 64),
}
_MMA = re.compile(r"[A-Z]*MMA")
_ELEMENTS = {"BF16": "bf16", "TF32": "tf32", "E4M3": "f8", "E5M2": "f8"}
_CONSTANT = re.compile(r"\bcx?\[(\w+)\]\[([^\]]*)\]")


class SassError(RuntimeError):
    """The disassembler is missing or another version."""


class Unreadable(SassError):
    """The disassembler cannot read a cubin."""


@dataclass(frozen=True, slots=True)
class Mma:
    """One form of tensor-core instruction and how often it stands in the code. `shape` is M, N, K
    of one instruction, None when the form is not known; for HGMMA one instruction is a warpgroup's,
    else a warp's."""

    opcode: str  # HMMA, HGMMA, IMMA, DMMA, QGMMA, ...
    shape: tuple[int, int, int] | None
    acc: str  # f32, f16, f64, s32, or "" when not known
    element: str
    sparse: bool
    count: int

    @property
    def flops(self) -> int:
        """Floating-point operations of all of them run once; 0 when the shape is not known."""
        m, n, k = self.shape or (0, 0, 0)
        return 2 * m * n * k * self.count


@dataclass(frozen=True, slots=True)
class Census:
    """`opcodes` count by first word (LDG, STS, SYNCS), `specials` the reads of special registers by
    name; `banks` are the constant banks that are read, with the places as they are written: "0x210"
    or "UR4+0x210". `early` is what of `upstream.UPSTREAM` stands in the text before the first wait
    for the grid ahead, `find_unwaited` what a thread can come to without such a wait."""

    instructions: int
    mma: tuple[Mma, ...]
    opcodes: Mapping[str, int]
    specials: Mapping[str, int]
    banks: Mapping[str, tuple[str, ...]]
    early: tuple[str, ...] = ()
    unwaited: tuple[str, ...] = ()

    def count(self, *words: str) -> int:
        """Instructions whose first word is one of `words`."""
        return sum(self.opcodes.get(word, 0) for word in words)

    def mma_count(self, opcode: str, acc: str) -> int:
        return sum(form.count for form in self.mma if (form.opcode, form.acc) == (opcode, acc))

    @property
    def clocks(self) -> list[str]:
        """The special registers read that tell the time."""
        return [name for name in self.specials if "CLOCK" in name or "TIMER" in name]

    def facts(self) -> dict[str, float]:
        """Numbers for a cost model and a report, each `sass_...`."""
        uniform = sum(n for word, n in self.opcodes.items() if re.match(r"U[A-Z]", word))
        counts = {
            "instructions": self.instructions,
            "hgmma_f32": self.mma_count("HGMMA", "f32"),
            "hgmma_f16": self.mma_count("HGMMA", "f16"),
            "hmma_f32": self.mma_count("HMMA", "f32"),
            "hmma_f16": self.mma_count("HMMA", "f16"),
            "mma_flops": sum(form.flops for form in self.mma),
            "uniform": uniform,
        }
        for name, words in MEMORY.items():
            counts[name] = self.count(*words)
        return {f"sass_{name}": float(value) for name, value in counts.items()}


#: Counts by kind: fact -> first words of the instructions.
MEMORY: Mapping[str, tuple[str, ...]] = {
    "ldg": ("LDG", "LD"),
    "stg": ("STG", "ST"),
    "lds": ("LDS",),
    "sts": ("STS",),
    "ldsm": ("LDSM",),
    "stsm": ("STSM",),
    "ldgsts": ("LDGSTS",),
    "tma_loads": ("UTMALDG", "UBLKCP"),
    "tma_stores": ("UTMASTG",),
    "atomics": ("ATOM", "ATOMG", "RED", "REDG", "UTMAREDG", "UBLKRED"),
    "shared_atomics": ("ATOMS", "REDS"),
    "local": ("LDL", "STL"),
    "barriers": ("BAR", "SYNCS", "WARPSYNC"),
    "branches": ("BRA", "BRX", "CALL"),
    "traps": ("BPT",),
    "shuffles": ("SHFL",),
}


@cache
def nvdisasm() -> Path:
    """The disassembler of the wheel. Raises SassError when it is absent or not the pinned one."""
    try:
        files = importlib.metadata.distribution(_WHEEL).files or []
        found = importlib.metadata.version(_WHEEL)
    except importlib.metadata.PackageNotFoundError:
        raise SassError(f"{_WHEEL}=={NVDISASM_PIN} is not installed") from None
    if Version(found) != Version(NVDISASM_PIN):
        raise SassError(f"counts need {_WHEEL}=={NVDISASM_PIN}, found {found}")
    for file in files:
        if file.name in ("nvdisasm", "nvdisasm.exe"):
            return Path(str(file.locate()))
    raise SassError(f"{_WHEEL} holds no nvdisasm")


def disassemble(cubin: bytes) -> list[dict[str, Any]]:
    """Every instruction of a cubin: {"opcode": ..., "operands": ...}. Raises SassError, Unreadable
    when the disassembler does not take the cubin."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(nvdisasm()), "-json", "-ndf", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unreadable(f"nvdisasm: {done.stderr.strip()[:500]}")
    _, functions = json.loads(done.stdout)
    return [one for function in functions for one in function["sass-instructions"]]


def _form(opcode: str) -> tuple[str, tuple[int, int, int] | None, str, str, bool]:
    """(opcode, shape, accumulator, element, sparse) of a tensor-core instruction as written, such
    as HGMMA.64x128x16.F32.BF16."""
    word, *rest = opcode.split(".")
    sparse = "SP" in rest
    shape: tuple[int, int, int] | None = None
    for token in rest:
        if re.fullmatch(r"\d+x\d+x\d+", token):
            m, n, k = (int(x) for x in token.split("x"))
            shape = (m, n, k)
        elif token.isdigit():
            shape = _WARP_SHAPES.get(token)
    kinds = [token for token in rest if token in ("F16", "F32")]
    if word in ("HMMA", "HGMMA", "QGMMA", "QMMA"):
        acc = kinds[0].lower() if kinds else ""
    else:
        acc = {"DMMA": "f64", "IMMA": "s32", "IGMMA": "s32", "BMMA": "s32", "BGMMA": "s32"}.get(
            word, ""
        )
    element = next((_ELEMENTS[token] for token in rest if token in _ELEMENTS), "")
    if word in ("HMMA", "HGMMA") and not element:
        element = "f16"
    return word, shape, acc, element, sparse


def _count(instructions: Sequence[Mapping[str, Any]]) -> Census:
    forms: Counter[str] = Counter()
    words: Counter[str] = Counter()
    specials: Counter[str] = Counter()
    banks: dict[str, set[str]] = {}
    for one in instructions:
        opcode, operands = str(one["opcode"]), str(one.get("operands", ""))
        word = grid_wait.word(one)
        words[word] += 1
        for bank, place in _CONSTANT.findall(operands):
            banks.setdefault(bank, set()).add(place)
        if _MMA.fullmatch(word):
            forms[opcode] += 1
        if word in ("S2R", "S2UR", "CS2R", "CS2UR"):
            specials[operands.split(",")[-1].strip()] += 1
    mma = tuple(Mma(*_form(opcode), count) for opcode, count in sorted(forms.items()))
    return Census(
        instructions=sum(words.values()),
        mma=mma,
        opcodes=dict(sorted(words.items())),
        specials=dict(sorted(specials.items())),
        banks={bank: tuple(sorted(places)) for bank, places in sorted(banks.items())},
        early=tuple(sorted(grid_wait.find_early(instructions))),
        unwaited=tuple(sorted(grid_wait.find_unwaited(instructions))),
    )


def census(cubin: bytes) -> Census:
    """The census of a cubin, from the cache when it was taken before. Raises SassError."""
    digest = hashlib.sha256(cubin).hexdigest()
    name = f"{digest}.{_FORMAT}.{NVDISASM_PIN}.json"
    path = cache_root() / "sass" / digest[:2] / name
    try:
        return _from_json(path.read_bytes())
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        taken = _count(disassemble(cubin))
        write_atomically(path, json.dumps(asdict(taken)).encode())
        return taken


def _from_json(data: bytes) -> Census:
    document = json.loads(data)
    forms = [
        Mma(**{**form, "shape": tuple(form["shape"]) if form["shape"] else None})
        for form in document.pop("mma")
    ]
    banks = {bank: tuple(places) for bank, places in document.pop("banks").items()}
    early, unwaited = tuple(document.pop("early")), tuple(document.pop("unwaited"))
    return Census(mma=tuple(forms), banks=banks, early=early, unwaited=unwaited, **document)
