"""The command `course`: build and check notebooks, and read the ledger of claims.

Heavy imports stand inside the commands, so that `course --help` answers at once.
"""

import json
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from course_utils.authoring import AuthoringError
from course_utils.claims import Claim, ClaimError, read
from course_utils.grading import CELL_SECONDS, HIDDEN, GradingError

NEEDED = {"ipykernel", "jupytext", "nbclient", "nbformat"}  # what a base install may lack

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Build the course's notebooks, check your exercises, and read what the lessons measured.",
)


exports = typer.Typer(
    no_args_is_help=True,
    help="The grader for systems that teachers already have: Gradescope, GitHub Classroom.",
)
app.add_typer(exports, name="export")


class Scale(StrEnum):
    """How large a run is."""

    CLASS = "class"
    FULL = "full"


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"attention-course {version('attention-course')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of all commands."""
    for stream in (sys.stdout, sys.stderr):  # a Windows pipe may lack a character: better "?" than a crash
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


@contextmanager
def _told() -> Iterator[None]:
    """Turns what a user can mend, or wanted, into one line and an exit code."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("course: interrupted; nothing half-done was written.", err=True)
        raise typer.Exit(130) from None
    except (AuthoringError, ClaimError, GradingError) as error:
        typer.echo(f"course: {error}", err=True)
        raise typer.Exit(1) from None
    except ModuleNotFoundError as error:
        if error.name not in NEEDED | {"distributed"}:
            raise
        extra = "cluster" if error.name == "distributed" else "dev"
        typer.echo(
            f"course: this command needs {error.name}. Install it, in the course's folder, with: "
            f'python -m pip install --constraint constraints.txt --editable ".[{extra}]"',
            err=True,
        )
        raise typer.Exit(1) from None


@app.command()
def build(
    lessons: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NN | TEXT.py]...", help="Lessons such as 04, or single texts. All by default."
        ),
    ] = None,
    scale: Annotated[
        Scale,
        typer.Option(help="class: small, for two CPU cores; what is committed. full: for a GPU."),
    ] = Scale.CLASS,
    check: Annotated[
        bool, typer.Option("--check", help="Execute and write nothing; say in seconds what is out of date.")
    ] = False,
) -> None:
    """Turn texts into executed notebooks, and solutions into exercises.

    For each lesson NN: notebooks/NN_slug.py and solutions/NN_slug.py are executed from top to bottom, each
    in its own folder, and stored as .ipynb with their outputs; exercises/NN_slug.ipynb is the solution with
    the answers taken out. If a cell fails, the notebooks on disk stay as they were.
    """
    sound = True
    with _told():
        from course_utils.authoring.build import build as build_text
        from course_utils.authoring.build import stale
        from course_utils.authoring.notebooks import find_root, find_texts

        for text in find_texts(find_root(), lessons or ()):
            for finding in stale(text) if check else build_text(text, scale=scale.value, say=typer.echo):
                typer.echo(finding, err=True)
                sound = False
    if not sound:
        raise typer.Exit(1)
    if check:
        typer.echo("Every notebook is up to date.")


@app.command()
def check(
    notebook: Annotated[
        Path, typer.Argument(metavar="NOTEBOOK", help="Your exercises, such as exercises/04_x.ipynb.")
    ],
    timeout: Annotated[
        float, typer.Option(min=1, help="The longest that one cell may run, in seconds.")
    ] = 120,
) -> None:
    """Run your exercises, and say which of them pass.

    Every cell is run in a fresh kernel, whether or not another one raises; then the functions that your cells
    defined are judged. The notebook itself is not changed. Exits with 0 only if all points are earned.
    """
    with _told():
        from course_utils.authoring.verify import verify

        report = verify(notebook, timeout=timeout)
    typer.echo(report)
    if report.points < report.out_of:
        raise typer.Exit(1)


@app.command()
def claims(
    lessons: Annotated[
        list[str] | None, typer.Argument(metavar="[NN]...", help="Lessons such as 04. All by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Print the ledger: what the built lessons claim, what they measured, and whether it holds.

    Exits with 1 if a claim does not hold.
    """
    with _told():
        from course_utils.authoring.notebooks import find_root

        folder = find_root() / "notebooks"
        paths = sorted(folder.glob("*.ipynb"))
        if lessons:
            wanted = {lesson.zfill(2) for lesson in lessons}
            missing = wanted - {path.stem[:2] for path in paths}
            if missing:
                raise AuthoringError(
                    f"lesson {', '.join(sorted(missing))} is not built. Build it with: course build"
                )
            paths = [path for path in paths if path.stem[:2] in wanted]
        ledger = read(paths)
    if as_json:
        typer.echo(json.dumps([entry.as_dict() for entry in ledger], indent=1))
    else:
        for entry in ledger:
            typer.echo(_entry(entry))
        holding = sum(entry.holds for entry in ledger)
        typer.echo(f"{holding} of {len(ledger)} claims hold.")
    if not all(entry.holds for entry in ledger):
        raise typer.Exit(1)


