"""The exercises of lesson 01: what their texts promise, and references that are right."""

import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_engine import plain
from test_solutions import cells, functions

from course_utils import checks
from course_utils.checks import engine, lesson01
from course_utils.probes import gradient_norms, scale_to_radius_, spectral_radius
from course_utils.questions.lesson01 import CELLS

SEEDS = st.integers(0, 10_000)


def test_minutes_and_points_at_the_top():
    top = " ".join(cells("01")[0].source.split())
    offered = checks.exercises("01")
    assert f"{sum(e.points for e in offered)} points, about {sum(e.minutes for e in offered)} minutes" in top
    assert sum(e.points for e in offered) == 10


def test_tiny_examples():
    """The numbers in the text come out of the solutions."""
    answers = functions("01")
    tensor = torch.tensor

    def close(found, expected):
        torch.testing.assert_close(found, expected, atol=5e-5, rtol=0)

    states = answers["rnn_forward"](
        tensor([[[1.0], [-1]]]), tensor([[0.5, -0.5]]),
        tensor([[1.0], [0]]), tensor([[0.0, 2], [1, 0]]), tensor([0, 0.5]),
    )  # fmt: skip
    close(states, tensor([[[0, 0.7616], [0.4802, 0.4621]]]))

    x, h0, W_h = torch.ones(1, 2, 1), tensor([[0.8]]), tensor([[0.5]])
    states = answers["rnn_forward"](x, h0, torch.ones(1, 1), W_h, torch.zeros(1))
    close(states, tensor([[[0.8854], [0.8942]]]))
    found = answers["bptt"](x, h0, states, W_h, tensor([[[0.0], [1]]]))
    for gradient, expected in zip(found, (0.2220, 0.1947, 0.2220, 0.0108), strict=True):
        close(gradient.squeeze(), tensor(expected))

    norms = answers["gradient_norms"](
        lambda x, h: 0.5 * h, torch.zeros(1, 3, 1), torch.zeros(1, 2), tensor([3.0, 4])
    )
    close(norms, tensor([[0.625, 1.25, 2.5, 5]]))

    gradients = [tensor([3.0, 0]), tensor([[4.0]])]
    for limit, expected in ((1, (0.6, 0.8)), (10, (3, 4))):
        clipped, norm = answers["clip_by_global_norm"](gradients, limit)
        assert norm == pytest.approx(5)
        assert (clipped[0][0].item(), clipped[1].item()) == pytest.approx(expected)

    turn = tensor([[0, 2], [-0.5, 0]])
    scaled, factor = answers["scale_and_predict"](turn, 0.9, tensor([[0, 0.6]]), 2)
    close(scaled, tensor([[0, 1.8], [-0.45, 0]]))
    assert factor == pytest.approx(0.5709, abs=5e-5)

    for symbols, horizon in ((2, 5), (4, 20)):
        assert answers["memory_horizon"]([5, 10, 20], [0.9, 0.7, 0.95], symbols) == horizon


@given(SEEDS)
def test_reference_gradients_are_those_of_autograd(seed):
    """The states that `bptt` is given stand for a network; its gradients are what autograd finds for it."""
    sizes = np.random.default_rng(seed).integers(1, 6, size=4)
    inputs = lesson01._backward_inputs(np.random.default_rng(seed), *map(int, sizes), dtype="float64")
    leaves = {name: torch.tensor(inputs[name], requires_grad=True) for name in lesson01.FORWARD_ARGUMENTS[1:]}
    states = lesson01._rnn_forward(torch.tensor(inputs["x"]), *leaves.values())
    np.testing.assert_allclose(states.detach().numpy(), inputs["states"], atol=1e-12)
    found = torch.autograd.grad((states * torch.tensor(inputs["d_states"])).sum(), list(leaves.values()))
    expected = lesson01._bptt_reference(inputs)
    for name, gradient in zip(("h0", "W_x", "W_h", "b"), found, strict=True):
        np.testing.assert_allclose(gradient.numpy(), expected[f"d{name}"], atol=1e-10)


