"""A notebook as students leave it: which cells answer, whatever an editor or its owner did to the file."""

import copy
import json
from pathlib import Path

import pytest

from course_utils import questions
from course_utils.grading.sheets import Unreadable, lesson_of, parsed, read

EXERCISES = Path(__file__).parents[2] / "exercises"
BUILT = json.loads((EXERCISES / "04_bahdanau_attention.ipynb").read_text(encoding="utf-8"))
ASKED = questions.questions("04")
IDS = [question.id for question in ASKED]


@pytest.fixture
def notebook() -> dict:
    """The exercises of lesson 04 with something written into each answer."""
    made = copy.deepcopy(BUILT)
    for cell in answers(made).values():
        cell["source"] = source(cell).replace("raise NotImplementedError", "return print").splitlines(True)
    return made


def source(cell: dict) -> str:
    return "".join(cell["source"])


def answers(notebook: dict) -> dict[str, dict]:
    return {
        cell["metadata"]["course"]["exercise"]: cell
        for cell in notebook["cells"]
        if cell["metadata"].get("course", {}).get("role") == "answer"
    }


def strip(notebook: dict, *names: str, ids: bool = False) -> dict:
    for cell in notebook["cells"]:
        for name in names:
            cell["metadata"].pop(name, None)
        if ids:
            cell.pop("id", None)
    return notebook


def packed(notebook: dict) -> bytes:
    return json.dumps(notebook).encode()


def answering(notebook: dict) -> dict[str, int]:
    return {cell.exercise: cell.number for cell in read(packed(notebook), ASKED).cells if cell.exercise}


@pytest.mark.parametrize("path", sorted(EXERCISES.glob("*.ipynb")), ids=lambda path: path.name[:2])
def test_every_built_notebook_is_read_as_it_is_meant(path):
    lesson = path.name[:2]
    data = path.read_bytes()
    assert lesson_of(data) == lesson
    asked = questions.questions(lesson)
    sheet = read(data, asked)
    assert [cell.exercise for cell in sheet.cells if cell.exercise] == [question.id for question in asked]
    assert sheet.notes == () and not any(sheet.found.values())
    assert not any("check(" in cell.source or "summary(" in cell.source for cell in sheet.cells)


@pytest.mark.parametrize(
    ("dropped", "ids", "said"),
    [
        ((), False, ""),
        (("course",), False, "by the id of its cell"),
        (("course", "nbgrader"), False, "by the id of its cell"),
        (("course", "nbgrader"), True, "by the tag of its cell"),
        (("course", "nbgrader", "tags"), True, "by the name of its function"),
    ],
)
def test_answers_are_found_however_much_metadata_an_editor_dropped(notebook, dropped, ids, said):
    whole = answering(notebook)
    strip(notebook, *dropped, ids=ids)
    assert answering(notebook) == whole
    found = read(packed(notebook), ASKED).found
    assert all(said in " ".join(found[id]) for id in IDS)
    assert not any("check(" in cell.source for cell in read(packed(notebook), ASKED).cells)


def test_a_duplicated_answer_is_said_and_the_last_counts(notebook):
    cell = answers(notebook)["04.2"]
    notebook["cells"].append(copy.deepcopy(cell))
    first, last = notebook["cells"].index(cell) + 1, len(notebook["cells"])
    assert answering(notebook)["04.2"] == last
    assert f"cells {first}, {last}" in read(packed(notebook), ASKED).found["04.2"][0]


def test_an_unanswered_copy_does_not_hide_an_answer(notebook):
    place = answering(notebook)["04.2"]
    notebook["cells"].append(copy.deepcopy(answers(BUILT)["04.2"]))
    sheet = read(packed(notebook), ASKED)
    assert answering(notebook)["04.2"] == place
    assert "an unanswered copy" in sheet.found["04.2"][0]
    order = [cell.number for cell in sheet.cells]
    assert order.index(len(notebook["cells"])) < order.index(place)


def test_an_answer_in_a_copied_cell_of_another_exercise_is_found(notebook):
    """Jupyter copies a cell's metadata with it."""
    own, other = answers(notebook)["04.2"], answers(notebook)["04.1"]
    copied = copy.deepcopy(other)
    copied["source"], own["source"] = own["source"], "# see below"
    notebook["cells"].append(copied)
    where = answering(notebook)
    assert where["04.2"] == len(notebook["cells"])
    assert where["04.1"] == notebook["cells"].index(other) + 1


def test_a_renamed_function_is_called_by_its_name_and_said(notebook):
    cell = answers(notebook)["04.2"]
    cell["source"] = source(cell).replace("additive_scores", "my_scores") + "\ndef helper(x):\n    return x\n"
    sheet = read(packed(notebook), ASKED)
    place = [cell.source for cell in sheet.cells].index(source(cell))
    assert sheet.cells[place + 1].source == "additive_scores = my_scores"
    assert "called my_scores" in sheet.found["04.2"][0]


def test_a_missing_answer_is_said_and_also_where_it_went(notebook):
    cells = answers(notebook)
    notebook["cells"].remove(cells["04.1"])
    cells["04.2"] |= {"cell_type": "markdown"}
    found = read(packed(notebook), ASKED).found
    assert found["04.1"] == ("no cell answers it and no function is called masked_softmax",)
    assert "is a markdown cell" in found["04.2"][1]
    assert found["04.3"] == ()


def test_an_answer_merged_with_its_check_is_run(notebook):
    cell = answers(notebook)["04.1"]
    check = notebook["cells"][notebook["cells"].index(cell) + 1]
    check["source"] = source(cell) + "\n" + source(check)
    notebook["cells"].remove(cell)
    assert "04.1" in answering(notebook)


