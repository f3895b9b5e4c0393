"""`course check`: runs one notebook of exercises, somebody's own, and says which of them pass.

All that is asked of the notebook is that its cells define the functions of the exercises: check cells may
be gone or changed, and a cell that raises stops no other. The checks run in the notebook's kernel, on what
its cells defined.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell
from tqdm import tqdm

from course_utils.authoring import AuthoringError
from course_utils.authoring.build import Failure, kernel
from course_utils.authoring.notebooks import exercises_of, load, place

JUDGING = (
    300.0  # seconds for one exercise: the checks have their own, shorter limits on what an answer may take
)
_KIND = "application/vnd.attention-course.verdict+json"


@dataclass(frozen=True)
class Result:
    """What one exercise earned, in short and in full."""

    id: str
    title: str
    points: int
    out_of: int
    outcome: str
    text: str = ""


@dataclass(frozen=True)
class Report:
    """The results of a notebook's exercises, and the cells that went wrong."""

    lesson: str
    results: list[Result]
    troubles: list[str]

    @property
    def points(self) -> int:
        """The points earned."""
        return sum(result.points for result in self.results)

    @property
    def out_of(self) -> int:
        """The points of the lesson."""
        return sum(result.out_of for result in self.results)

    def __str__(self) -> str:
        width = max(len(result.title) for result in self.results)
        lines = [
            f"{result.id}  {result.title:{width}}  {result.points:2} of {result.out_of:2}  {result.outcome}"
            for result in self.results
        ]
        lines.append(f"{'total':{width + 6}}  {self.points:2} of {self.out_of:2}")
        lines += [f"\n{result.text}" for result in self.results if result.text]
        if self.troubles:
            lines += ["\nCells that went wrong:", *(f"  {trouble}" for trouble in self.troubles)]
        return "\n".join(lines)


def verify(path: Path, *, timeout: float = 120.0) -> Report:
    """Executes a notebook's cells, each for at most `timeout` seconds, and then judges its exercises.

    Raises:
        AuthoringError: the file is no notebook, or belongs to no lesson that has exercises.
    """
    notebook = load(path)
    lesson = _lesson(notebook, path)
    exercises = exercises_of(lesson).values()
    if not exercises:
        raise AuthoringError(f"{path}: lesson {lesson} has no exercises.")
    theirs = [index for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    ours = range(len(notebook.cells), len(notebook.cells) + len(exercises))
    for exercise in exercises:
        call = f'__import__("{__name__}", fromlist=["judge_here"]).judge_here("{exercise.id}")'
        notebook.cells.append(new_code_cell(call))
    failures = _run(notebook, path, dict.fromkeys(theirs, timeout) | dict.fromkeys(ours, JUDGING))
    results = [
        _result(exercise, notebook.cells[index], _lost(notebook, failures, index))
        for exercise, index in zip(exercises, ours, strict=True)
    ]
    troubles = [
        f"{place(notebook, index)} {failure.what.splitlines()[0]}"
        for index, failure in failures.items()
        if index in theirs
    ]
    return Report(lesson, results, troubles)


def judge_here(id: str) -> None:
    """Runs in the notebook's kernel: judges the function of an exercise, and publishes the verdict."""
    from IPython import get_ipython
    from IPython.display import display

    from course_utils import checks

    exercise = checks.find(id)
    answer = get_ipython().user_ns.get(exercise.function)
    if answer is None:
        outcome, points, text = f"no {exercise.function} is defined", 0, ""
    else:
        verdict = checks.verdict(exercise, answer)
        points = verdict.points
        full = points == verdict.out_of
        outcome = "passes" if full else "does not pass yet" if verdict.answered else "not answered yet"
        text = verdict.text() if verdict.answered and not full else ""
    display({_KIND: {"points": points, "outcome": outcome, "text": text}}, raw=True)


def _run(notebook: NotebookNode, path: Path, timeouts: dict[int, float]) -> dict[int, Failure]:
    """Runs cells, as far as the kernel lives; returns what failed by the cell's index."""
    failures: dict[int, Failure] = {}
    late = 0
    with kernel(notebook, path.resolve().parent) as run:
        for index in tqdm(timeouts, desc=path.name, unit="cell", disable=None, leave=False):
            failure = run(index, timeouts[index])
            if failure:
                failures[index] = failure
            # A cell that also outlasts the interrupt blocks all that follow: one more time-out shows it.
            late = late + 1 if failure and failure.kind == "late" else 0
            if late == 2 or (failure and failure.kind == "dead"):
                break
    return failures


def _lost(notebook: NotebookNode, failures: dict[int, Failure], index: int) -> str:
    """Why the judging cell of an index has nothing to say."""
    if index in failures:
        return f"not judged: {failures[index].what}"
    last = max(failures, default=None)  # the failure that ended it all
    return "not judged" if last is None else f"not judged: {place(notebook, last)} {failures[last].what}"


def _result(exercise, cell: NotebookNode, reason: str) -> Result:
    for output in cell.outputs:
        if _KIND in output.get("data", {}):
            return Result(exercise.id, exercise.title, out_of=exercise.points, **output.data[_KIND])
    return Result(exercise.id, exercise.title, 0, exercise.points, reason)


def _lesson(notebook: NotebookNode, path: Path) -> str:
    stored = notebook.metadata.get("course", {}).get("lesson")
    named = re.match(r"(\d\d)_", path.name)
    if not stored and not named:
        raise AuthoringError(f"{path}: cannot tell the lesson; name the file NN_slug.ipynb, as it came.")
    return stored or named[1]
