"""From text to notebook: the stamps, the exercises cut from their solutions, and what is kept of the outputs.

A text is a jupytext py:percent file under notebooks/ or solutions/, named NN_slug.py. Nothing here executes.
Tags that mean something:

    setup                   the first code cell; the Colab installation is put in front of it
    exercise:04.1           the answer to an exercise; what stands between ### BEGIN SOLUTION and
                            ### END SOLUTION is cut from the exercise notebook
    check:04.1, summary     cells that judge; they carry nbval-check-output too
    nbval-check-output      nbval compares the output; exercise notebooks keep it
    raises-exception        the cell is meant to fail
"""

import copy
import hashlib
import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
from nbformat import NotebookNode

from course_utils.authoring import AuthoringError

if TYPE_CHECKING:
    from course_utils.checks import Exercise

BADGE = "<!-- badge -->"
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
COLAB = "https://colab.research.google.com/github/"
_RESTORE = (
    "Restore a good copy (Jupyter keeps the last one in .ipynb_checkpoints), or start from a fresh one."
)
_NAME = re.compile(r"(\d\d)_[a-z0-9_]+")


@dataclass(frozen=True)
class Text:
    """One text of the course: its file, and the files that are built from it."""

    root: Path
    path: Path

    @property
    def lesson(self) -> str:
        """The lesson's two digits."""
        return self.path.stem[:2]

    @property
    def name(self) -> str:
        """The path to show, from the root of the repository: "notebooks/04_bahdanau_attention.py"."""
        return self.path.relative_to(self.root).as_posix()

    @property
    def built(self) -> Path:
        """The executed notebook beside the text."""
        return self.path.with_suffix(".ipynb")

    @property
    def exercise(self) -> Path | None:
        """The exercise notebook, if this text is a solution."""
        if self.path.parent.name != "solutions":
            return None
        return self.root / "exercises" / self.built.name


def find_root(start: Path | None = None) -> Path:
    """The root of the repository: the nearest folder at or above `start` with pyproject.toml and notebooks/.

    Raises:
        AuthoringError: there is none.
    """
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / "pyproject.toml").is_file() and (folder / "notebooks").is_dir():
            return folder
    raise AuthoringError(
        f"{start} is not inside the course's repository (a folder with pyproject.toml and notebooks/). "
        "Go there with cd and try again."
    )


def find_texts(root: Path, wanted: Iterable[str] = ()) -> list[Text]:
    """The texts of the wanted lessons ("04") or files ("solutions/04_x.py"); all of them when none is named.

    Raises:
        AuthoringError: something wanted is not there, a file is misnamed, or there are no texts at all.
    """
    texts = [
        Text(root, path) for kind in ("notebooks", "solutions") for path in sorted((root / kind).glob("*.py"))
    ]
    if not texts:
        raise AuthoringError(
            f"there is no text (NN_slug.py) in {root / 'notebooks'} or {root / 'solutions'}."
        )
    for text in texts:
        if not _NAME.fullmatch(text.path.stem):
            raise AuthoringError(f"{text.name}: name it NN_slug.py, such as 04_bahdanau_attention.py.")
    wanted = list(wanted)
    if not wanted:
        return texts
    chosen: list[Text] = []
    for item in wanted:
        file = Path(item).resolve().with_suffix(".py")
        matching = [text for text in texts if text.lesson == item.zfill(2) or text.path == file]
        if not matching:
            known = ", ".join(sorted({text.lesson for text in texts}))
            raise AuthoringError(f"nothing to build for {item!r}: give a lesson ({known}) or a text's path.")
        chosen += [text for text in matching if text not in chosen]
    return chosen


def address(root: Path) -> str:
    """The public address of the repository, from [project.urls] in pyproject.toml, with no slash at its end.

    Raises:
        AuthoringError: pyproject.toml names none.
    """
    try:
        urls = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
        return urls["repository"].rstrip("/")
    except (KeyError, tomllib.TOMLDecodeError) as error:
        raise AuthoringError(
            f"{root / 'pyproject.toml'}: no address: write repository = ... under [project.urls]"
        ) from error


def compose(text: Text) -> NotebookNode:
    """The notebook of a text, stamped and without outputs; the same text always gives the same notebook.

    Raises:
        AuthoringError: the text cannot be read, or its tags and marks do not fit together.
    """
    import jupytext

    try:
        notebook = jupytext.reads(text.path.read_text(encoding="utf-8"), fmt="py:percent")
    except (ValueError, SyntaxError) as error:
        raise AuthoringError(f"{text.name} is not a jupytext py:percent file: {error}") from error
    url = address(text.root)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = NotebookNode(
        kernelspec=NotebookNode(display_name="Python 3", language="python", name="python3"),
        language_info=NotebookNode(name="python", file_extension=".py", mimetype="text/x-python"),
        course=NotebookNode(lesson=text.lesson, scale="class"),
    )
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        cell.metadata = NotebookNode(tags=tags) if tags else NotebookNode()
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    _stamp_badge(notebook, text.name, text.built, text.root, url)
    _stamp_setup(notebook, text, url)
    _mark_exercises(notebook, text)
    _name_cells(notebook.cells)
    return notebook


