"""One submission becomes a grade: what is deserved, in words that hold nothing of the hidden inputs."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from handed import alone, answered, exercises, packed, right, solutions, with_cell

from course_utils import checks
from course_utils.grading.collect import NOTHING, Submission
from course_utils.grading.grade import ELSEWHERE, Exam, grade
from course_utils.grading.grades import Grade
from course_utils.grading.jail import probe
from course_utils.grading.run import Zygote

FULL = {"04.1": 2, "04.2": 2, "04.3": 1, "04.4": 3, "04.5": 2}


@pytest.fixture(scope="module")
def exam() -> Exam:
    return Exam("04", seed=11, hidden=2)


@pytest.fixture(scope="module")
def graded(exam):
    """Grades a notebook, or bytes."""
    with Zygote(probe()) as zygote:

        def grades(made, **known) -> Grade:
            data = made if isinstance(made, bytes | None) else packed(made)
            submission = Submission("Al", "al.ipynb", Path("al.ipynb"), **known)
            return grade(submission, data, exam, zygote, cell_seconds=3)

        yield grades


def points(found: Grade) -> dict[str, int]:
    return {item.id: item.points for item in found.items}


def outcomes(found: Grade) -> dict[str, str]:
    return {item.id: item.outcome for item in found.items}


def item(found: Grade, id: str):
    return next(item for item in found.items if item.id == id)


def test_right_answers_earn_all_points_and_nothing_is_said(graded):
    found = graded(right(), late=True, account="12")
    assert points(found) == FULL and set(outcomes(found).values()) == {"full"}
    assert (found.notes, found.late, found.account, found.lesson) == ((), True, "12", "04")
    assert not any(one.notes or one.shortcuts for one in found.items)
    assert Grade.from_dict(json.loads(json.dumps(found.as_dict()))) == found


def test_the_stubs_earn_nothing_and_say_so(graded):
    found = graded(exercises())
    assert set(outcomes(found).values()) == {"unanswered"} and found.points == 0
    assert not any(part.finding for one in found.items for part in one.parts)


def test_a_wrong_answer_shows_the_mistake_and_the_smallest_visible_case(graded):
    found = graded(
        right(e1="import torch\ndef masked_softmax(scores, mask):\n    return torch.softmax(scores, -1)")
    )
    wrong = item(found, "04.1")
    assert wrong.outcome == "wrong" and points(found) == FULL | {"04.1": 0}
    assert wrong.parts[0].finding.mistake == "no mask"
    assert "smallest case" in wrong.parts[0].example[0]


def test_half_an_answer_earns_its_part(graded):
    without_edges = (
        "import torch\ndef masked_softmax(scores, mask):\n"
        "    return torch.softmax(scores.masked_fill(~mask[:, None], float('-inf')), -1)"
    )
    found = item(graded(right(e1=without_edges)), "04.1")
    assert found.outcome == "partial" and [part.points for part in found.parts] == [1, 0]


def only_where_visible(id: str, otherwise: str) -> str:
    """The right answer on the notebook's own cases; on all others, the lines `otherwise`."""
    exercise = checks.find(id)
    known = sorted(
        float(np.float64(inputs["queries"]).sum())
        for part in exercise.parts
        for inputs in part.draw(checks.SEED)
    )
    return (
        alone(id).replace(f"def {exercise.function}(", "def _right(")
        + f"\n\ndef {exercise.function}(queries, keys, W_q, W_k, v):\n"
        + f"    if any(abs(float(queries.detach().double().sum()) - known) < 1e-9 for known in {known}):\n"
        + "        return _right(queries, keys, W_q, W_k, v)\n"
        + "".join(f"    {line}\n" for line in otherwise.splitlines())
    )


LEAK = "' '.join(str(x) for x in queries.detach().flatten().tolist())"


@pytest.mark.parametrize(
    ("otherwise", "said"),
    [
        ("return _right(queries, keys, W_q, W_k, 0 * v)", "the same score"),
        (f"raise ValueError({LEAK})", "Your code raised ValueError there."),
        (f"raise type({LEAK}, (Exception,), {{}})", "Your code raised an exception there."),
        (f"raise NotImplementedError({LEAK})", "Your code raised NotImplementedError there."),
        ("raise NotImplementedError", "It raises NotImplementedError."),
        (f"return type({LEAK}, (), {{}})()", "another kind"),
        (f"print({LEAK})\nqueries.detach().zero_()\nreturn 0 * queries.sum()", "shape"),
        ("import os\nos._exit(0)", "ended before it answered"),
    ],
)
def test_an_answer_that_knows_the_notebook_earns_nothing_and_tells_nothing(graded, exam, otherwise, said):
    found = graded(right(e2=only_where_visible("04.2", otherwise)))
    assert points(found) == FULL | {"04.2": 0}
    for part in item(found, "04.2").parts:
        assert part.finding.message.startswith(ELSEWHERE) and said in part.finding.message
        assert part.example == ()
    holds_no_hidden_number(found, exam, "04.2")


def holds_no_hidden_number(found: Grade, exam: Exam, id: str) -> None:
    text = json.dumps(found.as_dict())
    for key in exam.keys[id][1:]:
        for part in key.cases:
            for inputs in part:
                for value in inputs["queries"].flatten().tolist():
                    assert len(str(value)) < 7 or str(value) not in text  # short ones occur by chance


