"""A class as pytest items: one for each submission and exercise, with its points, spread by xdist."""

import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from xml.etree import ElementTree

import pytest
from handed import exercises, packed, right

from course_utils import checks

EXERCISES = checks.exercises("04")
TRAP = "import pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\n"


def run_pytest(folder, *arguments):
    command = [sys.executable, "-m", "pytest", "-p", "course_utils.grading.items", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # starts faster
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory):
    """Four submissions, and two files that would run if pytest looked there for tests."""
    folder = tmp_path_factory.mktemp("class")
    submissions = folder / "submissions"
    submissions.mkdir()
    wrong = "def masked_softmax(scores, mask):\n    return scores.softmax(-1)\n"
    for name, data in {
        "Ann": packed(right()),
        "Ben \x1b[31m::": packed(right(e1=wrong)),
        "Cleo": packed(exercises()),
        "Dan": b"{",
    }.items():
        (submissions / f"{name}.ipynb").write_bytes(data)
    for name in ("conftest.py", "test_trap.py"):
        (submissions / name).write_text(TRAP)
        (folder / name).write_text(TRAP)
    return folder


def test_a_class_spread_over_two_processes(handed_in):
    arguments = ("--course-grade", "submissions", "--course-seed", "3", "--junitxml", "junit.xml", "-n", "2")
    run = run_pytest(handed_in, "-v", "-p", "xdist", *arguments)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "\x1b" not in run.stdout and "--course-seed 3" in run.stdout
    assert not list(handed_in.rglob("*.ran")), "pytest ran what lies beside the submissions"

    found = {}
    for case in ElementTree.parse(handed_in / "junit.xml").iter("testcase"):
        known = {entry.get("name"): entry.get("value") for entry in case.iter("property")}
        found[known["student"][:3], case.get("name")] = known
        assert (case.find("failure") is None) == (known["points"] == known["out_of"])
        assert known["out_of"] == str(checks.find(case.get("name")).points)
    assert len(found) == 6 * len(EXERCISES)
    outcomes = {student: Counter() for student, _ in found}
    for (student, _), known in found.items():
        outcomes[student][known["outcome"]] += 1
    rest = len(EXERCISES) - 1
    assert outcomes["Ann"] == {"full": rest + 1} and outcomes["Ben"] == {"wrong": 1, "full": rest}
    assert outcomes["Cle"] == {"unanswered": rest + 1} and outcomes["Dan"] == {"unreadable": rest + 1}
    assert "[ ] the real words share the weight" in run.stdout

    # All items of a submission went to one process, which runs it once.
    processes = defaultdict(set)
    for process, student in re.findall(r"^\[(gw\d)\].* (\d)\. [^:]*::04", run.stdout, re.MULTILINE):
        processes[student].add(process)
    assert len(processes) == 6 and all(len(used) == 1 for used in processes.values())


def test_some_items_alone(handed_in):
    run = run_pytest(
        handed_in, "--course-grade", "submissions", "--collect-only", "-q", "-k", "Cleo and 04.2"
    )
    assert "3. Cleo::04.2" in run.stdout and "1/30 tests collected" in run.stdout


def test_what_cannot_be_graded_is_said(handed_in):
    inside = run_pytest(handed_in / "submissions", "--course-grade", ".")
    assert inside.returncode == 4 and "run this from a folder outside" in inside.stderr
    nothing = run_pytest(handed_in, "--course-grade", "elsewhere")
    assert nothing.returncode == 2 and "elsewhere" in nothing.stdout and "Traceback" not in nothing.stdout
    lesson = run_pytest(handed_in, "--course-grade", "submissions", "--course-lesson", "77")
    assert lesson.returncode == 2 and 'no lesson "77"' in lesson.stdout


def test_without_its_option_the_plugin_does_nothing(tmp_path):
    (tmp_path / "test_one.py").write_text("def test_one():\n    pass\n")
    run = run_pytest(tmp_path, "-q")
    assert run.returncode == 0 and "1 passed" in run.stdout and "course" not in run.stdout
