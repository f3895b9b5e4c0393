"""Notebooks as students hand them in, put together from right answers, variants and named mistakes."""

from __future__ import annotations

import ast
import copy
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from course_utils import checks

ROOT = Path(__file__).parents[2]
Notebook = dict[str, Any]


@cache
def _file(kind: str, lesson: str) -> str:
    return next((ROOT / kind).glob(f"{lesson}_*.ipynb")).read_text(encoding="utf-8")


def exercises(lesson: str = "04") -> Notebook:
    """The notebook as students get it."""
    return json.loads(_file("exercises", lesson))


def answer_cells(notebook: Notebook) -> dict[str, dict[str, Any]]:
    """The cells that answer, by exercise."""
    return {
        cell["metadata"]["course"]["exercise"]: cell
        for cell in notebook["cells"]
        if cell["metadata"].get("course", {}).get("role") == "answer"
    }


@cache
def solutions(lesson: str = "04") -> dict[str, str]:
    """The right answers, by exercise."""
    cells = answer_cells(json.loads(_file("solutions", lesson)))
    return {id: "".join(cell["source"]) for id, cell in cells.items()}


def answered(answers: dict[str, str], lesson: str = "04") -> Notebook:
    """The notebook with these answers written into it."""
    notebook = exercises(lesson)
    for id, cell in answer_cells(notebook).items():
        if id in answers:
            cell["source"] = answers[id]
    return notebook


@cache
def alone(id: str) -> str:
    """The right answer to an exercise, which calls no answer to another one, but its own copy of it."""
    lesson = id.partition(".")[0]
    names = {one.id: one.function for one in checks.exercises(lesson)}
    cell, wanted, copies = solutions(lesson)[id], [id], []
    while wanted:
        source = solutions(lesson)[wanted.pop()]
        for other, name in names.items():
            if other != id and re.search(rf"\b{name}\b", source) and other not in copies:
                copies.append(other)
                wanted.append(other)
    cell = "\n\n\n".join([*(solutions(lesson)[other] for other in sorted(copies)), cell])
    for other in copies:
        cell = re.sub(rf"\b{names[other]}\b", f"_{names[other]}_{id.replace('.', '_')}", cell)
    return cell


def right(lesson: str = "04", **others: str) -> Notebook:
    """The notebook with all answers right, but `others`, such as e1="..." for the first exercise.

    No answer calls another one, so that a wrong one costs itself alone.
    """
    changed = {f"{lesson}.{name[1:]}": source for name, source in others.items()}
    return answered({id: alone(id) for id in solutions(lesson)} | changed, lesson)


def with_cell(notebook: Notebook, source: str, place: int = 2) -> Notebook:
    """The notebook with one more code cell; by default in front of the answers."""
    notebook = copy.deepcopy(notebook)
    cell = {"cell_type": "code", "metadata": {}, "source": source, "outputs": [], "execution_count": None}
    notebook["cells"].insert(place, cell)
    return notebook


def packed(notebook: Notebook) -> bytes:
    return json.dumps(notebook).encode()


# --- the mistakes and variants of the checks, as cells ------------------------------------------------------


@cache
def _module(lesson: str) -> tuple[str, ast.Module]:
    text = (ROOT / "course_utils" / "checks" / f"lesson{lesson}.py").read_text(encoding="utf-8")
    return text, ast.parse(text)


@cache
def _definitions(lesson: str) -> dict[str, ast.stmt]:
    """What defines each name at the top level of a lesson's checks."""
    found: dict[str, ast.stmt] = {}
    for node in _module(lesson)[1].body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            found |= {target.id: node for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {alias.asname or alias.name.partition(".")[0]: node for alias in node.names}
    return found


@cache
def as_cell(id: str, kind: str, name: str) -> str:
    """A cell that answers exercise `id` as the named mistake or variant does ("Mistake" or "Variant").

    Raises:
        LookupError: it needs something that only the checks have, or is not written out in their text.
    """
    lesson = id.partition(".")[0]
    text, tree = _module(lesson)
    exercise = checks.find(id)
    offered = exercise.mistakes if kind == "Mistake" else exercise.variants
    answer = next(one for one in offered if one.name == name).answer
    line = getattr(getattr(answer, "__code__", None), "co_firstlineno", 0)
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == kind
        and len(node.args) > 1
        and isinstance(node.args[0], ast.Constant)
        and node.args[0].value == name
    ]
    named = getattr(answer, "__name__", "")
    exact = [c for c in calls if c.args[1].lineno == line or getattr(c.args[1], "id", "") == named]
    if len(exact or calls) != 1:
        raise LookupError(f"{id} {name}: {len(calls)} places")
    expression = (exact or calls)[0].args[1]
    needed = _needed(lesson, expression)
    lines = ["import numpy as np", "import torch", *(ast.get_source_segment(text, node) for node in needed)]
    return "\n\n".join([*lines, f"{exercise.function} = {ast.get_source_segment(text, expression)}\n"])


def _needed(lesson: str, expression: ast.expr) -> list[ast.stmt]:
    """The definitions that an expression needs, in their order, whatever they need in turn included."""
    definitions, needed, waiting = _definitions(lesson), [], [expression]
    while waiting:
        for node in ast.walk(waiting.pop()):
            defined = definitions.get(node.id) if isinstance(node, ast.Name) else None
            if defined is not None and defined not in needed:
                needed.append(defined)
                waiting.append(defined)
    for node in needed:
        if isinstance(node, ast.ImportFrom) and "checks" in (node.module or ""):
            raise LookupError(f"needs {node.module}")
    return sorted(needed, key=lambda node: node.lineno)
