"""Formulas of metrics: arithmetic over the columns of a table, computed in SQL and in Python with the same result.

A formula is a Python expression of numbers, column names, `+ - * /`, parentheses, and `min(x, n)` or `max(x, n)` with a
number `n`. A counter stands for its rate per second, any other column for its value. A formula has no value where one
of its columns has none, and where it divides by zero.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from types import CodeType
from typing import Any

__all__ = ["Formula"]

OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
LIMITS = {"min": ">", "max": "<"}
FUNCTIONS: dict[str, Any] = {"__builtins__": {}, "min": min, "max": max}


class Formula:
    """A parsed formula; `columns` are the names in it. Raises `ValueError` for text that is not a formula."""

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._tree = ast.parse(text, mode="eval")
        except SyntaxError as error:
            raise ValueError(f"not a formula: {text!r}") from error
        self._check(self._tree.body)
        names = (node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name))
        self.columns = tuple(dict.fromkeys(name for name in names if name not in LIMITS))
        self._code: CodeType = compile(self._tree, "<formula>", "eval")

    def sql(self, present: Mapping[str, str]) -> str:
        """The formula as a SQL expression; `present` has the SQL of each column that the table has."""
        if any(name not in present for name in self.columns):
            return "NULL::DOUBLE"
        return f"({self._sql(self._tree.body, present)})::DOUBLE"

    def value(self, row: Mapping[str, float | None]) -> float | None:
        """The formula over one row; None where it has no value."""
        try:
            return float(eval(self._code, FUNCTIONS, row))  # noqa: S307 - only the nodes that `_check` allows
        except (KeyError, NameError, TypeError, ZeroDivisionError):  # a column is absent or None, or zero divides
            return None

    def _check(self, node: ast.expr) -> None:
        match node:
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right=right):
                self._check(left)
                self._check(right)
            case ast.Call(
                func=ast.Name(id="min" | "max"), args=[value, ast.Constant(value=int() | float())], keywords=[]
            ):
                self._check(value)
            case ast.Constant(value=int() | float()) | ast.Name():
                pass
            case _:
                raise ValueError(f"{ast.unparse(node)!r} is not allowed in a formula: {self.text!r}")

    def _sql(self, node: ast.expr, present: Mapping[str, str]) -> str:
        match node:
            case ast.Name(id=name):
                return f"{present[name]}::DOUBLE"  # integers overflow, and the error would end the whole query
            case ast.Constant(value=value):
                return repr(value)
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return f"({self._sql(left, present)} / nullif({self._sql(right, present)}, 0))"
            case ast.BinOp(left=left, op=op, right=right):
                return f"({self._sql(left, present)} {OPERATORS[type(op)]} {self._sql(right, present)})"
            case ast.Call(func=ast.Name(id=name), args=[inner, ast.Constant(value=limit)]):
                value = self._sql(inner, present)
                # `least` and `greatest` would pass over an absent value.
                return f"(CASE WHEN {value} {LIMITS[name]} {limit!r} THEN {limit!r} ELSE {value} END)"
        raise AssertionError(ast.dump(node))
