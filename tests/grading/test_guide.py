"""The guide for teachers says what is so: commands parse, limits are the grader's, files are written."""

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from course_utils.cli import app
from course_utils.grading import jail, run
from course_utils.grading.grade import Exam
from course_utils.grading.report import write
from course_utils.grading.results import Run

GUIDE = (Path(__file__).parents[2] / "docs" / "teaching.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"(?m)(?:^|`)(course [a-z].*?)(?:`|$)", GUIDE)


@pytest.mark.parametrize("line", sorted({line for line in COMMANDS if " -" in line}))
def test_every_command_parses(line):
    words = shlex.split(line)[1:]
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_its_limits_are_those_of_the_grader():
    for said in (
        f"{jail.MEMORY >> 30} GiB for each process",
        f"scratch folder of {jail.DISK >> 20} MiB",
        f"at most {jail.PROCESSES},",
        f"each cell {run.CELL_SECONDS:g} s",
    ):
        assert said in GUIDE, said
    assert run.SUBMISSION_SECONDS == 5 * 60 and "five minutes in all" in GUIDE
    assert len(Exam("04", seed=0).asked["04.1"]) == 1 + 1 and "as many hidden ones" in GUIDE


def test_the_files_that_it_names_are_those_that_are_written(tmp_path):
    write([], tmp_path, run=Run("04", (), seed=0))
    named = set(re.findall(r"`([\w.]+\.(?:html|csv|json|xml))`", GUIDE))
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} <= named
