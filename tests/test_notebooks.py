"""The course's own notebooks: built from their texts, within the rules, and exercises that only answers pass.

`make test` also runs nbval over notebooks/ and solutions/ as they are stored.
"""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from course_utils import claims
from course_utils.authoring.build import execute, stale
from course_utils.authoring.notebooks import BEGIN, END, Text, find_texts, load, tagged
from course_utils.authoring.verify import verify

ROOT = Path(__file__).parent.parent
SANITIZE = ROOT / "tests" / "nbval_sanitize.cfg"
TEXTS = find_texts(ROOT)
LESSONS = [text for text in TEXTS if not text.exercise]
SOLUTIONS = [text for text in TEXTS if text.exercise]

each_text = pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.name)
each_solution = pytest.mark.parametrize("text", SOLUTIONS, ids=lambda text: text.name)


def test_there_are_lessons_and_solutions_of_the_same_names():
    assert LESSONS and SOLUTIONS
    assert [text.path.name for text in LESSONS] == [text.path.name for text in SOLUTIONS]
    built = {
        path for folder in ("notebooks", "solutions", "exercises") for path in (ROOT / folder).glob("*.ipynb")
    }
    expected = {path for text in TEXTS for path in (text.built, text.exercise) if path}
    assert built == expected


@each_text
def test_built_files_are_up_to_date_and_within_the_rules(text):
    assert stale(text) == []


@pytest.mark.parametrize("text", LESSONS, ids=lambda text: text.name)
def test_a_lesson_records_its_claims_without_a_gap(text):
    ledger = claims.read([text.built])
    assert ledger
    assert [entry.id for entry in ledger] == [f"{text.lesson}.{n}" for n in range(1, len(ledger) + 1)]


@each_solution
def test_no_line_of_a_solution_stands_in_the_exercise(text):
    regions = [region.partition(END)[0] for region in text.path.read_text(encoding="utf-8").split(BEGIN)[1:]]
    lines = {line.strip() for region in regions for line in region.splitlines() if line.strip()}
    exercise = load(text.exercise)
    code = {
        line.strip()
        for cell in exercise.cells
        if cell.cell_type == "code"
        for line in cell.source.splitlines()
    }
    assert len(lines) > len(regions) >= 1
    assert not lines & code
    stored = text.exercise.read_text(encoding="utf-8")
    assert BEGIN not in stored and END not in stored
    for id, cell in tagged(exercise, "exercise:").items():
        assert f'raise NotImplementedError("{id}: ' in cell.source
        compile(cell.source, id, "exec")


def with_solutions(text: Text, *ids: str) -> nbformat.NotebookNode:
    """The exercise notebook with the answers of some exercises, or of all, pasted in."""
    notebook = load(text.exercise)
    answers = tagged(load(text.built), "exercise:")
    for id, cell in tagged(notebook, "exercise:").items():
        if not ids or id in ids:
            cell.source = answers[id].source
    return notebook


@pytest.fixture(scope="module", params=SOLUTIONS, ids=lambda text: text.name)
def nbval(request, tmp_path_factory) -> dict[str, set[int]]:
    """What `pytest --nbval-lax` says of three notebooks: by notebook, the code cells that failed.

    "answered" is the exercise with its solutions pasted, "untouched" the exercise as it ships, "saved" one
    with a missing answer that was run and saved, so that it stores what its own checks said.
    """
    text, folder = request.param, tmp_path_factory.mktemp("nbval")
    ids = sorted(tagged(load(text.exercise), "exercise:"))
    notebooks = {
        "answered": with_solutions(text),
        "untouched": load(text.exercise),
        "saved": execute(with_solutions(text, *ids[1:]), text, "class"),
    }
    for name, notebook in notebooks.items():
        nbformat.write(notebook, folder / f"{name}.ipynb")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--nbval-lax",
        "--nbval-kernel-name",
        "python3",
        "--color",
        "no",
    ]
    command += ["--nbval-sanitize-with", str(SANITIZE), "-p", "no:cacheprovider", "-rA", str(folder)]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout
    code = len([cell for cell in load(text.exercise).cells if cell.cell_type == "code"])
    outcomes = re.findall(r"^(PASSED|FAILED) \S*?(\w+)\.ipynb::Cell (\d+)", said, re.MULTILINE)
    assert len(outcomes) == 3 * code, said
    failed = {name: set() for name in notebooks}
    for outcome, name, number in outcomes:
        if outcome == "FAILED":
            failed[name].add(int(number))
    return failed


def test_nbval_passes_an_exercise_with_its_solutions_pasted(nbval):
    assert nbval["answered"] == set()


def test_nbval_fails_an_untouched_exercise_in_every_check(nbval, request):
    text = request.node.callspec.params["nbval"]
    code = [cell for cell in load(text.exercise).cells if cell.cell_type == "code"]
    tags = [cell.metadata.get("tags", []) for cell in code]
    assert (
        nbval["untouched"]
        == {number for number, of in enumerate(tags) if "nbval-check-output" in of}
        != set()
    )


def test_nbval_fails_a_missing_answer_although_its_verdict_was_saved(nbval):
    """JupyterLab stores what a reader's checks said; that must not count as what is right."""
    assert nbval["saved"]


@each_solution
def test_course_check_gives_all_points_to_the_solution(text):
    report = verify(text.built)
    assert report.points == report.out_of > 0 and not report.troubles
    assert {result.outcome for result in report.results} == {"passes"}


@each_solution
def test_course_check_counts_each_exercise_on_its_own(text, tmp_path):
    """One exercise is answered, the others are as they ship, and all check cells are deleted."""
    ids = sorted(tagged(load(text.exercise), "exercise:"))
    notebook = with_solutions(text, ids[0])
    notebook.cells = [
        cell for cell in notebook.cells if "nbval-check-output" not in cell.metadata.get("tags", [])
    ]
    nbformat.write(notebook, tmp_path / text.built.name)
    results = {result.id: result for result in verify(tmp_path / text.built.name).results}
    assert results[ids[0]].outcome == "passes" and results[ids[0]].points > 0
    assert {(results[id].outcome, results[id].points) for id in ids[1:]} <= {("not answered yet", 0)}