@given(SEEDS, st.sampled_from(["rnn", "gru"]))
def test_reference_norms_are_those_of_the_probes(seed, cell):
    """Central differences against autograd, in float64."""
    rng = np.random.default_rng(seed)
    inputs = lesson01._norm_inputs(rng, cell, 1, *(int(n) for n in rng.integers(1, 5, size=3)))
    hidden = inputs["weight_hh"].shape[1]
    layer = CELLS[cell](inputs["x"].shape[-1], hidden).double()
    layer.load_state_dict({name: torch.tensor(inputs[name]) for name in lesson01.CELL_WEIGHTS})
    states = lesson01._run(layer, torch.tensor(inputs["x"]).double(), torch.tensor(inputs["h0"]).double())
    loss = (states[-1] @ torch.tensor(inputs["direction"]).double()).sum()
    np.testing.assert_allclose(
        lesson01._norms_reference(inputs)["norms"][0], gradient_norms(loss, states), rtol=1e-4, atol=1e-8
    )


@given(SEEDS)
def test_reference_clipping_is_torchs(seed):
    for inputs in lesson01._draw_clip(seed):
        parameters = [
            torch.nn.Parameter(torch.zeros(g.shape, dtype=torch.float64)) for g in inputs["gradients"]
        ]
        for parameter, gradient in zip(parameters, inputs["gradients"], strict=True):
            parameter.grad = torch.tensor(gradient)
        norm = torch.nn.utils.clip_grad_norm_(parameters, inputs["max_norm"])
        expected = lesson01._clip_reference(inputs)
        assert norm.item() == pytest.approx(float(expected["norm"]))
        for i, parameter in enumerate(parameters):
            np.testing.assert_allclose(parameter.grad.numpy(), expected[f"clipped at {i}"], rtol=1e-5)


@given(SEEDS)
def test_reference_radius_is_the_probes(seed):
    for inputs in lesson01._draw_decay(seed):
        matrix = torch.tensor(inputs["W_h"])
        scale_to_radius_(matrix, inputs["radius"])
        expected = lesson01._decay_reference(inputs)
        np.testing.assert_allclose(matrix.numpy(), expected["scaled"], rtol=1e-9)
        assert spectral_radius(torch.tensor(expected["scaled"])) == pytest.approx(inputs["radius"])


@pytest.mark.parametrize("seed", range(5))
def test_the_cases_of_the_horizon_reach_every_corner(seed):
    found = [float(lesson01._horizon_reference(inputs)["horizon"]) for inputs in lesson01._draw_horizon(seed)]
    cases = lesson01._draw_horizon(seed)
    assert 0.0 in found and any(h == max(inputs["lags"]) for h, inputs in zip(found, cases, strict=True))
    assert any(inputs["lags"] != sorted(inputs["lags"]) for inputs in cases)
    assert {inputs["symbols"] for inputs in cases} == {2, 4, 8}
    half = [(a - 1 / c["symbols"]) / (1 - 1 / c["symbols"]) for c in cases for a in c["accuracies"]]
    assert half.count(0.5) >= 2 and all(math.isfinite(share) for share in half)


@pytest.mark.parametrize("exercise", checks.exercises("01"), ids=lambda e: e.id)
def test_what_passes_between_the_steps_is_plain(exercise):
    """Through pickle and back, as between two processes, the verdict is the same."""
    cases = engine.draw(exercise, 3)
    for answer in (exercise.variants[0].answer, exercise.mistakes[0].answer):
        replies = engine.ask(exercise, answer, pickle.loads(pickle.dumps(cases)))
        assert all(plain(inputs) for part in cases for inputs in part)
        assert all(plain(reply.outputs) for part in replies for reply in part if reply.outputs is not None)
        sent = pickle.loads(pickle.dumps(replies))
        assert engine.judge(exercise, cases, sent) == engine.judge(exercise, cases, replies)


def test_the_inputs_of_bptt_leave_no_way_around_it():
    """Neither W_x nor b is given: the forward pass cannot be run again for autograd to follow."""
    for part in engine.draw(checks.find("01.2"), 0):
        for inputs in part:
            assert tuple(inputs) == lesson01.BPTT_ARGUMENTS
