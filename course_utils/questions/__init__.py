"""How the exercises are asked: what a process with an answer in it has to know, and no right outputs.

course_utils.checks knows the rest of each exercise: its cases, its right outputs and its known mistakes.
"""

from __future__ import annotations

import importlib
import importlib.util

from course_utils.questions.asking import Question

__all__ = ["find", "questions"]


def questions(lesson: str) -> tuple[Question, ...]:
    """The questions of a lesson ("04"), in order. Raises LookupError for a lesson that has none."""
    name = f"{__name__}.lesson{lesson}"
    if not (isinstance(lesson, str) and lesson.isdigit() and importlib.util.find_spec(name)):
        raise LookupError(f'There is no lesson "{lesson}" with exercises. Lessons are written "01" to "08".')
    return importlib.import_module(name).QUESTIONS


def find(id: str) -> Question:
    """The question with this id ("04.1"). Raises LookupError that names the ids there are."""
    if not isinstance(id, str):
        raise LookupError('An exercise is named by a text such as "04.1": check("04.1", your_function).')
    offered = questions(id.partition(".")[0])
    for question in offered:
        if question.id == id:
            return question
    raise LookupError(f'There is no exercise "{id}". There are {", ".join(q.id for q in offered)}.')
