"""Which product a reference computes, read from its text.

Called by `problems`. The code of a definition is foreign: it is parsed, followed through the few
words that a matrix product is written in, and refused where it says anything else. It is never run.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import NamedTuple

from hgemm_packs.errors import PackError

#: Torch's names of a product of two matrices, of a transpose, and of nothing that changes a value.
PRODUCTS = frozenset(("torch.matmul", "torch.mm"))
LINEAR = "torch.nn.functional.linear"
TRANSPOSES = frozenset(("T", "mT"))
#: Casts that lose nothing of half-precision operands, nor of a sum in float32.
WIDE = {"torch.float32", "torch.float", "torch.float64", "torch.double"}
CASTS = {"float": "torch.float32", "double": "torch.float64"}
CASTS |= {"half": "torch.float16", "bfloat16": "torch.bfloat16"}
DECORATORS = frozenset(("torch.no_grad", "torch.inference_mode"))


class Factor(NamedTuple):
    """An input by its place, and whether its transpose is meant."""

    place: int
    transposed: bool


#: One factor is an operand, two are a product.
Matrix = tuple[Factor, ...]


def read_product(code: str, inputs: int, dtype: str) -> tuple[Factor, Factor]:
    """The factors, the left one first, of a `run` with so many inputs, all of `dtype`. Raises
    PackError ("unknown_reference") for code that is no product of two of them.

    >>> read_product("import torch\\ndef run(A, B):\\n    return torch.mm(A, B.T)", 2, "float16")
    (Factor(place=0, transposed=False), Factor(place=1, transposed=True))
    """
    try:
        found = _Reader(f"torch.{dtype}").read(ast.parse(code).body, inputs)
    except (SyntaxError, ValueError) as error:
        raise _refuse(f"it is no Python: {error}") from None
    except (RecursionError, MemoryError):
        raise _refuse("it is nested too deeply") from None
    if len(found) != 2 or found[0].place == found[1].place:
        raise _refuse("it is no product of two inputs")
    return found[0], found[1]


def _refuse(detail: str) -> PackError:
    return PackError("unknown_reference", detail[:200], "reference")


class _Reader:
    """Follows a module to what its `run` returns; `names` are modules, `values` matrices."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.names: dict[str, str] = {}
        self.values: dict[str, Matrix] = {}

    def read(self, body: Sequence[ast.stmt], inputs: int) -> Matrix:
        runs = [each for each in body if isinstance(each, ast.FunctionDef) and each.name == "run"]
        if len(runs) != 1:
            raise _refuse("it has not one function run")
        for each in body:
            if each is not runs[0] and not _is_text(each):
                self.take_import(each)
        return self.follow(runs[0], inputs)

    def take_import(self, each: ast.stmt) -> None:
        if isinstance(each, ast.Import):
            for name in each.names:
                known = name.name if name.asname else name.name.partition(".")[0]
                self.names[name.asname or known] = known
        elif isinstance(each, ast.ImportFrom) and each.module and not each.level:
            for name in each.names:
                self.names[name.asname or name.name] = f"{each.module}.{name.name}"
        else:
            raise _refuse(f"line {each.lineno} is neither an import nor run")

    def follow(self, run: ast.FunctionDef, inputs: int) -> Matrix:
        given = run.args
        more = (given.vararg, given.kwarg, *given.kwonlyargs, *given.defaults)
        arguments = [each.arg for each in (*given.posonlyargs, *given.args)]
        if any(more) or len(arguments) != inputs:
            raise _refuse(f"run takes not {inputs} inputs")
        for each in run.decorator_list:
            if self.name(each.func if isinstance(each, ast.Call) else each) not in DECORATORS:
                raise _refuse(f"line {each.lineno} decorates run")
        self.values = {name: (Factor(i, False),) for i, name in enumerate(arguments)}
        for name in self.values:
            self.names.pop(name, None)
        for line in run.body:
            if isinstance(line, ast.Return) and line.value is not None:
                return self.value(line.value)
            if isinstance(line, ast.Assign) and all(isinstance(x, ast.Name) for x in line.targets):
                made = self.value(line.value)
                for target in line.targets:
                    assert isinstance(target, ast.Name)
                    self.values[target.id] = made
                    self.names.pop(target.id, None)
            elif not _is_text(line):
                raise _refuse(f"line {line.lineno} is neither an assignment nor a return")
        raise _refuse("run returns nothing")

    def name(self, node: ast.expr) -> str:
        """The full name of a function or type of torch, else ""."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, "")
        if isinstance(node, ast.Attribute):
            front = self.name(node.value)
            return f"{front}.{node.attr}" if front else ""
        return ""

    def value(self, node: ast.expr) -> Matrix:
        if isinstance(node, ast.Name) and node.id in self.values:
            return self.values[node.id]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return _multiply(self.value(node.left), self.value(node.right))
        if isinstance(node, ast.Attribute) and node.attr in TRANSPOSES:
            return _transpose(self.value(node.value))
        if isinstance(node, ast.Call):
            return self.call(node)
        raise _refuse(f"line {node.lineno} has more than products, transposes and casts")

    def call(self, node: ast.Call) -> Matrix:
        name, arguments = self.name(node.func), list(node.args)
        if not name and isinstance(node.func, ast.Attribute):  # a method is a function of its owner
            name, arguments = f"torch.{node.func.attr}", [node.func.value, *arguments]
        keywords = {each.arg: each.value for each in node.keywords}
        word = name.removeprefix("torch.") if name.startswith("torch.") else ""
        if name in PRODUCTS and len(arguments) == 2 and not keywords:
            return _multiply(self.value(arguments[0]), self.value(arguments[1]))
        if name == LINEAR and len(arguments) == 2 and not keywords:
            return _multiply(self.value(arguments[0]), _transpose(self.value(arguments[1])))
        if word == "t" and len(arguments) == 1 and not keywords:
            return _transpose(self.value(arguments[0]))
        if word == "transpose" and not keywords and _axes(arguments[1:]) == {0, 1}:
            return _transpose(self.value(arguments[0]))
        if word == "contiguous" and len(arguments) == 1 and not keywords:
            return self.value(arguments[0])
        if word in CASTS and len(arguments) == 1 and not keywords:
            return self.cast(arguments[0], CASTS[word], node)
        if word == "to" and len(arguments) + len(keywords) == 2 and keywords.keys() <= {"dtype"}:
            wanted = arguments[1] if len(arguments) == 2 else keywords["dtype"]
            return self.cast(arguments[0], self.type_of(wanted), node)
        raise _refuse(f"line {node.lineno} calls what is no product, transpose or cast")

    def type_of(self, node: ast.expr) -> str:
        """torch's name of a type; that of an input is the type of all."""
        if isinstance(node, ast.Attribute) and node.attr == "dtype" and not self.name(node):
            return self.dtype if len(self.value(node.value)) == 1 else ""
        return {"torch.half": "torch.float16"}.get(self.name(node), self.name(node))

    def cast(self, node: ast.expr, wanted: str, where: ast.Call) -> Matrix:
        if wanted != self.dtype and wanted not in WIDE:
            raise _refuse(f"line {where.lineno} rounds to a type that is not that of the operands")
        return self.value(node)


def _is_text(each: ast.stmt) -> bool:
    return isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)


def _axes(nodes: Sequence[ast.expr]) -> set[int]:
    """Two axes of a matrix, counted from the front; nothing for anything else."""
    try:
        found = [ast.literal_eval(each) for each in nodes]
    except ValueError:
        return set()
    right = len(found) == 2 and all(type(x) is int and -2 <= x < 2 for x in found)
    return {x % 2 for x in found} if right else set()


def _transpose(matrix: Matrix) -> Matrix:
    return tuple(Factor(each.place, not each.transposed) for each in reversed(matrix))


def _multiply(left: Matrix, right: Matrix) -> Matrix:
    if len(left) + len(right) != 2:
        raise _refuse("it is a product of more than two factors")
    return left + right