@app.command()
def grade(
    submissions: Annotated[
        Path,
        typer.Argument(
            metavar="SUBMISSIONS",
            help="A folder of notebooks or a folder a student, nbgrader's tree, or an LMS's zip.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Where results go: grades.csv, class.html, feedback/ and more."),
    ],
    lesson: Annotated[
        str, typer.Option(metavar="NN", help="The lesson, such as 04. By default what most notebooks say.")
    ] = "",
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Draw the hidden inputs by this number. By default that of the run before, or a new one.",
        ),
    ] = None,
    hidden: Annotated[
        int, typer.Option(min=1, max=20, help="Sets of hidden inputs: more find more, and take longer.")
    ] = HIDDEN,
    workers: Annotated[
        int | None, typer.Option(min=1, help="How many processes grade at once. By default one a core.")
    ] = None,
    scheduler: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Grade on the Dask cluster at tcp://HOST:PORT instead.")
    ] = "",
    require_isolation: Annotated[
        bool, typer.Option("--require-isolation", help="Do not start where students' code cannot be jailed.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=1, help="The longest that one cell of a notebook may run, in seconds.")
    ] = CELL_SECONDS,
    regrade: Annotated[
        bool,
        typer.Option(
            "--regrade", help="Grade everything again, with new hidden inputs unless --seed is given."
        ),
    ] = False,
) -> None:
    """Grade a class: points, reasons and feedback for every student.

    Students' cells run in processes of their own, as locked up as this machine allows; another process, which
    they cannot reach, judges what their functions give. Run it again after a change and only what changed is
    graded; after an interruption, it goes on where it was. Exits with 0 if every submission could be graded,
    however few points it earned.
    """
    with _told():
        from course_utils.grading.gradebook import grade_class

        try:
            done = grade_class(
                submissions,
                out,
                lesson=lesson.zfill(2) if lesson else "",
                seed=seed,
                hidden=hidden,
                workers=workers,
                scheduler=scheduler,
                require_isolation=require_isolation,
                cell_seconds=timeout,
                regrade=regrade,
                say=typer.echo,
                warn=lambda text: typer.echo(text, err=True),
            )
        except KeyboardInterrupt:
            typer.echo(
                "course: interrupted. What is graded is kept; the same command goes on from there.", err=True
            )
            raise typer.Exit(130) from None
    if not done:
        raise typer.Exit(1)


_LESSON = Annotated[str, typer.Option(metavar="NN", help="The lesson, such as 04.")]
_INTO = Annotated[Path, typer.Option(metavar="FOLDER", help="Where to write.")]


@exports.command()
def otter(
    lesson: _LESSON,
    out: _INTO,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Draw the hidden inputs by this number. By default a new one.")
    ] = None,
) -> None:
    """Write an autograder zip for Gradescope, in the form that otter uses.

    It holds setup.sh, run_autograder and the course's code, and gives everybody the same hidden inputs. Keep
    it to yourself: it holds the reference solutions. What it holds back of what students write depends on
    Gradescope's machines: docs/teaching.md.
    """
    with _told():
        from course_utils.grading.export import otter as write_zip

        typer.echo(f"Wrote {write_zip(lesson.zfill(2), out, seed=seed)}")


@exports.command()
def classroom(
    lesson: _LESSON,
    out: _INTO,
    ref: Annotated[
        str,
        typer.Option(help="The branch, tag or commit of the course that grades; a commit stays as it is."),
    ] = "main",
) -> None:
    """Write the workflow file for the template repository of a GitHub Classroom assignment.

    It runs in the students' repositories, where they can change it: its points are feedback, not grades.
    """
    with _told():
        from course_utils.grading.export import classroom as write_workflow

        typer.echo(f"Wrote {write_workflow(lesson.zfill(2), out, ref=ref)}")


def _entry(entry: Claim) -> str:
    width = max(40, min(100, shutil.get_terminal_size().columns))
    verdict = "holds" if entry.holds else "DOES NOT HOLD"
    lines = [f"{entry.id}  {verdict}"]
    for text in (entry.sentence, f"measured: {entry.measured}", f"source: {entry.source}"):
        lines += textwrap.wrap(text, width, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join([*lines, ""])
