"""Every exercise: the stub fails politely, each mistake gets its own finding, each variant passes."""

import importlib.util

import pytest

from course_utils import checks
from course_utils.checks import engine

LESSONS = [f"{n:02d}" for n in range(1, 9) if importlib.util.find_spec(f"course_utils.checks.lesson{n:02d}")]
EXERCISES = [exercise for lesson in LESSONS for exercise in checks.exercises(lesson)]
MISTAKES = [(exercise, mistake) for exercise in EXERCISES for mistake in exercise.mistakes]
VARIANTS = [(exercise, variant) for exercise in EXERCISES for variant in exercise.variants]


def verdict(exercise, answer, seed=checks.SEED):
    cases = engine.draw(exercise, seed)
    return engine.judge(exercise, cases, engine.ask(exercise, answer, cases))


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
def test_stub(exercise):
    def stub(*arguments):
        raise NotImplementedError(f"{exercise.id}: write this function")

    result = verdict(exercise, stub)
    assert not result.answered and result.points == 0
    assert "not answered yet" in result.text() and "Error" not in result.text()


@pytest.mark.parametrize("seed", [checks.SEED, 11])
@pytest.mark.parametrize(("exercise", "mistake"), MISTAKES, ids=lambda x: getattr(x, "id", None) or x.name)
def test_mistake(exercise, mistake, seed):
    result = verdict(exercise, mistake.answer, seed)
    failed = [part for part in result.parts if part.points == 0]
    assert failed, "passes every part"
    assert {part.finding.mistake for part in failed} == {mistake.name}
    assert mistake.look in " ".join(result.text().split())
    assert all(len(part.example) <= 15 for part in failed)


@pytest.mark.parametrize(("exercise", "variant"), VARIANTS, ids=lambda x: getattr(x, "id", None) or x.name)
def test_variant(exercise, variant):
    for seed in range(10):
        result = verdict(exercise, variant.answer, seed)
        assert result.points == exercise.points, result.text()
