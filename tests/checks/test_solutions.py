"""The solutions' texts: what stands in them is what passes, and what they promise is what is judged."""

import re
from pathlib import Path

import jupytext
import pytest
import torch

from course_utils import checks
from course_utils.checks import engine

ROOT = Path(__file__).parents[2]
TEXTS = sorted((ROOT / "solutions").glob("*.py"))
EXERCISES = [exercise for text in TEXTS for exercise in checks.exercises(text.name[:2])]


def cells(lesson):
    (text,) = (ROOT / "solutions").glob(f"{lesson}_*.py")
    return jupytext.reads(text.read_text(encoding="utf-8"), fmt="py:percent").cells


def tagged(lesson, tag):
    (cell,) = [cell for cell in cells(lesson) if tag in cell.metadata.get("tags", [])]
    return cell


def functions(lesson, stub=False):
    """The names that the imports and the answer cells define, with or without their solutions."""
    namespace = {}
    for cell in cells(lesson):
        tags = cell.metadata.get("tags", [])
        source = cell.source
        if cell.cell_type != "code" or not (
            source.startswith("import") or any("exercise:" in t for t in tags)
        ):
            continue
        if stub:
            source = re.sub(
                r"### BEGIN SOLUTION.*?### END SOLUTION",
                f'raise NotImplementedError("{tags[0][9:] if tags else ""}: write this function")',
                source,
                flags=re.DOTALL,
            )
        exec(compile(source, f"<{tags}>", "exec"), namespace)
    return namespace


def verdict(exercise, answer, seed=checks.SEED):
    cases = engine.draw(exercise, seed)
    return engine.judge(exercise, cases, engine.ask(exercise, answer, cases))


def test_all_lessons_with_exercises_have_solutions():
    modules = sorted(path.stem[-2:] for path in (ROOT / "course_utils/checks").glob("lesson[0-9][0-9].py"))
    assert [text.name[:2] for text in TEXTS] == modules != []


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
def test_solution_passes_for_many_seeds(exercise):
    answer = functions(exercise.id[:2])[exercise.function]
    for seed in range(12):
        result = verdict(exercise, answer, seed)
        assert result.points == exercise.points, f"seed {seed}\n{result.text()}"


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
def test_untouched_stub_is_not_answered(exercise):
    answer = functions(exercise.id[:2], stub=True)[exercise.function]
    assert not verdict(exercise, answer).answered


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
def test_text_promises_what_is_judged(exercise):
    markdown = [cell.source for cell in cells(exercise.id[:2]) if cell.cell_type == "markdown"]
    (task,) = [source for source in markdown if source.startswith(f"## {exercise.id} · ")]
    stars = "★" * exercise.difficulty + "☆" * (3 - exercise.difficulty)
    words = {1: "easy", 2: "medium", 3: "hard"}[exercise.difficulty]
    unit = "point" if exercise.points == 1 else "points"
    box = f"> **{exercise.points} {unit} · about {exercise.minutes} minutes · {words} {stars}**"
    assert box in task and "**A tiny example.**" in task

    answer = tagged(exercise.id[:2], f"exercise:{exercise.id}").source
    arguments = re.search(rf"def {exercise.function}\((.*?)\) ->", answer, re.DOTALL)[1]
    names = re.findall(r"(?:^|[(,\n])\s*(\w+):", arguments)
    assert f"{exercise.function}({', '.join(names)})" == exercise.signature
    assert '"""' in answer

    check = tagged(exercise.id[:2], f"check:{exercise.id}")
    assert check.source == f'check("{exercise.id}", {exercise.function})'
    assert "nbval-check-output" in check.metadata.tags
    (hints,) = [
        source for source in markdown if source.startswith("<details>") and _follows(source, check, exercise)
    ]
    assert [hints.count(f"<summary>Hint {n}: ") for n in (1, 2, 3)] == [1, 1, 1]
    assert hints.count("<details>") == hints.count("</details>") == 3


def _follows(source, check, exercise):
    sources = [cell.source for cell in cells(exercise.id[:2])]
    return sources.index(source) == sources.index(check.source) + 1


def test_minutes_and_points_at_the_top_of_lesson_04():
    top = " ".join(cells("04")[0].source.split())
    offered = checks.exercises("04")
    assert f"{sum(e.points for e in offered)} points, about {sum(e.minutes for e in offered)} minutes" in top
    assert sum(e.points for e in offered) == 10


def test_tiny_examples_of_lesson_04():
    """The numbers in the text come out of the solutions."""
    answers = functions("04")
    tensor, close = torch.tensor, torch.testing.assert_close

    scores, words = tensor([[[1.0, 2, 3]]]), tensor([[True, True, False]])
    close(answers["masked_softmax"](scores, words), tensor([[[0.2689, 0.7311, 0]]]), atol=5e-5, rtol=0)
    assert (answers["masked_softmax"](scores, words & False) == 0).all()

    scores = answers["additive_scores"](
        tensor([[[1.0, 0]]]),
        tensor([[[1.0], [0], [-2]]]),
        torch.eye(2),
        tensor([[1.0], [-1]]),
        tensor([1.0, 2]),
    )
    close(scores, tensor([[[-0.5592, 0.7616, 1.1665]]]), atol=5e-5, rtol=0)

    context, weights = answers["bidirectional_context"](
        tensor([[[0, 1.0986]]]), tensor([[[1.0], [2]]]), tensor([[[10.0], [20]]]), tensor([[True, True]])
    )
    close(weights, tensor([[[0.25, 0.75]]]), atol=5e-5, rtol=0)
    close(context, tensor([[[1.75, 12.5]]]), atol=5e-4, rtol=0)

    cell = torch.nn.GRUCell(3, 1)
    state, context, weights = answers["decoder_step"](
        tensor([[0.5]]), tensor([[0.1]]), torch.eye(2)[None], tensor([[True, True]]),
        tensor([[1.0]]), tensor([[1.0, -1]]), tensor([2.0]), cell,
    )  # fmt: skip
    close(weights, tensor([[0.9390, 0.0610]]), atol=5e-5, rtol=0)
    close(context, weights)
    close(state, cell(tensor([[0.1, *context[0]]]), tensor([[0.5]])))

    rate = answers["alignment_error_rate"]([{(0, 0), (0, 2), (1, 2)}], [{(0, 0), (1, 2), (2, 1)}], [{(0, 2)}])
    assert rate == pytest.approx(0.1667, abs=5e-5)