def test_a_patched_ask_cannot_carry_hidden_inputs_out(graded, exam):
    patch = (
        "from course_utils.questions import asking\n"
        "def told(inputs, tensors):\n    return [str(v) for v in inputs.values()]\n"
        "asking.changed = told"
    )
    found = graded(with_cell(right(), patch))
    assert found.points < found.out_of
    holds_no_hidden_number(found, exam, "04.2")
    assert all(len(part.finding.message) < 300 for one in found.items for part in one.parts if part.finding)


@pytest.mark.parametrize(
    "value",
    ["None", "'text'", "7", "[]", "{}", "numpy.zeros(3)", "numpy.array([1, 2])", "numpy.array(True)", "True"],
)
def test_forged_replies_are_judged_as_what_they_are(graded, value):
    patch = (
        "import numpy\nfrom course_utils.questions import asking\n"
        f"asking.array = lambda *rest: {value}\nasking.number = lambda *rest: {value}\n"
        f"asking.changed = lambda *rest: {value}\n"
    )
    found = graded(with_cell(right(), patch))
    assert points(found)["04.1"] == points(found)["04.2"] == 0


def test_a_death_costs_the_exercise_alone(graded):
    found = graded(right(e2="def additive_scores(*rest):\n    import os\n    os._exit(0)"))
    assert points(found) == FULL | {"04.2": 0}
    assert outcomes(found)["04.2"] == "died"


def test_a_cell_that_raises_or_kills_is_said_and_costs_no_other(graded):
    found = graded(with_cell(with_cell(right(), "1 / 0"), "import os; os._exit(1)"))
    assert points(found) == FULL
    assert len(found.notes) == 2 and "ZeroDivisionError" in " ".join(found.notes)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_precision_works_where_answers_run(graded, dtype):
    """float16 needs to know the processor, from files that are out of sight in the jail."""
    cell = f"import torch\nx = torch.ones(3, 4, dtype=torch.{dtype})\n(x @ x.T).softmax(-1).float().exp()\n"
    cell += "torch.nn.GRU(4, 2).to(x.dtype)(x[None])"
    assert graded(with_cell(exercises(), cell)).notes == ()


def test_a_missing_answer_costs_itself(graded):
    notebook = right()
    notebook["cells"] = [
        c for c in notebook["cells"] if c["metadata"].get("course", {}).get("exercise") != "04.3"
    ]
    found = graded(notebook)
    assert points(found) == FULL | {"04.3": 0} and outcomes(found)["04.3"] == "missing"
    assert "no cell answers it" in item(found, "04.3").notes[0]


def test_a_renamed_function_is_graded(graded):
    found = graded(right(e2=alone("04.2").replace("additive_scores", "my_scores")))
    assert points(found) == FULL and "my_scores" in item(found, "04.2").notes[0]


def test_a_shortcut_is_flagged_and_costs_nothing(graded, exam):
    name = next(forbidden for e in exam.exercises for forbidden in e.forbidden if e.id == "04.1")
    source = alone("04.1").replace(
        "def masked_softmax(", f"import torch\ndef unused(x):\n    return {name}\n\ndef masked_softmax("
    )
    assert item(graded(right(e1=source)), "04.1").points == 2  # one that the answer does not use


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"", "empty"), (b"{", "not JSON"), (b"%PDF \xff", "PDF"), (b'{"cells": []}', "no code")],
)
def test_what_cannot_be_read_has_every_row(graded, data, said):
    found = graded(data)
    assert list(points(found)) == list(FULL) and found.points == 0 and found.out_of == 10
    assert said in found.notes[0]
    assert set(outcomes(found).values()) == ({"missing"} if "no code" in said else {"unreadable"})


def test_who_handed_in_no_file_is_missing_not_unreadable(graded):
    found = graded(None, problem=NOTHING, notes=("late by a week",))
    assert set(outcomes(found).values()) == {"missing"} and found.notes == ("late by a week", NOTHING)
    assert set(outcomes(graded(None, problem="a .pdf file")).values()) == {"unreadable"}


def test_a_notebook_of_another_lesson_is_said(graded):
    found = graded(right("03"))
    assert found.points == 0 and found.out_of == 10
    assert found.notes[0] == "a notebook of lesson 03; graded as lesson 04"


def test_the_same_seed_gives_the_same_grade_and_another_asks_others(exam):
    def inputs(other: Exam) -> list[bytes]:
        return [key.cases[0][0]["scores"].tobytes() for key in other.keys["04.1"]]

    assert inputs(Exam("04", seed=11, hidden=2)) == inputs(exam)
    other = inputs(Exam("04", seed=12, hidden=3))
    assert other[0] == inputs(exam)[0] and not set(other[1:]) & set(inputs(exam))
    assert len(set(other)) == 4


def test_grading_twice_gives_the_same(graded):
    first, second = (graded(answered({"04.2": solutions()["04.2"]})) for _ in range(2))
    same = [
        replace(found, seconds=0, items=tuple(replace(i, seconds=0) for i in found.items))
        for found in (first, second)
    ]
    assert same[0] == same[1] and first.points == 2


def test_the_grader_has_run_nothing_of_a_student(graded):
    graded(with_cell(right(), "import sys\nsys.handed_in = True"))
    assert not hasattr(sys, "handed_in")


def test_there_is_no_such_lesson():
    with pytest.raises(LookupError, match=re.escape("no lesson")):
        Exam("99", seed=1)
