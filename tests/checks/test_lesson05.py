"""The exercises of lesson 05: what their texts promise; references agree with the course's models."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine import plain
from test_solutions import cells, functions

from course_utils import checks
from course_utils.checks import engine, lesson05
from course_utils.models import AdditiveScore, DotScore, GeneralScore, LocalAttention
from course_utils.questions.lesson05 import LOCAL_ARGUMENTS

SEEDS = st.integers(0, 10_000)
MANY = settings(deadline=None, max_examples=25)
tensor = torch.tensor


def close(found, expected, atol=5e-5):
    torch.testing.assert_close(found, expected, atol=atol, rtol=0)


def test_minutes_and_points_at_the_top():
    top = " ".join(cells("05")[0].source.split())
    offered = checks.exercises("05")
    assert f"{sum(e.points for e in offered)} points, about {sum(e.minutes for e in offered)} minutes" in top
    assert [e.points for e in offered] == [3, 1, 3, 2, 1]


def test_tiny_examples():
    """The numbers in the text come out of the solutions."""
    answers = functions("05")

    given = tensor([[[1.0, 2]]]), tensor([[[1.0, 0], [0, 1], [1, 1]]])
    W, both = tensor([[1.0, 2], [0, 1]]), tensor([[1.0, 0, 0, 1], [0, 1, 1, 0]])
    assert answers["luong_scores"]("dot", *given, None, None).tolist() == [[[1, 2, 3]]]
    assert answers["luong_scores"]("general", *given, W, None).tolist() == [[[1, 4, 5]]]
    close(
        answers["luong_scores"]("concat", *given, both, torch.ones(2)), tensor([[[1.7566, 1.9281, 1.9591]]])
    )

    states, encoder_states = tensor([[[0.5]]]), tensor([[[4.0], [8]]])
    weights, W_c = tensor([[[0.25, 0.75]]]), tensor([[0.1, 1]])
    close(answers["attentional_states"](states, encoder_states, weights, W_c), tensor([[[0.8337]]]))

    stepped = []

    def rnn(x, state):  # steps to 0.5, whatever it reads
        stepped.append(x.flatten().tolist())
        return tensor([[[0.5]]]), tensor([[[0.5]]])

    attentional, weights = answers["decode"](
        tensor([[[0.1], [0.2]]]), torch.zeros(1, 1, 1), tensor([[[1.0], [3]]]), tensor([[True, True]]),
        tensor([[1.0]]), tensor([[0.2, 0.4]]), rnn, True,
    )  # fmt: skip
    close(weights[:, 0], tensor([[0.2689, 0.7311]]))
    close((weights @ tensor([[[1.0], [3]]]))[0, 0], tensor([2.4621]), atol=1e-4)
    close(attentional[:, 0], tensor([[0.5995]]))
    close(tensor(stepped), tensor([[0.1, 0], [0.2, 0.5995]]))

    even = torch.zeros(1, 1, 5), tensor([[[1.0]]]), torch.ones(1, 5, dtype=torch.bool)
    v_p = torch.logit(tensor([2.4 / 5])) / torch.tanh(tensor(1.0))
    weights, centre = answers["local_weights"](*even, tensor([[1.0]]), v_p, 2)
    close(centre, tensor([[2.4]]))
    close(weights, tensor([[[0, 0.0938, 0.2308, 0.2088, 0.0695]]]))

    score = answers["as_additive"](tensor([[1.0, 2, 3]]), tensor([2.0]), 1)
    assert score.query.weight.tolist() == [[1]] and score.key.weight.tolist() == [[2, 3]]
    assert score.v.tolist() == [2]
    found = score(tensor([[[0.5]]]), score.project_keys(tensor([[[0.1, -0.2]]])))
    close(found, tensor([[[0.1993]]]))


@MANY
@given(SEEDS, st.sampled_from(["dot", "general", "concat"]))
def test_reference_scores_are_the_courses(seed, kind):
    rng = np.random.default_rng(seed)
    *shape, query, key, attention = map(int, rng.integers(1, 6, size=6))
    key = query if kind == "dot" else key
    inputs = lesson05._score_inputs(rng, kind, *shape, query, key, attention)
    s, h = (tensor(inputs[name]) for name in ("queries", "keys"))
    with torch.no_grad():
        if kind == "concat":
            score = AdditiveScore(query, key, attention)
            score.query.weight.copy_(tensor(inputs["W"][:, :query]))
            score.key.weight.copy_(tensor(inputs["W"][:, query:]))
            score.v.copy_(tensor(inputs["v"]))
        else:
            score = (DotScore if kind == "dot" else GeneralScore)(query, key)
            if kind == "general":
                score.key.weight.copy_(tensor(inputs["W"]))
        found = score(s, score.project_keys(h))
    np.testing.assert_allclose(lesson05._scores_reference(inputs)["scores"], found, atol=1e-5)


@MANY
@given(SEEDS, st.booleans(), st.integers(1, 3))
def test_reference_loop_is_pytorchs_gru(seed, feeding, layers):
    """A plain loop around nn.GRU in float64, and for one layer the general score of the course."""
    rng = np.random.default_rng(seed)
    inputs = lesson05._loop_inputs(rng, feeding=feeding, layers=layers, **lesson05._any_sizes(rng))
    inputs = {
        k: a.astype("float64") if getattr(a, "dtype", None) == "float32" else a for k, a in inputs.items()
    }
    width = inputs["weight_ih_l0"].shape[1]
    hidden = inputs["W_a"].shape[0]
    rnn = torch.nn.GRU(width, hidden, layers, batch_first=True, dtype=torch.float64)
    rnn.load_state_dict({name: tensor(inputs[name]) for name in rnn.state_dict()})
    given = [tensor(inputs[name]) for name in lesson05.LOOP_ARGUMENTS]
    with torch.no_grad():
        found = functions_of_05()["decode"](*given, rnn, feeding)
    expected = lesson05._loop_reference(inputs)
    for name, value in zip(("attentional", "weights"), found, strict=True):
        np.testing.assert_allclose(expected[name], value, atol=1e-10)


ANSWERS: dict = {}


def functions_of_05():
    return ANSWERS or ANSWERS.update(functions("05")) or ANSWERS


@MANY
@given(SEEDS)
def test_reference_of_local_p_is_the_courses(seed):
    """LocalAttention, given a score that returns the drawn scores."""
    for inputs in lesson05._draw_local(seed):
        scores, states, mask, W_p, v_p = (
            tensor(inputs[name]).double() if name != "mask" else tensor(inputs[name])
            for name in LOCAL_ARGUMENTS
            if name != "reach"
        )
        layer = LocalAttention(
            lambda query, keys, scores=scores: scores, states.shape[-1], reach=inputs["reach"]
        )
        layer = layer.double()
        layer.centre[0].weight = torch.nn.Parameter(W_p)
        layer.centre[2].weight = torch.nn.Parameter(v_p[None])
        keys = scores.new_zeros(len(mask), mask.shape[1], 1)
        places = torch.zeros(scores.shape[:2], dtype=torch.int64)
        _, weights = layer(states, keys, keys, mask, places)
        weights = weights / weights.sum(-1, keepdim=True)
        np.testing.assert_allclose(
            lesson05._local_reference(inputs)[lesson05.SHARES], weights.detach(), atol=1e-10
        )


@MANY
@given(SEEDS)
def test_windows_reach_both_ends(seed):
    """Some window begins before the sentence (loc-02), and some centre lies on the last word (padding)."""
    for inputs in (*lesson05._draw_centre(seed), *lesson05._draw_local(seed)):
        centre, length = lesson05._local_centre(inputs)[0], inputs["mask"][0].sum()
        assert np.ceil(centre - inputs["reach"]).min() < 0 and centre.max() > length - 1


@pytest.mark.parametrize("answer", [lambda W, v, n: None, lambda W, v, n: torch.nn.Linear(2, 2)])
def test_something_that_is_no_additive_score(answer):
    exercise = checks.find("05.5")
    cases = engine.draw(exercise, 0)
    verdict = engine.judge(exercise, cases, engine.ask(exercise, answer, cases))
    assert verdict.points == 0 and ("AdditiveScore is wanted" in verdict.text() or "None" in verdict.text())


@pytest.mark.parametrize("id", ["05.3", "05.5"])
def test_a_check_leaves_the_readers_seed_alone(id):
    exercise = checks.find(id)
    cases = engine.draw(exercise, 0)
    torch.manual_seed(7)
    before = torch.get_rng_state()
    engine.ask(exercise, exercise.variants[0].answer, cases)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("exercise", checks.exercises("05"), ids=lambda e: e.id)
def test_cases_and_replies_are_plain(exercise):
    cases = engine.draw(exercise, 0)
    replies = engine.ask(exercise, exercise.variants[0].answer, cases)
    assert plain(cases) and plain([r.outputs for part in replies for r in part])
