"""The text of a kernel as mutation operators see it: a syntax tree of what is compiled of it.

`Code` finds places, `Change` says what stands there instead. Offsets are those of the text as the
builder renders it, in bytes. Nothing is compiled here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from tree_sitter import Language, Node, Parser

from hgemm_packs.generator.gates.source.preprocess import Token, preprocess

#: How a rendered source calls the kernel, a macro.
ENTRY = "HGP_SYMBOL"
#: Behind this function, the last of common/types.cuh, what a change needs of its own is put.
LAST_OF_TYPES = "pack2"

# What the grammar cannot read: macros that add parameters or arguments, attributes with arguments,
# and macros between the pieces of a string.
_ADDED = re.compile(
    rb"\bHGP_(LDC|ADDEND|WORKSPACE|BATCHES|TO_C_OF_TILE|GIVE_\w+)\b|\bHGP_(OUTPUT|OPERANDS|STRIDES)\b,?"
    rb"|(?m:^HGP_WGMMA\(.*$)|__(cluster_dims|maxnreg|align|launch_bounds)__\s*\([^()]*\)"
)
_IN_STRINGS = re.compile(rb'\bHGP_(TYPE|HINT|FETCH)\b|\bHGP_(IF|HINTED)\("[^"]*"\)')


@dataclass(frozen=True, slots=True)
class Change:
    """Text instead of what stands from `start` to `end`, and `helpers` that it calls."""

    start: int
    end: int
    text: str
    helpers: str = ""


@dataclass(frozen=True, slots=True)
class Function:
    """A function that the kernel may call, or the kernel itself."""

    name: str
    node: Node
    body: Node


@cache
def _parser() -> Parser:
    import tree_sitter_cuda

    return Parser(Language(tree_sitter_cuda.language()))


def walk(root: Node) -> Iterator[Node]:
    """A node and all below it, in the order of the text."""
    todo = [root]
    while todo:
        node = todo.pop()
        yield node
        todo += reversed(node.children)


class Code:
    """A rendered source. `functions` are those that the kernel may reach by their names."""

    def __init__(self, source: str) -> None:
        self.raw = source.encode()
        tokens = preprocess(source).tokens
        self._tree = _parser().parse(_readable(self.raw, {token.line for token in tokens}))
        self.functions = list(_reachable(self._tree.root_node, tokens, self))
        self.entry = next(each for each in self.functions if each.name == ENTRY)
        self.params = _parameters(tokens, self.line(self.entry.body.start_byte))

    def text(self, node: Node) -> str:
        """What stands at a node."""
        return self.raw[node.start_byte : node.end_byte].decode()

    def line(self, offset: int) -> int:
        """The line of an offset, from 1 on."""
        return self.raw.count(b"\n", 0, offset) + 1

    def function_at(self, offset: int) -> str:
        """The function that an offset is in; empty outside."""
        inside = [f for f in self.functions if f.node.start_byte <= offset < f.node.end_byte]
        return inside[-1].name if inside else ""

    def nodes(self, *types: str) -> Iterator[Node]:
        """Nodes of these types in the bodies of reachable functions."""
        for function in self.functions:
            for node in walk(function.body):
                if node.type in types:
                    yield node

    def calls(self, *names: str) -> Iterator[tuple[Node, list[Node]]]:
        """Calls of functions of these names, whatever they are members of, with their arguments."""
        for node in self.nodes("call_expression"):
            if called(self, node) in names:
                yield node, arguments(node)

    def statements(self, *names: str) -> Iterator[Node]:
        """Statements that are a call of one of these functions and nothing else."""
        for node, _ in self.calls(*names):
            parent = node.parent
            if parent is not None and parent.type == "expression_statement":
                yield parent

    def put(self, node: Node, text: str, helpers: str = "") -> Change:
        """`text` in place of a node."""
        return Change(node.start_byte, node.end_byte, text, helpers)

    def wrap(self, node: Node, before: str, after: str, helpers: str = "") -> Change:
        """A node between two texts."""
        return self.put(node, before + self.text(node) + after, helpers)

    def open_kernel(self, text: str, helpers: str = "") -> Change:
        """`text` as the kernel's first statement."""
        at = self.entry.body.start_byte + 1
        return Change(at, at, f" {text}", helpers)

    def behind_wait(self, text: str, helpers: str = "") -> Change:
        """`text` as the statement behind the kernel's wait for the grid ahead, where it has one."""
        for node, _ in self.calls("wait_for_upstream"):
            statement = node.parent
            if statement is None or self.function_at(node.start_byte) != self.entry.name:
                continue
            around = statement.parent
            if around is not None and around.type == "if_statement":
                statement = around
            return Change(statement.end_byte, statement.end_byte, f" {text}", helpers)
        return self.open_kernel(text, helpers)

    def apply(self, change: Change) -> str:
        """The text with a change."""
        raw = self.raw[: change.start] + change.text.encode() + self.raw[change.end :]
        if change.helpers:
            at = next((f.node.end_byte for f in self.functions if f.name == LAST_OF_TYPES), 0)
            raw = raw[:at] + b"\n" + change.helpers.encode() + b"\n" + raw[at:]
        return raw.decode()

    def diff(self, change: Change) -> list[str]:
        """The lines that a change touches, before ("-") and after ("+")."""
        before, after = self.raw.decode().splitlines(), self.apply(change).splitlines()
        found = difflib.unified_diff(before, after, n=0, lineterm="")
        return [line for line in found if not line.startswith(("---", "+++", "@@"))]


