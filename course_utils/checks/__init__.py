"""Checks of the exercises: `check("04.1", masked_softmax)` gives the verdict, `summary("04")` the points."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from course_utils.checks import engine
from course_utils.checks.engine import Exercise, Verdict
from course_utils.questions import find as find_question
from course_utils.questions import questions

__all__ = ["check", "exercises", "find", "summary", "verdict"]

SEED = 4  # of the cases that a notebook shows; grading draws others
_latest: dict[str, Verdict] = {}


def exercises(lesson: str) -> list[Exercise]:
    """All exercises of a lesson ("04"), in order. Raises LookupError for a lesson that has none."""
    questions(lesson)
    return importlib.import_module(f"{__name__}.lesson{lesson}").EXERCISES


def find(id: str) -> Exercise:
    """The exercise with this id ("04.1"). Raises LookupError that names the ids there are."""
    question = find_question(id)
    return next(exercise for exercise in exercises(id.partition(".")[0]) if exercise.question is question)


def check(id: str, answer: Callable) -> int | None:
    """Print what is right and what is wrong with an answer, and remember its points for `summary`.

    Returns nothing, but while nbgrader grades or validates: the points, which it takes for those of the cell.

    Never raises for a wrong answer; what the answer itself raises is shown, short, with its line.
    """
    try:
        exercise = find(id)
    except LookupError as error:
        print(error)
        return None
    problem = _not_an_answer(exercise, answer)
    if problem:
        _latest.pop(id, None)
        print(f"{exercise.id} {exercise.title}: {problem}")
        return _hold(0, exercise.points)
    _latest[id] = found = verdict(exercise, answer)
    print(found.text())
    return _hold(found.points, found.out_of)


def verdict(exercise: Exercise, answer: Callable) -> Verdict:
    """What the checks of a notebook say of an answer: draw, ask and judge, with the notebook's seed."""
    cases = engine.draw(exercise, SEED)
    return engine.judge(exercise, cases, engine.ask(exercise, answer, cases))


def _not_an_answer(exercise: Exercise, answer: Any) -> str:
    if not callable(answer):
        return (
            f"the check wants the function itself, not its result (this is of type {type(answer).__name__}): "
            f'check("{exercise.id}", {exercise.function}), without brackets after the name.'
        )
    name = getattr(answer, "__name__", "")
    for other in exercises(exercise.id.partition(".")[0]):
        if other is not exercise and type(name) is str and name == other.function:
            return f"{name} is the answer to {other.id}; the one to check here is {exercise.function}."
    return ""


def summary(lesson: str) -> None:
    """Print the points of every exercise of a lesson, as last checked in this notebook, and their total."""
    try:
        offered = exercises(lesson)
    except LookupError as error:
        print(error)
        return
    width = max(len(exercise.title) for exercise in offered)
    earned = 0
    for exercise in offered:
        found = _latest.get(exercise.id)
        if found is None:
            said = f"not checked yet (0 of {exercise.points})"
        elif not found.answered:
            said = f"not answered yet (0 of {exercise.points})"
        else:
            earned += found.points
            said = f"{found.points} of {exercise.points}"
        print(f"{exercise.id}  {exercise.title:<{width}}  {said}")
    possible = sum(exercise.points for exercise in offered)
    print(f"Lesson {lesson}: {earned} of {possible} points")
    _hold(earned, possible)


def _hold(earned: int, possible: int) -> int | None:
    """Under nbval, raise for missing points; under nbgrader, give those earned.

    nbval compares what a cell prints with what the notebook stores. A reader who runs and saves the notebook
    stores their own verdicts, and a wrong one would agree with itself.
    """
    if "::Cell " in os.environ.get("PYTEST_CURRENT_TEST", "") and earned < possible:
        raise AssertionError(f"{earned} of {possible} points")
    return earned if "NBGRADER_EXECUTION" in os.environ else None
