"""`course check` on notebooks as readers leave them; the exercises are those of lesson 04."""

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from course_utils import checks
from course_utils.authoring import AuthoringError
from course_utils.authoring.verify import verify

RIGHT = """\
def masked_softmax(scores, mask):
    import torch
    allowed = mask[:, None, :].expand_as(scores)
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~allowed, lowest).softmax(-1).masked_fill(~allowed, 0.0)
"""
LESSON = checks.exercises("04")


def notebook(folder: Path, *sources: str, name: str = "04_mine.ipynb", **metadata) -> Path:
    made = new_notebook(cells=[new_code_cell(source) for source in sources], metadata=metadata)
    nbformat.write(made, folder / name)
    return folder / name


def test_a_notebook_in_disorder_still_earns_its_points(tmp_path):
    """No check cell is left, cells raise, loop and shadow names, and one answer is right."""
    other = LESSON[1].function if len(LESSON) > 1 else None
    path = notebook(
        tmp_path,
        "seen = 1",
        "1 / 0",
        "def masked_softmax(scores, mask):\n    return scores",
        "open('left_behind', 'w').close()",
        "while True:\n    pass",
        RIGHT,
        f"def {other}(*arguments):\n    raise NotImplementedError('04.2: write your answer here')",
        "check = print = json = exercise = None",
        "x = (",
    )
    before = path.read_bytes()
    report = verify(path, timeout=5)
    first, *others = report.results
    assert (first.id, first.points, first.out_of, first.outcome) == ("04.1", 2, 2, "passes")
    assert [result.points for result in others] == [0] * len(others)
    if others:
        assert others[0].outcome == "not answered yet"
    for result in others[1:]:
        assert result.outcome.startswith("no ") and result.outcome.endswith(" is defined")
    assert (report.points, report.out_of) == (2, sum(exercise.points for exercise in LESSON))
    assert [trouble.split(" (")[0] for trouble in report.troubles] == ["cell 2", "cell 5", "cell 9"]
    words = "ZeroDivisionError", "longer than 5 s", "SyntaxError"
    assert all(word in trouble for word, trouble in zip(words, report.troubles, strict=True))
    assert path.read_bytes() == before
    assert (tmp_path / "left_behind").exists()  # cells work in the notebook's folder, as in JupyterLab
    table = str(report).splitlines()
    assert len([line for line in table if line.startswith("04.")]) == len(LESSON)
    assert table[0].split()[0] == "04.1" and table[0].endswith("passes")
    assert table[len(LESSON)].split() == ["total", "2", "of", str(report.out_of)]


def test_a_wrong_answer_is_told_what_is_wrong(tmp_path):
    path = notebook(
        tmp_path,
        "import torch\n\ndef masked_softmax(scores, mask):\n    return scores.softmax(-1)",
        name="mine.ipynb",
        course={"lesson": "04"},
    )
    report = verify(path)
    assert report.results[0].outcome == "does not pass yet"
    assert report.points == 0
    assert report.results[0].text.startswith("04.1 ") and report.results[0].text in str(report)


def test_a_cell_that_ends_the_kernel_is_named(tmp_path):
    report = verify(notebook(tmp_path, "import os\nos._exit(1)", RIGHT))
    assert {result.points for result in report.results} == {0}
    for result in report.results:
        assert result.outcome.startswith("not judged: cell 1 (code: 'import os') ended the kernel")


def test_a_cell_that_cannot_be_interrupted_does_not_hold_up_the_rest_for_ever(tmp_path):
    stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True:\n    pass"
    report = verify(notebook(tmp_path, stubborn, *["1"] * 50), timeout=1)
    assert len(report.troubles) == 2
    assert all(result.outcome.startswith("not judged: ") for result in report.results)


def test_an_empty_notebook_passes_nothing(tmp_path):
    report = verify(notebook(tmp_path))
    assert report.points == 0 < report.out_of
    assert all("is defined" in result.outcome for result in report.results)


def test_a_notebook_of_no_lesson_or_of_none_with_exercises_is_refused(tmp_path):
    with pytest.raises(AuthoringError, match="cannot tell the lesson"):
        verify(notebook(tmp_path, name="mine.ipynb"))
    with pytest.raises(AuthoringError, match="lesson 99 has no exercises"):
        verify(notebook(tmp_path, name="99_mine.ipynb"))