def called(code: Code, call: Node) -> str:
    """The name of what is called, without what it is a member of and without template arguments."""
    function = call.child_by_field_name("function")
    words = code.text(function) if function is not None else ""
    while "<" in words and words.endswith(">"):
        words = words[: _opening(words)]
    return re.split(r"::|\.|->|\s", words.strip())[-1]


def _opening(words: str) -> int:
    """Where the last pair of angle brackets opens."""
    depth = 0
    for at in range(len(words) - 1, -1, -1):
        depth += (words[at] == ">") - (words[at] == "<")
        if depth == 0:
            return at
    return 0


def arguments(call: Node) -> list[Node]:
    """The arguments of a call."""
    listed = call.child_by_field_name("arguments")
    return [each for each in listed.named_children if each.type != "comment"] if listed else []


def _readable(raw: bytes, lines: set[int]) -> bytes:
    """The text for the grammar, every byte where it was: lines that the preprocessor keeps."""
    kept = [
        line if number in lines else b" " * len(line)
        for number, line in enumerate(raw.split(b"\n"), start=1)
    ]
    text = _ADDED.sub(lambda match: b" " * len(match[0]), b"\n".join(kept))
    return _IN_STRINGS.sub(lambda match: b'"' + b" " * (len(match[0]) - 2) + b'"', text)


def _reachable(root: Node, tokens: list[Token], code: Code) -> Iterator[Function]:
    """Functions whose name stands in the kernel, in another such function or outside of all; none
    of a structure that nothing but itself names."""
    found = [
        Function(name, node, body)
        for node in walk(root)
        if node.type == "function_definition"
        and (body := node.child_by_field_name("body")) is not None
        and (name := _name(code, node))
        and _is_held(code, node, tokens)
    ]
    lines = [(code.line(f.node.start_byte), code.line(f.node.end_byte)) for f in found]
    words: list[set[str]] = [set() for _ in found]
    outside: set[str] = set()
    for token in tokens:
        if token.kind == "name":
            at = [i for i, (first, last) in enumerate(lines) if first <= token.line <= last]
            (words[at[-1]] if at else outside).add(token.text)
    seen: set[int] = set()
    named = {ENTRY}
    while new := {i for i, f in enumerate(found) if f.name in named} - seen:
        seen |= new
        named |= outside.union(*(words[i] for i in new))
    for i in sorted(seen):
        yield found[i]


def _is_held(code: Code, function: Node, tokens: list[Token]) -> bool:
    """Whether a function is of no structure, or of one that is named elsewhere."""
    holder: Node | None = function
    while holder is not None and holder.type not in ("struct_specifier", "class_specifier"):
        holder = holder.parent
    name = holder.child_by_field_name("name") if holder is not None else None
    if holder is None or name is None:
        return True
    text, first, last = code.text(name), code.line(holder.start_byte), code.line(holder.end_byte)
    return any(token.text == text and not first <= token.line <= last for token in tokens)


def _name(code: Code, function: Node) -> str:
    declarator = function.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = next(
            (each for each in declarator.named_children if each.type.endswith("declarator")), None
        )
    name = declarator.child_by_field_name("declarator") if declarator is not None else None
    return code.text(name) if name is not None else ""


def _parameters(tokens: list[Token], last: int) -> frozenset[str]:
    """The names of the kernel's parameters; `last` is the line that its body begins in."""
    kernel = next(i for i, token in enumerate(tokens) if token.text == "__global__")
    listed = False  # behind the kernel's name, and not within what is said of its launch
    names = set()
    for before, token in pairwise(tokens[kernel:]):
        if token.text == "{" and token.line >= last:
            break
        listed |= token.text == "(" and before.kind == "name" and not before.text.startswith("__")
        if listed and token.text in (",", ")") and before.kind == "name":
            names.add(before.text)
    return frozenset(names)
