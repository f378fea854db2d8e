"""Static gate: does a source use only what a GEMM kernel needs.

Works on the expanded text (`preprocess`), on its syntax tree and on every word of the raw text,
branches that are switched off included. Called for foreign sources before they are compiled; the
binary gate proves on the cubin what is checked here by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any

from tree_sitter import Language, Node, Parser, Query, QueryCursor

from hgemm_packs.generator.compile.compiler import expand_includes
from hgemm_packs.generator.core import collector
from hgemm_packs.generator.core.spec import Status, Verdict
from hgemm_packs.generator.gates.source import ptx
from hgemm_packs.generator.gates.source.preprocess import Hidden, Token, TokenizedSource, preprocess

#: Names that begin with two underscores: qualifiers, and what the compiler offers to a kernel.
_RESERVED = re.compile(
    r"""__(global|device|host|shared|constant|forceinline|noinline|inline|restrict|grid_constant
    |launch_bounds|cluster_dims|maxnreg|align)__ | __restrict | __VA_ARGS__ | __inline
    | __(asm|volatile)(__)? | __CUDA_ARCH__ | __CUDACC(_RTC)?__ | __cplusplus
    | __sync(threads|warp)(_\w+)? | __(shfl|match|reduce)_\w+ | __(ballot|any|all)_sync
    | __activemask | __cvta_\w+ | __is(Global|Shared|Local|Constant)
    | __(byte_perm|brev|clz|ffs|popc|sad|usad)(ll)? | __funnelshift_\w+ | __u?mul(24|hi)
    | __u?mul64hi | __(ld|st)(g|ca|cg|cs|cv|lu|wb|wt) | __threadfence(_block)? | __nanosleep
    | __\w+_as_\w+ | __(float|double|int|uint|ll|ull|half|bfloat16)2\w+_r[nzud]
    | __f(add|sub|mul|div|maf|ma|rcp|sqrt)_r[nzud] | __f(dividef|rsqrt_rn) | __saturatef
    | __(exp|log|cos|sin|pow)\d*f | __half_\w+ | __builtin_(assume(_aligned)?|expect|unreachable)
    | __v(add|sub|max|min|abs|set|cmp)\w+ | __assume""",
    re.VERBOSE,
)
#: What a word that is refused is refused for; the first that matches.
_RULES: Sequence[tuple[str, re.Pattern[str]]] = (
    ("clock", re.compile(r"(?i)_*clock(64|_?hi|_?lo)?|_*global_?timer\w*|__\w*(clock|timer)\w*")),
    ("trap", re.compile(r"assert|__\w*(trap|brkpt|assert|prof_trigger)\w*|abort|exit")),
    ("print", re.compile(r"_*v?f?s?n?printf\w*|puts|putchar")),
    ("heap", re.compile(r"_*(malloc|calloc|realloc|free|alloca)|__builtin_alloca\w*|new|delete")),
    ("call", re.compile(r"cuda[A-Z]\w*|cu[A-Z][a-z]\w*|__nv_\w+|__cuda\w+|__nvvm_\w+")),
    ("global", re.compile(r"__managed__|thread_local|__nv_tex\w*")),
    ("preprocessor", re.compile(r"_Pragma|__COUNTER__|__has_\w+|__(LINE|FILE|DATE|TIME)__")),
    ("reserved", re.compile(r"__\w+")),
)
#: Words of these rules are also names that a kernel may give to its own things: refused as calls.
_CALLED_ONLY = re.compile(r"exit|free|abort|puts|putchar|cu[A-Z][a-z]\w*")
_BEFORE_CALLS = ("return", "else", "do", "throw")
#: Nodes of the syntax tree that rules are on.
_JUDGED = ("gnu_asm_expression", "declaration", "field_declaration")
_CONSTRAINT = re.compile(r'"[=+]?&?[hrlqfdnb]"')

LONGEST = 1 << 19  # characters of a source; ours have up to 2^15


@cache
def _language() -> Language:
    import tree_sitter_cuda

    return Language(tree_sitter_cuda.language())


@collector.paused
def check(source: str, fields: Mapping[str, Any]) -> Verdict:
    """Verdict on a source text, whose own includes may or may not stand in place already, against
    the symbol that its record declares. `detail` names each broken rule with its line."""
    if len(source) > LONGEST:
        return Verdict("static", Status.STATIC, f"size: over {LONGEST} characters")
    try:
        read = preprocess(expand_includes(source))
    except (Hidden, RecursionError) as error:
        detail = str(error) if isinstance(error, Hidden) else "preprocessor: nested too deep"
        return Verdict("static", Status.STATIC, detail)
    root = _tree(read)
    found = [*_words(read.raw), *_words(read.tokens), *_syntax(root, _asm_words(read.tokens))]
    found += _entries(read.tokens, str(fields["symbol"]))
    found = list(dict.fromkeys(found))
    status = Status.STATIC if found else Status.OK
    # What the grammar cannot read is left to the compiler and to the binary gate, but told.
    evidence = {"tokens": len(read.tokens), "asm": _asm_words(read.tokens)}
    evidence["unread"] = root.has_error
    return Verdict("static", status, "; ".join(found), evidence)


def _words(tokens: Sequence[Token]) -> Iterator[str]:
    """Names that no kernel needs, wherever they stand, and launches."""
    for i, token in enumerate(tokens):
        if token.text == "<<<":
            yield f"launch: a kernel starts a kernel, line {token.line}"
        if token.text == "mutable" and tokens[i - 1].text != ")":  # of a lambda it is harmless
            yield f"global: mutable, line {token.line}"
        if token.kind == "name":
            rule = _rule_against(token.text)
            if rule is not None and not _is_own(tokens, i):
                yield f"{rule}: {token.text}, line {token.line}"


@lru_cache(maxsize=1 << 16)
def _rule_against(word: str) -> str | None:
    """What a word is refused for, None where it may stand."""
    if _RESERVED.fullmatch(word):
        return None
    return next((rule for rule, words in _RULES if words.fullmatch(word)), None)


def _is_own(tokens: Sequence[Token], i: int) -> bool:
    """Whether a word of a rule names something of the kernel's own here."""
    word, after = tokens[i].text, tokens[i + 1].text if i + 1 < len(tokens) else ""
    before = tokens[i - 1] if i else None
    if before is not None and (
        before.text in (".", "->") or (before.text, word) == ("=", "delete")
    ):
        return True
    if not _CALLED_ONLY.fullmatch(word):
        return False
    declared = before is not None and before.kind == "name" and before.text not in _BEFORE_CALLS
    return declared or after != "("


