"""What inline assembly may say: a list of allowed instructions and special registers.

Called by the static gate with the whole template of each asm statement, macros expanded and pieces
joined. PTX ISA 9.0 names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

#: First words of instructions. Not here: trap, brkpt, pmevent, call, alloca, tensormap, multimem,
#: discard, applypriority, texture and surface access, whatever no GEMM needs.
INSTRUCTIONS = re.compile(
    r"""abs | activemask | add | addc | and | atom | bar | barrier | bfe | bfi |
    bfind | bmsk | bra | brev | clz | cnot | copysign | cp | createpolicy
    | cvt | cvta | div | elect | ex2 | exit | fence | fma | fns | getctarank |
    griddepcontrol | isspacep | ld | ldmatrix | ldu | lg2 | lop3 | mad | madc | mapa | match |
    max | mbarrier | membar | min | mma | mov | movmatrix | mul | nanosleep | neg | not | or |
    popc | prefetch | prefetchu | prmt | rcp | red | redux | rem | ret | rsqrt | sad | selp |
    set | setmaxnreg | setp | shf | shfl | shl | shr | slct | sqrt | st | stmatrix | sub | subc
    | szext | tanh | testp | vote | wgmma | xor""",
    re.VERBOSE,
)
#: Where a thread stands, and nothing of time, of the SM, of its warp slots (%warpid names one, not
#: the warp's place in the block) or of the grid's history.
REGISTERS = re.compile(
    r"tid|ntid|ctaid|nctaid|laneid|lanemask_(eq|l[te]|g[te])|(n)?clusterid"
    r"|cluster_n?cta(id|rank)|is_explicit_cluster"
)
_CLOCKS = re.compile(r"clock|timer|^pm\d")
_TRAPS = ("trap", "brkpt", "pmevent")
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", '"': '"', "'": "'"}


def unquote(literal: str) -> str | None:
    """The characters of a plain string literal; None for prefixes and escapes beyond \\n \\t \\\\
    and quotes, which can spell a word that no scan sees."""
    if literal[:1] != '"':
        return None
    text = re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], "\0"), literal[1:-1], flags=re.DOTALL)
    return None if "\0" in text else text


def faults(template: str) -> Iterator[str]:
    """What a template says that it must not, each as "rule: what"."""
    template = re.sub(r"/\*.*?\*/|//[^\n]*", " ", template, flags=re.DOTALL)
    if "#" in template:
        yield "asm: a directive of the assembler's own preprocessor"
    for statement in template.split(";"):
        head = _head(statement)
        if head in _TRAPS:
            yield f"trap: {head}"
        elif head not in ("", ".reg") and not INSTRUCTIONS.fullmatch(head):
            yield f"asm: {head}"
    own = _registers(template)
    for name in re.findall(r"%([A-Za-z_][\w$]*)", template):
        if _CLOCKS.search(name):
            yield f"clock: %{name}"
        elif not REGISTERS.fullmatch(name) and not {name, name.rstrip("0123456789")} & own:
            yield f"special: %{name}"


def _head(statement: str) -> str:
    """First word of an instruction without its modifiers, or a directive; braces, labels and the
    predicate before it are left out."""
    text = re.sub(r"^([\s{}]|[\w$%]+\s*:(?!:))+", "", statement)
    text = re.sub(r"^@\s*!?\s*[\w$%]+\s*", "", text)
    word = re.match(r"\.?[^\s.]*", text)
    return word[0] if word else ""


def _registers(template: str) -> set[str]:
    """Names that the template declares, without %; of `%r<9>` the part before the number."""
    lists = re.findall(r"\.reg((?:\s*\.\w+)+)\s+([^;]*)", template)
    return {name for _, names in lists for name in re.findall(r"[A-Za-z_$][\w$]*", names)}
