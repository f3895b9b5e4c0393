"""The exercises of lesson 06: what their texts promise, and references that agree with PyTorch."""

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine import plain
from test_solutions import cells, functions

from course_utils import checks
from course_utils.checks import engine, lesson06
from course_utils.models import sinusoidal
from course_utils.questions.lesson06 import layers

SEEDS = st.integers(0, 10_000)


def test_minutes_and_points_at_the_top():
    top = " ".join(cells("06")[0].source.split())
    offered = checks.exercises("06")
    assert f"{sum(e.points for e in offered)} points, about {sum(e.minutes for e in offered)} minutes" in top
    assert sum(e.points for e in offered) == 10


def test_tiny_examples():
    """The numbers in the text come out of the solutions."""
    answers = functions("06")
    tensor, true = torch.tensor, torch.ones(1, 2, 2, dtype=torch.bool)

    def close(found, expected):
        torch.testing.assert_close(found, tensor(expected), atol=5e-5, rtol=0)

    given = tensor([[[2.0, 0]]]), tensor([[[1.0, 5], [0, 5]]]), tensor([[[10.0], [20]]])
    output, weights = answers["attention"](*given, true[:, :1])
    close(weights, [[[0.8044, 0.1956]]])
    close(output, [[[11.9557]]])
    output, weights = answers["attention"](*given, tensor([[[False, True]]]))
    assert weights.tolist() == [[[0, 1]]] and output.item() == 20

    for target, rows in (
        ([7, 4, 1], {0: [1, 0, 0], 1: [1, 1, 0]}),
        ([1, 7, 4], {1: [0, 1, 0], 2: [0, 1, 1]}),
    ):
        _, mask, _ = answers["attention_masks"](tensor([[1, 3]]), tensor([target]), 0, 1)
        for row, expected in rows.items():
            assert mask.expand(1, 3, 3)[0, row].int().tolist() == expected

    x = torch.arange(8.0).reshape(1, 2, 4)
    seen = []
    times_ten = lambda parts: seen.append(parts) or parts * tensor([1.0, 10])[:, None, None]  # noqa: E731
    assert answers["by_head"](x, 2, times_ten).tolist() == [[[0, 1, 20, 30], [4, 5, 60, 70]]]
    assert seen[0].tolist() == [[[[0, 1], [4, 5]], [[2, 3], [6, 7]]]]

    words, eye = torch.eye(2)[None], torch.eye(2)
    output, weights = answers["multi_head"](
        words, words, true, eye.repeat(3, 1), torch.zeros(6), eye, torch.zeros(2), 2
    )
    close(output, [[[0.7311, 0.5], [0.5, 0.7311]]])
    close(weights[:, 0, 0], [[0.7311, 0.2689]])

    encoded = answers["with_positions"](torch.zeros(1, 2, 4))
    close(encoded, [[[0, 1, 0, 1], [0.8415, 0.5403, 0.0100, 0.99995]]])
    assert answers["with_positions"](torch.full((1, 1, 4), 0.5)).tolist() == [[[1, 2, 1, 2]]]

    words, order = tensor([[[1.0], [2], [3]]]), tensor([2, 0, 1])
    layers = {
        True: (lambda x: x + x.mean(1, keepdim=True), [3, 4, 5], [5, 3, 4]),
        False: (lambda x: x + torch.cat([x[:, :1] * 0, x[:, :-1]], 1), [1, 3, 5], [3, 4, 3]),
    }
    for expected, (layer, before, after) in layers.items():
        assert (
            layer(words).flatten().tolist() == before and layer(words[:, order]).flatten().tolist() == after
        )
        assert answers["equivariant"](layer, words) is expected


@settings(deadline=None, max_examples=30)
@given(SEEDS)
def test_reference_attention_is_pytorchs(seed):
    rng = np.random.default_rng(seed)
    inputs = lesson06._dot_inputs(rng, *map(int, rng.integers(1, 6, size=5)), "float64")
    inputs["mask"] = rng.random(inputs["mask"].shape) < 0.5  # empty rows too
    query, key, value, mask = (torch.tensor(inputs[name]) for name in lesson06.DOT_ARGUMENTS)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask)
    np.testing.assert_allclose(lesson06._dot_reference(inputs)["output"], expected, atol=1e-12)


