"""The questions: the same exercises as the checks have, and nothing in them that answers one."""

import dataclasses
import subprocess
import sys

import pytest

from course_utils import checks, questions
from course_utils.checks import engine

LESSONS = [f"{n:02d}" for n in range(1, 9)]


@pytest.mark.parametrize("lesson", LESSONS)
def test_each_exercise_is_asked_by_its_question(lesson):
    assert tuple(exercise.question for exercise in checks.exercises(lesson)) == questions.questions(lesson)
    assert all(questions.find(question.id) is question for question in questions.questions(lesson))


def test_questions_that_there_are_not():
    for wrong, message in (("04.9", "There are 04.1, 04.2"), ("9.1", 'no lesson "9"'), (4, "a text such as")):
        with pytest.raises(LookupError, match=message):
            questions.find(wrong)
    with pytest.raises(LookupError, match="There is no lesson"):
        questions.questions("../x")


def test_the_questions_come_without_the_answers():
    """What a process imports that has to ask, and nothing else: no module with right outputs or mistakes."""
    code = (
        "import sys; from course_utils.questions import questions\n"
        f"for lesson in {LESSONS}: questions(lesson)\n"
        "print([name for name in sys.modules if name.startswith('course_utils.')])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    parts = {name.split(".")[1] for name in eval(run.stdout)}
    assert parts <= {"questions", "models"}


@pytest.mark.parametrize("lesson", LESSONS)
def test_nothing_in_the_questions_of_a_lesson_answers_one(lesson):
    module = sys.modules[f"course_utils.questions.lesson{lesson}"]
    callables = {name: value for name, value in vars(module).items() if callable(value)}
    functions = {name: value for name, value in callables.items() if value.__module__ == module.__name__}
    assert functions
    for exercise in checks.exercises(lesson):
        exercise = dataclasses.replace(exercise, mistakes=())  # which mistake it is does not matter
        cases = engine.draw(exercise, 0)
        key = engine.Key(exercise, cases)
        for name, function in functions.items():
            replies = engine.ask(exercise.question, function, cases)
            assert engine.judge(exercise, cases, replies, key).points == 0, (exercise.id, name)
