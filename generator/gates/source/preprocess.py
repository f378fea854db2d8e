"""Source text -> tokens -> what a compiler sees, so that no macro hides anything from a scan.

Called by the static gate. Knows the preprocessor as far as honest kernels use it and raises Hidden
for the rest: pasted tokens, digraphs, raw strings, includes, questions about the compiler.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from hgemm_packs.generator.gates.source.condition import ConditionError, evaluate

#: What NVRTC defines and a kernel may ask for.
PREDEFINED: Mapping[str, str] = {
    "__CUDA_ARCH__": "900",
    "__CUDACC__": "1",
    "__CUDACC_RTC__": "1",
    "__cplusplus": "201703",
}
PRAGMAS = ("unroll", "nounroll", "once", "nv_diag_suppress")
LIMIT = 1 << 16  # tokens: a bound on macros that double each other; our largest source has 2^14

_TOKEN = re.compile(
    r"""(?P<space>[ \t\f\v]+|/\*.*?\*/|//[^\n]*)
    |(?P<newline>\n)
    |(?P<string>(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*")
    |(?P<char>(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')
    |(?P<name>[A-Za-z_]\w*)
    |(?P<number>\.?\d(?:(?<=[eEpP])[+-]|'?[\w.])*)
    |(?P<mark><<<|>>>|<<=|>>=|->\*|\.\.\.|<=>|%:|\#\#|->|\+\+|--|<<|>>|[<>=!]=|&&|\|\||::|\.\*
        |[-+*/%&|^]=|[\#{}()\[\]<>;:?.,+\-*/%&|^~!=])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)


class Hidden(ValueError):
    """Source that this preprocessor will not read; the message is "rule: what, line n"."""


_NOBODY: Final[frozenset[str]] = frozenset()


class Token(NamedTuple):
    """A word of the source."""

    kind: str  # string, char, name, number, mark
    text: str
    line: int
    spaced: bool = False  # white space before it
    made_by: frozenset[str] = _NOBODY  # macros that must not be expanded in it again


#: A token of all its five parts. What NamedTuple writes takes twice the time, and tokens are many.
_token = partial(tuple.__new__, Token)


@dataclass(frozen=True, slots=True)
class Macro:
    body: tuple[Token, ...]
    params: tuple[str, ...] | None = None  # None: a macro without parentheses


Macros = dict[str, Macro]


@dataclass(slots=True)
class TokenizedSource:
    """`raw`: every token of the text, of all branches and directives. `tokens`: what is left after
    preprocessing."""

    raw: list[Token] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)

    def text(self) -> str:
        """The expanded text, with every token in the line that it or its macro was used in."""
        parts, line, before = [], 1, None
        for token in self.tokens:
            # What stood together is the same tokens together; what macros made might merge.
            apart = token.spaced or before is None or bool(token.made_by or before.made_by)
            parts += ["\n" * (token.line - line) or " " * apart, token.text]
            line, before = max(line, token.line), token
        return "".join(parts)


@dataclass(slots=True)
class _If:
    """An open #if: whether its present branch counts, and whether another may still do so."""

    counts: bool
    open: bool


def preprocess(text: str) -> TokenizedSource:
    """Tokens before and after. Raises Hidden for what honest kernels have no use for."""
    source = TokenizedSource()
    macros = {name: Macro((Token("number", v, 0),)) for name, v in PREDEFINED.items()}
    nesting: list[_If] = []
    run: list[Token] = []
    for line in _lines(text):
        source.raw += line
        if line and line[0].text == "#":
            source.tokens += _expand(run, macros)
            run = []
            if len(line) > 1:
                _directive(line[1].text, line[2:], macros, nesting, f"line {line[0].line}")
        elif all(one.counts for one in nesting):
            run += line
    if nesting:
        raise Hidden("preprocessor: an #if without #endif")
    source.tokens += _expand(run, macros)
    return source


def _lines(text: str) -> Iterator[list[Token]]:
    """Tokens of each line; a line that a backslash continues is one with the next."""
    text = text.replace("\r\n", "\n")
    if found := re.search(r"\?\?[=/'()!<>-]", text):
        raise Hidden(f"preprocessor: trigraph {found[0]}")
    lines = text.split("\n")
    joined = [line[:-1] if line.endswith("\\") else line + "\n" for line in lines]
    starts = [0]
    for line in joined:
        starts.append(starts[-1] + len(line))
    text = "".join(joined)
    tokens: list[Token] = []
    at, spaced = 0, False
    while at < len(text):
        match, number = _TOKEN.match(text, at), bisect_right(starts, at)
        if match is None:
            raise Hidden(f"preprocessor: {text[at : at + 8]!r} is no token, line {number}")
        kind, word, at = str(match.lastgroup), match[0], match.end()
        if word in ("##", "%:"):
            raise Hidden(f"preprocessor: {word}, line {number}")
        if kind == "name" and word.endswith("R") and text[at : at + 1] == '"':
            raise Hidden(f"preprocessor: raw string, line {number}")
        if kind == "newline":
            yield tokens
            tokens = []
        elif kind != "space":
            tokens.append(_token((kind, word, number, spaced, _NOBODY)))
        spaced = kind == "space"
    yield tokens


def _directive(
    word: str, rest: list[Token], macros: Macros, nesting: list[_If], where: str
) -> None:
    counts = all(one.counts for one in nesting)
    if word in ("if", "ifdef", "ifndef"):
        holds = counts and _holds(word, rest, macros, where)
        nesting.append(_If(holds, counts and not holds))
    elif word in ("elif", "else", "endif"):
        if not nesting:
            raise Hidden(f"preprocessor: #{word} without #if, {where}")
        one = nesting[-1]
        if word == "endif":
            nesting.pop()
        else:
            one.counts = one.open and (word == "else" or _holds("if", rest, macros, where))
            one.open = one.open and not one.counts
    elif counts and word == "define" and rest and rest[0].kind == "name":
        macros[rest[0].text] = _macro(rest, where)
    elif counts and word == "undef" and rest:
        macros.pop(rest[0].text, None)
    elif counts and word == "include":
        raise Hidden(f"include: {''.join(t.text for t in rest)}, {where}")
    elif counts and (word != "pragma" or not rest or rest[0].text not in PRAGMAS):
        raise Hidden(f"preprocessor: #{word} {rest[0].text if rest else ''}, {where}")


def _macro(rest: list[Token], where: str) -> Macro:
    """The macro that the tokens after #define make."""
    name = rest[0].text
    if name.startswith("__") or name == "defined":
        raise Hidden(f"preprocessor: {name} redefined, {where}")
    if len(rest) < 2 or rest[1].text != "(" or rest[1].spaced:
        return Macro(tuple(rest[1:]))
    close = next((i for i, t in enumerate(rest) if t.text == ")"), None)
    if close is None:
        raise Hidden(f"preprocessor: #define without ), {where}")
    params = tuple(t.text for t in rest[2:close] if t.text != ",")
    return Macro(tuple(rest[close + 1 :]), params)


def _holds(word: str, rest: list[Token], macros: Macros, where: str) -> bool:
    """Whether a condition is met. The compiler's own names, but PREDEFINED, must not be asked for:
    this preprocessor could not answer as the compiler does."""
    for token in rest:
        if token.text.startswith("_") and token.text not in macros:
            raise Hidden(f"preprocessor: asks for {token.text}, {where}")
    if word != "if":
        return (rest[:1] != [] and rest[0].text in macros) == (word == "ifdef")
    text = " ".join(token.text for token in rest)
    text = re.sub(r"\bdefined\s*(\(\s*)?(\w+)(?(1)\s*\))", lambda m: str(int(m[2] in macros)), text)
    tokens = [token for line in _lines(text) for token in line]
    try:
        return evaluate([token.text for token in _expand(tokens, macros)])
    except ConditionError as error:
        raise Hidden(f"preprocessor: #if {text}: {error}, {where}") from error


def _expand(tokens: list[Token], macros: Mapping[str, Macro]) -> list[Token]:
    """All macros replaced. The standard's algorithm: a replacement is read again together with what
    follows it, and no token is expanded by a macro that made it."""
    todo, done = tokens[::-1], []
    while todo:
        token = todo.pop()
        macro = macros.get(token.text) if token.kind == "name" else None
        if macro is None or token.text in token.made_by:
            done.append(token)
        elif macro.params is None:
            todo += _mark_made(macro.body, token, token.made_by)[::-1]
        elif todo and todo[-1].text == "(":
            arguments, close = _arguments(todo, token)
            body = _substitute(macro, arguments, macros, token)
            todo += _mark_made(body, token, token.made_by & close.made_by)[::-1]
        else:
            done.append(token)
        if len(todo) + len(done) > LIMIT:
            raise Hidden(f"preprocessor: {token.text} grows beyond {LIMIT} tokens")
    return done


def _mark_made(
    body: list[Token] | tuple[Token, ...], by: Token, before: frozenset[str]
) -> list[Token]:
    made_by, line = before | {by.text}, by.line
    joined = {_NOBODY: made_by}  # few sets of macros make many tokens
    made = []
    for token in body:
        kind, text, at, spaced, others = token
        # Of who made it only names are asked, and what closes arguments.
        if not others or at != line or kind == "name" or text == ")":
            if others not in joined:
                joined[others] = others | made_by
            token = _token((kind, text, line, spaced, joined[others]))
        made.append(token)
    return made


def _arguments(todo: list[Token], name: Token) -> tuple[list[list[Token]], Token]:
    """Takes "( ... )" from the end of `todo`: arguments between commas, and the closing token."""
    todo.pop()
    arguments: list[list[Token]] = [[]]
    depth = 0
    while todo:
        token = todo.pop()
        if token.text == ")" and depth == 0:
            return arguments, token
        depth += (token.text == "(") - (token.text == ")")
        if token.text == "," and depth == 0:
            arguments.append([])
        else:
            arguments[-1].append(token)
    raise Hidden(f"preprocessor: {name.text}( without ), line {name.line}")


def _substitute(
    macro: Macro, arguments: list[list[Token]], macros: Mapping[str, Macro], name: Token
) -> list[Token]:
    params = macro.params or ()
    if params[-1:] == ("...",):
        fixed = len(params) - 1
        comma = Token("mark", ",", name.line)
        rest: list[Token] = []
        for i, argument in enumerate(arguments[fixed:]):
            rest += [*([comma] if i else []), *argument]
        arguments, params = [*arguments[:fixed], rest], (*params[:-1], "__VA_ARGS__")
    given = dict(zip(params, arguments, strict=False))
    expanded: dict[str, list[Token]] = {}
    out: list[Token] = []
    body = iter(macro.body)
    for token in body:
        if token.text == "#":
            token = next(body, token)
            if token.text not in given:
                raise Hidden(f"preprocessor: # in {name.text}, line {name.line}")
            out.append(Token("string", _quote(given[token.text]), name.line))
        elif token.kind == "name" and token.text in given:
            if token.text not in expanded:
                expanded[token.text] = _expand(given[token.text], macros)
            out += expanded[token.text]
        else:
            out.append(token)
    return out


def _quote(argument: list[Token]) -> str:
    """What # makes of an argument."""
    text = "".join((" " if t.spaced and i else "") + t.text for i, t in enumerate(argument))
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
