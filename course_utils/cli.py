"""The command `course`: build and check notebooks, and read the ledger of claims.

Heavy imports stand inside the commands, so that `course --help` answers at once.
"""

from enum import StrEnum
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Build the course's notebooks, check your exercises, and read what the lessons measured.",
)


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


def _fail(message: object) -> typer.Exit:
    typer.echo(f"course: {message}", err=True)
    return typer.Exit(1)


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
    from course_utils.authoring.build import build as build_text
    from course_utils.authoring.build import stale
    from course_utils.authoring.notebooks import AuthoringError, find_root, find_texts

    try:
        findings: list[str] = []
        for text in find_texts(find_root(), lessons or ()):
            findings += stale(text) if check else build_text(text, scale=scale.value, say=typer.echo)
    except AuthoringError as error:
        raise _fail(error) from None
    for finding in findings:
        typer.echo(finding, err=True)
    if findings:
        raise typer.Exit(1)
    if check:
        typer.echo("Every notebook is up to date.")