@settings(deadline=None, max_examples=30)
@given(SEEDS)
def test_reference_of_multi_head_attention_is_pytorchs(seed):
    rng = np.random.default_rng(seed)
    batch, target, source, heads, own = map(int, rng.integers(1, 5, size=5))
    inputs = lesson06._multi_head_inputs(rng, batch, target, source, heads, own)
    inputs = {name: a.astype("float64") if name not in ("mask", "heads") else a for name, a in inputs.items()}
    mask = rng.random((batch, target, source)) < 0.5
    mask[..., 0] = True  # PyTorch's module gives NaN for a query that may attend to nothing
    layer = torch.nn.MultiheadAttention(heads * own, heads, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for parameter, name in (
            (layer.in_proj_weight, "W_in"), (layer.in_proj_bias, "b_in"),
            (layer.out_proj.weight, "W_out"), (layer.out_proj.bias, "b_out"),
        ):  # fmt: skip
            parameter.copy_(torch.tensor(inputs[name]))
        hidden = torch.tensor(~mask).repeat_interleave(heads, dim=0)
        x, memory = torch.tensor(inputs["x"]), torch.tensor(inputs["memory"])
        output, weights = layer(x, memory, memory, attn_mask=hidden, average_attn_weights=False)
    found = lesson06._multi_head_reference(inputs | {"mask": mask})
    np.testing.assert_allclose(found["output"], output, atol=1e-10)
    np.testing.assert_allclose(found["weights"], weights, atol=1e-10)


@pytest.mark.parametrize("shape", [(1, 2), (50, 6), (7, 16)])
def test_reference_positions_are_the_courses(shape):
    length, width = shape
    found = sinusoidal(torch.arange(length), width)
    np.testing.assert_allclose(lesson06._table(*shape), found, atol=5e-6)


@given(SEEDS)
def test_masks_by_the_definition(seed):
    """Every entry of the reference's masks, from the sentence that defines it."""
    for inputs in (*lesson06._draw_padding(seed), *lesson06._draw_causal(seed)):
        masks = lesson06._masks_reference(inputs)
        source, target = inputs["source"], inputs["target"]
        for b, t, s in np.ndindex(len(target), target.shape[1], target.shape[1]):
            real = target[b, [t, s]] != inputs["target_pad"]
            assert masks["decoder_mask"][b, t, s] == (real.all() and s <= t)
        for b, t, s in np.ndindex(len(source), target.shape[1], source.shape[1]):
            real = target[b, t] != inputs["target_pad"] and source[b, s] != inputs["source_pad"]
            assert masks["cross_mask"][b, t, s] == real


@given(SEEDS)
def test_a_left_padded_sentence_is_among_the_cases(seed):
    """Only there does the padding mask of a causal decoder hide something from a real word (cm-05)."""
    causal = lesson06._draw_causal(seed)
    assert any((c["target"][:, 0] == c["target_pad"]).any() for c in causal)
    assert any((c["source"] == c["target_pad"]).any() for c in causal)


@given(SEEDS)
def test_cases_of_heads_are_told_apart(seed):
    """More than one head, and sizes that differ, or are equal on purpose (mha-06)."""
    shapes = [(len(c["x"]), c["heads"], c["x"].shape[1]) for c in lesson06._draw_by_head(seed)]
    assert all(heads > 1 for _, heads, _ in shapes)
    assert any(len({*shape}) == 3 for shape in shapes) and any(batch == heads for batch, heads, _ in shapes)


@settings(deadline=None, max_examples=20)
@given(SEEDS)
def test_layers_are_what_they_are_said_to_be(seed):
    """Every order of four words, for every layer of 06.6."""
    inputs = lesson06._equivariant_inputs(np.random.default_rng(seed), 2, 4, 6)
    x = torch.tensor(inputs["x"])
    for name, layer in layers(inputs).items():
        orders = [list(order) for order in permutations(range(4))]
        same = [torch.allclose(layer(x[:, order]), layer(x)[:, order], atol=1e-9) for order in orders]
        assert all(same) == (name in lesson06.EQUIVARIANT_LAYERS), name


def test_a_test_that_draws_leaves_the_readers_seed_alone():
    exercise = checks.find("06.6")
    cases = engine.draw(exercise, 0)
    torch.manual_seed(7)
    before = torch.get_rng_state()
    engine.ask(exercise, lambda layer, x: bool(torch.rand(()) < 2), cases)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "answer", [lambda layer, x: 1, lambda layer, x: None, lambda layer, x: torch.ones(2)]
)
def test_a_verdict_that_is_none(answer):
    exercise = checks.find("06.6")
    cases = engine.draw(exercise, 0)
    verdict = engine.judge(exercise, cases, engine.ask(exercise, answer, cases))
    assert verdict.points == 0 and "True or False is wanted" in verdict.text()


def test_a_mask_without_an_axis_for_those_who_ask():
    exercise = checks.find("06.2")
    cases = engine.draw(exercise, 0)
    for answer in (
        lambda s, t, s_pad, t_pad: (s != s_pad, t != t_pad, s != s_pad),
        lambda s, t, s_pad, t_pad: ((s != s_pad)[:, None], (t != t_pad)[:, None], s != s_pad),
    ):
        verdict = engine.judge(exercise, cases, engine.ask(exercise, answer, cases))
        assert "where is the axis of those who ask?" in " ".join(verdict.text().split())


def test_attend_is_called_once():
    exercise = checks.find("06.3")
    cases = engine.draw(exercise, 0)
    for answer, times in ((lambda x, heads, attend: x, 0), (lambda x, heads, attend: attend(attend(x)), 2)):
        verdict = engine.judge(exercise, cases, engine.ask(exercise, answer, cases))
        assert f"it was called {times} times" in verdict.text()


@pytest.mark.parametrize("exercise", checks.exercises("06"), ids=lambda e: e.id)
def test_cases_and_replies_are_plain(exercise):
    cases = engine.draw(exercise, 0)
    replies = engine.ask(exercise, exercise.variants[0].answer, cases)
    assert plain(cases) and plain([r.outputs for part in replies for r in part])


def test_counting_the_layers_of_06_6_tells_nothing():
    """An answer that knows by heart what is right of the visible cases fails on others."""
    exercise = checks.find("06.6")
    known = engine.Key(exercise, engine.draw(exercise, checks.SEED))
    right = [bool(v) for case in range(2) for v in known.expected(0, case)["verdicts"]]

    def by_heart():
        said = iter(right * 2)
        return lambda layer, x: next(said)

    points = []
    for seed in (checks.SEED, 21, 22):
        cases = engine.draw(exercise, seed)
        replies = engine.ask(exercise.question, by_heart(), cases)
        points.append(engine.judge(exercise, cases, replies).points)
    assert points == [exercise.points, 0, 0]
