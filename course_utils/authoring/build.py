"""`course build`: executes texts and writes notebooks, or says which written ones are out of date."""

import copy
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode
from tqdm import tqdm

from course_utils.authoring import AuthoringError
from course_utils.authoring.files import write
from course_utils.authoring.lint import lint
from course_utils.authoring.notebooks import (
    Text,
    bare,
    compose,
    cut,
    dumps,
    load,
    place,
    tidy,
)

TRACEBACK_LINES = 15


def build(text: Text, *, scale: str = "class", say: Callable[[str], None] = print) -> list[str]:
    """Executes a text and writes its notebook, and a solution's exercise notebook; returns lint's findings.

    The kernel is python3 and works in the notebook's own folder, as it does in JupyterLab and under nbval.
    Files are written only after the last cell has run, each in one step.

    Raises:
        AuthoringError: the text is not in order, or a cell failed; the files on disk are as they were.
    """
    composed = compose(text)
    findings = lint(composed, text)
    if findings:  # known before minutes are spent
        raise AuthoringError("\n".join(findings))
    started = time.monotonic()
    executed = execute(composed, text, scale)
    files = {text.built: executed}
    if text.exercise:
        files[text.exercise] = cut(executed, text)
    contents = {path: dumps(notebook) for path, notebook in files.items()}
    for path, content in contents.items():
        write(path, content)
    names = " and ".join(path.relative_to(text.root).as_posix() for path in contents)
    say(f"{names}: {len(_code(executed))} cells in {time.monotonic() - started:.0f} s")
    return lint(executed, text)


def execute(notebook: NotebookNode, text: Text, scale: str) -> NotebookNode:
    """A copy of the notebook with the outputs of a run from top to bottom.

    Raises:
        AuthoringError: names the first cell that failed, and its error.
    """
    executed = copy.deepcopy(notebook)
    code = [index for index, cell in enumerate(executed.cells) if cell.cell_type == "code"]
    with kernel(executed, text.path.parent, scale=scale) as run:
        bar = tqdm(code, desc=text.name, unit="cell", disable=None, leave=False)
        for index in bar:
            problem = run(index)
            if problem:
                bar.close()
                raise AuthoringError(f"{text.name}: {place(executed, index)} {problem}\nNothing was written.")
    executed.metadata.course.scale = scale
    for index in code:
        executed.cells[index].outputs = tidy(executed.cells[index].outputs)
    return executed


@dataclass(frozen=True)
class Failure:
    """Why a cell did not run through; `kind` is raised, late or dead."""

    kind: str
    what: str
    frames: str = ""

    def __str__(self) -> str:
        return f"{self.what}\n\n{self.frames}".rstrip()


@contextmanager
def kernel(
    notebook: NotebookNode, folder: Path, *, scale: str = "class"
) -> Iterator[Callable[..., Failure | None]]:
    """A fresh kernel that works in `folder`; gives a function `run` that executes one cell in place.

    `run(index, timeout=None)` returns what went wrong, or None. A cell that runs longer than `timeout`
    seconds is interrupted. A kernel that died stays dead: from then on every cell fails.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, DeadKernelError

    client = NotebookClient(
        notebook,
        kernel_name="python3",
        interrupt_on_timeout=True,
        error_on_timeout={"ename": "Late", "evalue": "", "traceback": []},
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(folder)}},
    )
    count = 0

    def run(index: int, timeout: float | None = None) -> Failure | None:
        nonlocal count
        client.timeout = timeout
        cell = notebook.cells[index]
        if not cell.source.strip():
            return None
        count += 1
        try:
            client.execute_cell(cell, index, execution_count=count)
        except CellExecutionError as error:
            if error.ename == "Late":
                return Failure("late", f"ran longer than {timeout:g} s and was stopped")
            lines = re.sub(r"\x1b\[[\d;]*m", "", error.traceback).rstrip().splitlines()
            frames = "\n".join(lines[-TRACEBACK_LINES:])
            return Failure("raised", f"raised {error.ename}: {error.evalue}", frames)
        except (DeadKernelError, RuntimeError):
            return Failure("dead", "ended the kernel (out of memory, or an exit in the code)")
        return None

    environment = os.environ | {"COURSE_SCALE": scale, "COURSE_QUIET": "1"}
    environment.pop("PYTEST_CURRENT_TEST", None)  # a build is the same inside a test and outside
    # The kernel's log would mix with ours; what cells print does not pass through here.
    with client.setup_kernel(env=environment, stderr=subprocess.DEVNULL):
        yield run


def stale(text: Text) -> list[str]:
    """What keeps the built files of a text from being up to date, each with the command that mends it.

    Nothing is executed: the text is composed anew and compared, cell by cell, with what is stored.
    """
    try:
        expected = compose(text)
    except AuthoringError as error:
        return [str(error)]
    mend = f"Mend with: course build {text.name}"
    try:
        stored = load(text.built)
    except AuthoringError as error:
        return [f"{error} {mend}"]
    problems = [difference(expected, bare(stored)), *_outputs(stored)]
    findings = [f"{text.built.relative_to(text.root)}: {problem}. {mend}" for problem in problems if problem]
    if text.exercise and not findings:
        try:
            problem = difference(cut(stored, text), load(text.exercise))
            if problem:
                findings.append(f"{text.exercise.relative_to(text.root)}: {problem}. {mend}")
        except AuthoringError as error:
            findings.append(f"{error} {mend}")
    return findings + lint(stored, text)


def difference(expected: NotebookNode, stored: NotebookNode) -> str | None:
    """Where two notebooks first differ, in words; None where they agree."""
    if expected.metadata != stored.metadata:
        keys = expected.metadata.keys() | stored.metadata.keys()
        differing = sorted(key for key in keys if expected.metadata.get(key) != stored.metadata.get(key))
        return f"the notebook's metadata differ ({', '.join(differing)})"
    for number, (left, right) in enumerate(zip(expected.cells, stored.cells, strict=False)):
        for part in ("cell_type", "source", "metadata", "outputs", "execution_count", "id"):
            if left.get(part) != right.get(part):
                return f"{place(stored, number)} differs from the text in its {part.replace('_', ' ')}"
    if len(expected.cells) != len(stored.cells):
        return f"{len(stored.cells)} cells are stored, the text has {len(expected.cells)}"
    return None


def _outputs(notebook: NotebookNode) -> list[str]:
    """What is wrong with the stored outputs as such."""
    run = [cell for cell in _code(notebook) if cell.source.strip()]
    if [cell.execution_count for cell in run] != list(range(1, len(run) + 1)):
        return ["it was not executed from top to bottom"]
    problems = []
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type != "code":
            continue
        failed = any(output.output_type == "error" for output in cell.outputs)
        if failed and "raises-exception" not in cell.metadata.get("tags", []):
            problems.append(f"{place(notebook, number)} stores an error")
        if tidy(cell.outputs) != cell.outputs:
            problems.append(f"{place(notebook, number)} stores outputs that a build would not keep")
    return problems


def _code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]