def _entries(tokens: Sequence[Token], symbol: str) -> Iterator[str]:
    """Kernels but the one declared."""
    names = []
    for i, token in enumerate(tokens):
        if token.text == "__global__":
            names.append(_declared_name(tokens[i + 1 :]))
    if not names:
        yield "entry: no __global__ function"
    for name in names:
        if name != symbol:
            yield f"entry: {name or 'one without a name'}, declared is {symbol}"


def _declared_name(tokens: Sequence[Token]) -> str:
    """The first name before a parenthesis that is no attribute's."""
    for token, following in pairwise(tokens):
        if following.text == "(" and token.kind == "name" and not token.text.startswith("__"):
            return token.text
    return ""


def _asm_words(tokens: Sequence[Token]) -> int:
    return sum(token.text in ("asm", "__asm", "__asm__") for token in tokens)


def _tree(read: TokenizedSource) -> Node:
    # Attributes that the grammar does not know, and that hide nothing.
    text = re.sub(r"__(cluster_dims|maxnreg|align)__\s*\([^()]*\)", _blank, read.text())
    return Parser(_language()).parse(text.encode()).root_node


def _syntax(root: Node, statements: int) -> Iterator[str]:
    """Rules on the syntax tree: what is no word but a construct. `statements` of asm there are."""
    read = 0
    found = _nodes(root, _JUDGED)
    constants = _constants([node for node in found if node.type == "declaration"])
    if constants:
        found = _nodes(root, (*_JUDGED, "identifier", "type_identifier"))
    types = {_text(node) for node in found if node.type == "type_identifier"}
    for node in found:
        if node.type == "gnu_asm_expression":
            read += 1
            yield from (f"{fault}, {_where(node)}" for fault in _assembly(_text(node)))
        elif node.type in ("declaration", "field_declaration"):
            yield from (f"{fault}, {_where(node)}" for fault in _variable(node))
        elif node.type == "identifier" and _text(node) in constants and _is_address(node, types):
            yield f"global: the address of {_text(node)}, {_where(node)}"
    if read != statements:
        yield f"asm: {statements} statements, {read} of them can be read"


def _where(node: Node) -> str:
    return f"line {node.start_point[0] + 1}"


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _nodes(root: Node, types: tuple[str, ...]) -> list[Node]:
    """All nodes of these types, in the order of the text, the outer ones first. A query finds them
    in a fraction of the time that a walk over all nodes takes."""
    captured = QueryCursor(_query(types)).captures(root)
    nodes = [node for each in captured.values() for node in each]
    return sorted(nodes, key=lambda node: (node.start_byte, -node.end_byte))


