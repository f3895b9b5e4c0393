"""Read a notebook as a student left it: its code cells, and which of them answers which exercise.

Whatever the file holds becomes a Sheet and words about it, or one Unreadable; nothing of it is run here.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from course_utils.grading.safe import line

MOST_CODE = 1 << 20  # characters of all its code cells
MOST_CELLS = 2000


class Unreadable(Exception):
    """A submission that cannot be read; the message says why, and stands alone as a note."""


class Asked(Protocol):
    """What `read` needs to know of an exercise."""

    id: str
    signature: str

    @property
    def function(self) -> str: ...


@dataclass(frozen=True)
class Cell:
    """A code cell: its number among all cells, from 1, and the exercise that it answers, if any."""

    number: int
    source: str
    exercise: str = ""


@dataclass(frozen=True)
class Sheet:
    """The code of one notebook. `found` holds what there is to say of each exercise, by id."""

    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()
    found: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def notebook_of(data: bytes) -> tuple[dict[str, Any], list[dict[str, Any]], list[str]]:
    """Metadata, cells and notes of a notebook file of any format and of the encodings that occur.

    Raises:
        Unreadable: it is no notebook.
    """
    text, notes = _decoded(data)
    try:
        notebook = json.loads(text)
    except json.JSONDecodeError as error:
        raise Unreadable(f"unreadable: not JSON at line {error.lineno} of the file. {_looks(data)}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Unreadable(f"unreadable: not a notebook's JSON ({line(str(error))})") from None
    if not isinstance(notebook, dict):
        raise Unreadable("unreadable: JSON, but not a notebook")
    cells = notebook.get("cells")
    if not isinstance(cells, list) and isinstance(notebook.get("worksheets"), list):  # formats 1 to 3
        sheets = [sheet for sheet in notebook["worksheets"] if isinstance(sheet, dict)]
        cells = [cell for sheet in sheets if isinstance(sheet.get("cells"), list) for cell in sheet["cells"]]
        notes.append("an old notebook format (3 or before), which has no cell ids")
    if not isinstance(cells, list):
        raise Unreadable("unreadable: JSON, but not a notebook (it has no list of cells)")
    if len(cells) > MOST_CELLS:
        raise Unreadable(f"a notebook may have {MOST_CELLS} cells, and this one has {len(cells)}")
    metadata = notebook.get("metadata")
    whole = [cell if isinstance(cell, dict) else {} for cell in cells]
    return metadata if isinstance(metadata, dict) else {}, whole, notes


def _decoded(data: bytes) -> tuple[str, list[str]]:
    if not data.strip(b"\0 \t\r\n\xef\xbb\xbf\xff\xfe"):
        raise Unreadable("unreadable: the file is empty")
    encoding = json.detect_encoding(data)
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        if data.startswith((b"%PDF", b"PK\3\4", b"\x89PNG", b"\x1f\x8b")):
            raise Unreadable(f"unreadable: not JSON. {_looks(data)}") from None
        return data.decode("latin-1"), ["not written in UTF-8; read as Latin-1"]
    return text, [] if encoding in ("utf-8", "utf-8-sig") else [
        f"written in {encoding.upper()}, not in UTF-8"
    ]


def _looks(data: bytes) -> str:
    start = data[:200].lstrip(b"\xef\xbb\xbf \t\r\n")
    for mark, said in (
        (b"%PDF", "It looks like a PDF."),
        (b"PK\3\4", "It looks like a zip or an Office file."),
        (b"<", "It looks like a web page."),
        (b"{", "It starts as a notebook: was it cut off, or edited by hand?"),
    ):
        if start.startswith(mark):
            return said
    return ""


def _source(cell: Mapping[str, Any]) -> str:
    """The text of a cell; the pieces of a list that are no text count as nothing."""
    source = cell.get("source", cell.get("input", ""))
    pieces = source if isinstance(source, list) else [source]
    text = "".join(piece for piece in pieces if isinstance(piece, str))
    return text.encode("utf-8", "replace").decode("utf-8")  # JSON may hold lone surrogates


# --- which cell answers what --------------------------------------------------------------------------------

_MARK = re.compile(r"(?P<role>answer|check)-(?P<lesson>\d\d)-(?P<number>\d+)$")
_TAG = re.compile(r"(?P<role>exercise|check):(?P<id>\d\d\.\d+)$")


def _role(cell: Mapping[str, Any]) -> tuple[str, str, str]:
    """(role, exercise, how it is known): role is "answer", "check", "summary" or ""."""
    metadata = cell.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    own, nbgrader, tags = (metadata.get(name) for name in ("course", "nbgrader", "tags"))
    if isinstance(own, dict) and isinstance(own.get("exercise"), str):
        return ("check" if own.get("role") == "check" else "answer"), own["exercise"], ""
    names = [nbgrader.get("grade_id") if isinstance(nbgrader, dict) else None, cell.get("id")]
    for name in names:
        found = _MARK.match(name) if isinstance(name, str) else None
        if found:
            return found["role"], f"{found['lesson']}.{found['number']}", "by the id of its cell"
    for tag in tags if isinstance(tags, list) else []:
        found = _TAG.match(tag) if isinstance(tag, str) else None
        if found:
            return ("check" if found["role"] == "check" else "answer"), found["id"], "by the tag of its cell"
        if tag == "summary":
            return "summary", "", ""
    return "", "", ""


def lesson_of(data: bytes, name: str = "") -> str:
    """The lesson ("04") that a notebook says it belongs to: by its metadata, its cells, its name; else "".

    Raises:
        Unreadable: it is no notebook.
    """
    metadata, cells, _ = notebook_of(data)
    own = metadata.get("course")
    if isinstance(own, dict) and isinstance(own.get("lesson"), str) and re.fullmatch(r"\d\d", own["lesson"]):
        return own["lesson"]
    votes = Counter(exercise[:2] for cell in cells for _, exercise, _ in [_role(cell)] if exercise)
    for cell in cells:
        votes.update(_SAID.findall(_source(cell)[:20_000]))
    votes.pop("", None)
    if votes:
        return votes.most_common(1)[0][0]
    named = re.search(r"(?<!\d)(\d\d)_[a-z]", name.rpartition("/")[2])
    return named[1] if named else ""


_SAID = re.compile(
    r"""(?:runtime\.start|check|summary|NotImplementedError)\(["'](\d\d)(?:\.\d+[^"']*)?["']"""
)


def has_answers(data: bytes) -> bool:
    """Does a notebook have cells that say they answer an exercise? A lesson has none.

    Raises:
        Unreadable: it is no notebook.
    """
    return any(_role(cell)[0] == "answer" for cell in notebook_of(data)[1])


def parsed(source: str) -> ast.Module | None:
    """The syntax tree of a cell, with its magics and `!` lines blanked out; None where it is not Python.

    Line numbers stay. What runs is decided elsewhere; this is for looking at a cell only.
    """
    for text in (source, _IPYTHON.sub(_blank, source)):
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            return ast.parse(text)
    return None


_IPYTHON = re.compile(
    r"^(?P<indent>[ \t]*)(?P<to>\w[\w, .]*=[ \t]*)?(?:[%!][^\n]*|\?+[\w.]+|[\w.]+\?+)$", re.M
)


def _blank(line: re.Match[str]) -> str:
    return f"{line['indent']}{line['to']}None" if line["to"] else f"{line['indent']}pass"


def _defined(tree: ast.Module | None) -> dict[str, ast.stmt]:
    """What a cell defines at its top level, by name."""
    names: dict[str, ast.stmt] = {}
    for node in tree.body if tree else ():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names[node.name] = node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id: node for target in targets if isinstance(target, ast.Name)}
    return names


def _is_stub(node: ast.stmt) -> bool:
    """Is this a function that does nothing but raise NotImplementedError (or pass)?"""
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    body = [
        statement
        for statement in node.body
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
    ]
    return all(
        isinstance(statement, ast.Pass)
        or (isinstance(statement, ast.Raise) and "NotImplementedError" in ast.dump(statement))
        for statement in body
    )


def _only_checks(tree: ast.Module | None) -> bool:
    """Is this a cell of check(...) and summary(...) calls alone?"""
    return bool(tree and tree.body) and all(
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id in ("check", "summary")
        for node in tree.body
    )


@dataclass
class _Read:
    """A code cell while it is being understood."""

    number: int
    source: str
    role: str
    exercise: str
    how: str
    tree: ast.Module | None
    names: dict[str, ast.stmt]


def read(data: bytes, asked: Iterable[Asked]) -> Sheet:
    """The cells of a notebook that are to be run, and which of them answers which exercise.

    An answer is known by the metadata of its cell (course.exercise, nbgrader's grade_id, the cell's id, its
    tag), and where an editor dropped these by the name of the function. Cells that check are left out.

    Raises:
        Unreadable: it is no notebook.
    """
    asked = list(asked)
    _, cells, notes = notebook_of(data)
    code = [_look(number, cell) for number, cell in enumerate(cells, 1) if cell.get("cell_type") == "code"]
    length = sum(len(cell.source) for cell in code)
    if length > MOST_CODE:
        raise Unreadable(f"a notebook may have {MOST_CODE:,} characters of code, and this one has {length:,}")
    broken = [cell.number for cell in code if cell.tree is None and cell.source.strip()]
    if broken:
        notes.append(f"not Python: {_cells(broken)}")
    wanted = {question.function for question in asked}
    run = [cell for cell in code if _runs(cell, wanted)]
    found: dict[str, tuple[str, ...]] = {}
    answers: dict[int, str] = {}
    aliases: dict[int, list[str]] = {}
    for question in asked:
        said: list[str] = []
        answering = _answering(question, run, said)
        stubs = [cell for cell in answering if _stub_in(cell, question.function)]
        if stubs and len(stubs) < len(answering):
            # A copied stub below the answer would hide it. What else its cell defines is kept, in front.
            answering = [cell for cell in answering if cell not in stubs]
            run = [cell for cell in run if cell not in stubs]
            first = run.index(answering[0])
            run[first:first] = stubs
            said.append(f"an unanswered copy, in {_cells([cell.number for cell in stubs])}, does not count")
        if len(answering) > 1:
            last = answering[-1].number
            said.append(f"answered in {_cells([cell.number for cell in answering])}; cell {last} counts")
        for cell in answering[-1:]:
            answers.setdefault(cell.number, question.id)
            other = _renamed(question, cell, wanted, run)
            if other:
                aliases.setdefault(cell.number, []).append(f"{question.function} = {other}")
                said.append(f"the function is called {other}, not {question.function}; graded all the same")
        if not answering:
            said += [
                f"no cell answers it and no function is called {question.function}",
                *_misplaced(question, cells),
            ]
        found[question.id] = tuple(said)
    sheet = []
    for cell in run:
        sheet.append(Cell(cell.number, cell.source, answers.get(cell.number, "")))
        sheet += [Cell(cell.number, alias) for alias in aliases.get(cell.number, ())]
    return Sheet(tuple(sheet), tuple(notes), found)


def _look(number: int, cell: Mapping[str, Any]) -> _Read:
    source = _source(cell)
    tree = parsed(source) if len(source) <= MOST_CODE else None
    return _Read(number, source, *_role(cell), tree, _defined(tree))


def _runs(cell: _Read, wanted: set[str]) -> bool:
    if wanted & cell.names.keys():
        return True  # an answer that was written into, or merged with, a cell that checks
    return bool(cell.source.strip()) and cell.role not in ("check", "summary") and not _only_checks(cell.tree)


def _answering(question: Asked, run: Sequence[_Read], said: list[str]) -> list[_Read]:
    """The cells that answer: those that say so, and those that define the function."""
    marked = [cell for cell in run if cell.role == "answer" and cell.exercise == question.id]
    named = [cell for cell in run if question.function in cell.names]
    if not named:
        return marked
    last = named[-1]
    if not marked:
        said.append(f"found by the name of its function, in cell {last.number}")
    elif not any(cell in named for cell in marked):
        said.append(f"its own cell does not define {question.function}, but cell {last.number} does")
    elif last.how and last in marked:
        said.append(f"found {last.how}")
    return named


def _stub_in(cell: _Read, function: str) -> bool:
    return function in cell.names and _is_stub(cell.names[function])


def _renamed(question: Asked, cell: _Read, wanted: set[str], run: Sequence[_Read]) -> str:
    """The one function of the exercise's own cell that takes as many arguments, where none has its name."""
    if any(question.function in other.names for other in run) or cell.tree is None:
        return ""
    arguments = _arguments(question.signature)
    fitting = [
        name
        for name, node in cell.names.items()
        if isinstance(node, ast.FunctionDef)
        and name not in wanted
        and len(node.args.posonlyargs) + len(node.args.args) == arguments
    ]
    return fitting[0] if len(fitting) == 1 else ""


def _arguments(signature: str) -> int:
    tree = parsed(f"def {signature}: pass")
    node = tree.body[0] if tree else None
    return len(node.args.posonlyargs) + len(node.args.args) if isinstance(node, ast.FunctionDef) else -1


def _misplaced(question: Asked, cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Is the answer in a cell that is no code cell any more?"""
    define = re.compile(rf"^[ \t]*(?:def|class)[ \t]+{re.escape(question.function)}\b", re.M)
    return [
        f"cell {number} defines it, but is a {kind} cell, not a code cell"
        for number, cell in enumerate(cells, 1)
        if (kind := str(cell.get("cell_type"))) in ("markdown", "raw") and define.search(_source(cell))
    ]


def _cells(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"cell {numbers[0]}"
    shown = ", ".join(map(str, numbers[:10]))
    return f"cells {shown}" + (f" and {len(numbers) - 10} more" if len(numbers) > 10 else "")