def test_what_runs_is_not_decided_by_what_parses(notebook):
    notebook["cells"].insert(2, {"cell_type": "code", "metadata": {}, "source": "def broken(:"})
    sheet = read(packed(notebook), ASKED)
    assert "not Python: cell 3" in sheet.notes
    assert "def broken(:" in [cell.source for cell in sheet.cells]


@pytest.mark.parametrize(
    "text",
    ["%pylab\nx = 1", "!ls\nx = 1", "y = !ls\nx = 1", "%%time\nx = 1", "torch.sum?\nx = 1", "?x\nx = 1"],
)
def test_magics_are_looked_over(text):
    assert parsed(text).body[-1].lineno == text.count("\n") + 1


def worksheet(notebook: dict) -> bytes:
    """The same in format 3."""
    cells = [
        {key: value for key, value in cell.items() if key not in ("source", "id")} | {"input": cell["source"]}
        if cell["cell_type"] == "code"
        else cell
        for cell in notebook["cells"]
    ]
    return packed({"worksheets": [{"cells": cells}], "metadata": {}, "nbformat": 3})


@pytest.mark.parametrize(
    ("encode", "said"),
    [
        (packed, ()),
        (lambda made: b"\xef\xbb\xbf" + packed(made), ()),
        (
            lambda made: json.dumps(made, ensure_ascii=False).encode("utf-16"),
            ("written in UTF-16, not in UTF-8",),
        ),
        (lambda made: json.dumps(made).encode("utf-32"), ("written in UTF-32, not in UTF-8",)),
        (
            lambda made: json.dumps(made | {"x": "Zoë"}, ensure_ascii=False).encode("latin-1", "replace"),
            ("not written in UTF-8; read as Latin-1",),
        ),
        (worksheet, ("an old notebook format (3 or before), which has no cell ids",)),
    ],
    ids=["utf-8", "bom", "utf-16", "utf-32", "latin-1", "format 3"],
)  # fmt: skip
def test_encodings_and_formats_cost_nothing_and_are_said(notebook, encode, said):
    sheet = read(encode(notebook), ASKED)
    assert [cell.exercise for cell in sheet.cells if cell.exercise] == IDS
    assert sheet.notes == said


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b" \n\0\0", "empty"),
        (b'{"cells": [\n{"cell_type": "code', "line 2.*cut off"),
        (b"%PDF-1.7 \xff\xfe", "PDF"),
        (b"PK\3\4\xff\xff\xff", "zip"),
        (b"<!DOCTYPE html>", "web page"),
        (b"def masked_softmax(): pass", "not JSON"),
        (b"[]", "not a notebook"),
        (b'{"cells": {}}', "no list of cells"),
        (b"[" * 200_000, "JSON"),
        (b'{"cells": [' + b"1" * 10_000 + b"]}", "JSON"),
        (json.dumps({"cells": [{}] * 2001}).encode(), "2001"),
        (
            json.dumps({"cells": [{"cell_type": "code", "source": "x" * (2 << 20)}]}).encode(),
            "characters of code",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_notebook_is_said(data, said):
    with pytest.raises(Unreadable, match=said):
        read(data, ASKED)


@pytest.mark.parametrize(
    "cell",
    [
        None, 7, [], {}, {"cell_type": "code"}, {"cell_type": "code", "source": None},
        {"cell_type": "code", "source": [1, None, "x = 1"]}, {"cell_type": ["code"], "source": "x"},
        {"cell_type": "code", "source": "x = '\ud800'"}, {"cell_type": "code", "source": "a\0b"},
        {"cell_type": "code", "source": "x", "metadata": []}, {"cell_type": "code", "source": "(" * 50_000},
        {"cell_type": "code", "source": "x", "metadata": {"tags": 3, "course": 4, "nbgrader": []}},
        {"cell_type": "code", "source": "x", "metadata": {"tags": [3, {}], "course": {"exercise": {}}}},
        {"cell_type": "code", "source": "-" * 50_000 + "1"},
        {"cell_type": "code", "source": "a." * 50_000 + "b"},
    ],
    ids=lambda cell: str(cell)[:40].encode("ascii", "replace").decode(),
)  # fmt: skip
def test_a_strange_cell_costs_no_other_cell(notebook, cell):
    notebook["cells"].insert(1, cell)
    assert list(answering(notebook)) == IDS


@pytest.mark.parametrize("text", ["\n", " ", "a ", "a.b", "%\n", "x=", "x?"])
@pytest.mark.parametrize("kind", ["code", "markdown"])
def test_no_text_makes_reading_slow(notebook, text, kind):
    """A pattern that went over one of these again and again would take hours."""
    notebook["cells"][1] = {"cell_type": kind, "metadata": {}, "source": text * (400_000 // len(text))}
    assert len(answering(notebook)) == len(IDS)


@pytest.mark.parametrize(
    ("made", "lesson"),
    [
        ({"metadata": {"course": {"lesson": "05"}}, "cells": []}, "05"),
        ({"metadata": {"course": {"lesson": "../.."}}, "cells": []}, ""),
        ({"metadata": [], "cells": [{"metadata": {"tags": ["exercise:05.2"]}}]}, "05"),
        ({"cells": [{"cell_type": "code", "source": ['device = runtime.start("05")']}]}, "05"),
        ({"cells": [{"cell_type": "code", "source": 'check("05.1", f)'}]}, "05"),
        ({"cells": []}, ""),
    ],
)
def test_the_lesson_of_a_notebook(made, lesson):
    assert lesson_of(packed(made)) == lesson
    assert lesson_of(packed(made), "x/03_seq2seq.ipynb") == (lesson or "03")