@cache
def _query(types: tuple[str, ...]) -> Query:
    query: Query = Query(_language(), "".join(f"({each}) @{each}" for each in types))
    return query


def _walk(root: Node) -> Iterator[Node]:
    todo = [root]
    while todo:
        node = todo.pop()
        yield node
        if node.child_count:
            todo += node.children[::-1]


def _text(node: Node | None) -> str:
    return node.text.decode() if node is not None and node.text is not None else ""


@lru_cache(maxsize=1 << 10)  # kernels of a family have most of theirs in common
def _assembly(text: str) -> tuple[str, ...]:
    """Faults of one asm statement."""
    root = Parser(_language()).parse(f"void f() {{ {text}; }}".encode()).root_node
    nodes = _nodes(root, ("gnu_asm_expression",))
    if [_text(node) for node in nodes] != [text]:
        return ("asm: reads otherwise where it stands alone",)
    return tuple(_asm_faults(nodes[0]))


def _asm_faults(node: Node) -> Iterator[str]:
    code = node.child_by_field_name("assembly_code")
    pieces = []
    for child in [code] if code is not None and code.type == "string_literal" else _pieces(code):
        piece = ptx.unquote(_text(child)) if child.type == "string_literal" else None
        if piece is None:
            yield "asm: a template that is not a plain literal"
            return
        pieces.append(piece)
    yield from ptx.faults("".join(pieces))
    for child in _walk(node):
        if child.type in ("gnu_asm_output_operand", "gnu_asm_input_operand"):
            constraint = _text(child.child_by_field_name("constraint"))
            if not _CONSTRAINT.fullmatch(constraint):
                yield f"asm: constraint {constraint}"


def _pieces(code: Node | None) -> list[Node]:
    return [child for child in code.children if child.type != "comment"] if code else []


def _variable(node: Node) -> Iterator[str]:
    """Variables that outlive a launch. NVRTC takes what is not marked for the device's."""
    scope = node.parent
    while scope is not None and scope.type in ("linkage_specification", "template_declaration"):
        scope = scope.parent
    words = [_text(child) for child in node.children]
    local = scope is None or scope.type not in ("translation_unit", "declaration_list")
    if local and not {"static", "extern"} & set(words):
        return
    if {"constexpr", "__constant__", "__shared__", "typedef", "using", "friend"} & set(words):
        return
    for child in node.children_by_field_name("declarator"):
        inner = child.child_by_field_name("declarator") if child.type == "init_declarator" else None
        shape = inner or child
        if _is_function(shape) or ("const" in words and shape.type in _OBJECTS):
            continue
        yield f"global: {_text(shape)[:40]} is neither constant nor shared"


def _constants(declarations: Sequence[Node]) -> set[str]:
    """Names of variables in constant memory."""
    return {
        _text(name)
        for node in declarations
        if "__constant__" in _text(node) and "__constant__" in map(_text, node.children)
        for shape in node.children_by_field_name("declarator")
        for name in _walk(shape)
        if name.type == "identifier"
    }


def _is_address(name: Node, types: set[str]) -> bool:
    """Whether & stands before a variable or a part of it: through an address one could write."""
    node, parent = name, name.parent
    while parent is not None and parent.type in _INTO and parent.children[0] == node:
        node, parent = parent, parent.parent
    if parent is None or len(parent.children) < 2:
        return False
    # "(type)&name" is read as a sum of bits where the grammar does not know the type.
    cast = parent.type == "binary_expression" and _text(parent.children[0]).strip("( )") in types
    at = 1 if cast else 0
    return (cast or parent.type == "pointer_expression") and _text(parent.children[at]) == "&"


#: From a variable to a part of it.
_INTO = ("subscript_expression", "field_expression")
_OBJECTS = ("identifier", "array_declarator", "field_identifier")


def _is_function(shape: Node) -> bool:
    """A declared function, or one that returns a pointer or reference; not a pointer to one."""
    while shape.type in ("pointer_declarator", "reference_declarator"):
        children = [c for c in shape.children if c.type.endswith(("declarator", "identifier"))]
        if not children:
            return False
        shape = children[-1]
    name = shape.child_by_field_name("declarator")
    return (
        shape.type == "function_declarator"
        and name is not None
        and name.type != "parenthesized_declarator"
    )