def cut(notebook: NotebookNode, text: Text) -> NotebookNode:
    """The exercise notebook of a solution: answers become NotImplementedError, only judged outputs stay."""
    notebook = copy.deepcopy(notebook)
    for cell in notebook.cells:
        if cell.cell_type != "code":
            # The link opens the exercise, not its solution.
            cell.source = cell.source.replace(
                f"/solutions/{text.built.name}", f"/exercises/{text.built.name}"
            )
            continue
        exercise = _tagged(cell, "exercise:")
        if exercise:
            cell.source = _without_solution(cell.source, exercise)
        if "nbval-check-output" not in cell.metadata.get("tags", []):
            cell.outputs, cell.execution_count = [], None
    return notebook


def bare(notebook: NotebookNode) -> NotebookNode:
    """The notebook without outputs and counts."""
    notebook = copy.deepcopy(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return notebook


def tidy(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """What is worth storing of a cell's outputs.

    Goes: stderr (progress bars, warnings), the views of widgets, whose state is not stored, and the paths of
    this machine in tracebacks. A widget that shows a static figure beside itself keeps the figure.
    """
    kept = []
    for output in copy.deepcopy(outputs):
        if output.output_type == "stream" and output.name == "stderr":
            continue
        if output.output_type in ("display_data", "execute_result"):
            had_widget = output.data.pop("application/vnd.jupyter.widget-view+json", None) is not None
            # All that is left of a bare widget is its repr, which tells a reader nothing.
            if not output.data or (had_widget and set(output.data) == {"text/plain"}):
                continue
        if output.output_type == "error":
            output.traceback = [_PATH.sub(r"File \1\2", line) for line in output.traceback]
        if kept and output.output_type == "stream" and kept[-1].output_type == "stream":
            kept[-1].text += output.text  # one print more or less between flushes makes no difference
        else:
            kept.append(output)
    return kept


_PATH = re.compile(
    r"File ((?:\x1b\[[\d;]*m)*)[~/\w][^\s:\x1b]*/((?:site-packages|course_utils|python3\.\d+)/)"
)


def dumps(notebook: NotebookNode) -> str:
    """The notebook as the text of its file; invalid notebooks raise."""
    nbformat.validate(notebook)
    return nbformat.writes(notebook, version=4, sort_keys=True).rstrip("\n") + "\n"


def load(path: Path) -> NotebookNode:
    """A stored notebook of format 4.

    Raises:
        AuthoringError: it is missing, empty, broken JSON, or no notebook of this format.
    """
    try:
        content = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise AuthoringError(f"{path} is not there.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise AuthoringError(f"{path} cannot be read: {error}") from error
    if not content.strip():
        raise AuthoringError(f"{path} is empty. {_RESTORE}")
    try:
        json.loads(content)
    except json.JSONDecodeError as error:
        raise AuthoringError(f"{path} is broken: it is no JSON at line {error.lineno}. {_RESTORE}") from error
    try:
        notebook = nbformat.reads(content, as_version=4)
        for cell in notebook.cells:
            cell.setdefault("metadata", NotebookNode())
            if not isinstance(cell.source, str):
                raise TypeError(f"a cell's source is {cell.source!r}")
    except Exception as error:  # a malformed tree raises a good many types
        raise AuthoringError(f"{path} is not a notebook: {error}. {_RESTORE}") from error
    return notebook


def place(notebook: NotebookNode, index: int) -> str:
    """A cell as people find it: its number, counted from 1, and its first line."""
    cell = notebook.cells[index]
    lines = cell.source.strip().splitlines() or [""]
    return f"cell {index + 1} ({cell.cell_type}: {lines[0][:60]!r})"


def exercises_of(lesson: str) -> dict[str, "Exercise"]:
    """The exercises of a lesson by id, as the registry of checks has them; empty where there are none."""
    from course_utils import checks  # it imports torch

    try:
        return {exercise.id: exercise for exercise in checks.exercises(lesson)}
    except LookupError:
        return {}


def tagged(notebook: NotebookNode, prefix: str) -> dict[str, NotebookNode]:
    """The code cells that carry a tag of this prefix, by what follows it: {"04.1": cell} for "exercise:"."""
    pairs = ((_tagged(cell, prefix), cell) for cell in notebook.cells if cell.cell_type == "code")
    return {id: cell for id, cell in pairs if id}


def _tagged(cell: NotebookNode, prefix: str) -> str | None:
    for tag in cell.metadata.get("tags", []):
        if tag.startswith(prefix):
            return tag.removeprefix(prefix)
    return None


def _stamp_badge(notebook: NotebookNode, name: str, built: Path, root: Path, url: str) -> None:
    first = notebook.cells[0] if notebook.cells else None
    if first is None or first.cell_type != "markdown" or BADGE not in first.source:
        raise AuthoringError(f"{name}: put the mark {BADGE} into the first cell, a markdown cell.")
    # A link in plain text: a picture would be fetched from outside each time the notebook is opened.
    if url.startswith("https://github.com/"):
        place = f"{url.removeprefix('https://github.com/')}/blob/main/{built.relative_to(root).as_posix()}"
        badge = f"[Open in Colab]({COLAB}{place})"
    else:
        badge = f"[The course's repository]({url})"
    first.source = first.source.replace(BADGE, badge)


def _stamp_setup(notebook: NotebookNode, text: Text, url: str) -> None:
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    setup = [cell for cell in code if "setup" in cell.metadata.get("tags", [])]
    if len(setup) != 1 or setup[0] is not code[0]:
        raise AuthoringError(f'{text.name}: the first code cell, and no other, carries the tag "setup".')
    body = (
        setup[0].source.strip()
        or f'from course_utils import runtime\n\ndevice = runtime.start("{text.lesson}")'
    )
    if f'runtime.start("{text.lesson}"' not in body:
        raise AuthoringError(f'{text.name}: the set-up cell has to call runtime.start("{text.lesson}").')
    install = f'import sys\n\nif "google.colab" in sys.modules:\n    %pip install -q git+{url}\n\n'
    setup[0].source = install + body


def _mark_exercises(notebook: NotebookNode, text: Text) -> None:
    """Adds what graders look for: nbgrader's metadata and our own."""
    answers, checks, known = [], [], exercises_of(text.lesson) if text.exercise else {}
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        answer, check = _tagged(cell, "exercise:"), _tagged(cell, "check:")
        if answer:
            answers.append(answer)
            _without_solution(cell.source, answer)  # raises when the marks do not fit
            _mark(cell, answer, "answer")
        elif BEGIN in cell.source or END in cell.source:
            raise AuthoringError(f"{text.name}: a cell with {BEGIN} lacks its tag, such as exercise:04.1.")
        if check:
            checks.append(check)
            # An exercise that the registry lacks is a finding of lint.
            _mark(cell, check, "check", points=known[check].points if check in known else 0)
    if len(set(answers)) < len(answers) or sorted(answers) != sorted(checks):
        raise AuthoringError(
            f"{text.name}: each exercise has one answer cell and one check cell, "
            f"but the answers are {answers} and the checks {checks}."
        )


def _mark(cell: NotebookNode, id: str, role: str, **points: int) -> None:
    graded = role == "check"
    cell.metadata["course"] = NotebookNode(exercise=id, role=role)
    cell.metadata["nbgrader"] = NotebookNode(
        grade=graded,
        solution=not graded,
        locked=graded,
        task=False,
        grade_id=f"{role}-{id.replace('.', '-')}",
        schema_version=3,
        **points,
    )


def _without_solution(source: str, id: str) -> str:
    kept, inside, regions = [], False, 0
    for line in source.split("\n"):
        mark = line.strip()
        if mark in (BEGIN, END):
            if (mark == BEGIN) == inside:
                raise AuthoringError(f"exercise {id}: {BEGIN} and {END} do not alternate.")
            inside, regions = not inside, regions + 1
            if inside:
                indentation = line[: len(line) - len(line.lstrip())]
                kept.append(f'{indentation}raise NotImplementedError("{id}: write your answer here")')
        elif not inside:
            kept.append(line)
    if inside or not regions:
        raise AuthoringError(f"exercise {id}: its cell needs {BEGIN} and {END} around the solution.")
    return "\n".join(kept)


def _name_cells(cells: list[NotebookNode]) -> None:
    """Cell ids that stay when other cells come and go: from the exercise, else from the content."""
    seen: dict[str, int] = {}
    for cell in cells:
        grader = cell.metadata.get("nbgrader")
        name = grader.grade_id if grader else hashlib.sha256(cell.source.encode()).hexdigest()[:8]
        seen[name] = seen.get(name, 0) + 1
        cell.id = name if seen[name] == 1 else f"{name}-{seen[name]}"
