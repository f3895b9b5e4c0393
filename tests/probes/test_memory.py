"""Gradients by lag against the Jacobians themselves, the recall task, and the memory horizon."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_utils import probes
from course_utils.models import Recurrent, identity_, long_memory_, orthogonal_
from course_utils.models.recurrent import STEPS
from course_utils.probes import Recaller, gradient_flow, learn_recall, memory_horizon, recall_batch


def test_norms_are_those_of_the_product_of_jacobians():
    torch.manual_seed(0)
    layer, x = Recurrent("rnn", 3, 5).double(), torch.randn(1, 6, 3, dtype=torch.float64)
    states = layer.unroll(x, (torch.zeros(1, 5, dtype=torch.float64, requires_grad=True),))
    direction = torch.randn(5, dtype=torch.float64)
    norms = probes.gradient_norms((states[-1][0] @ direction).sum(), [s[0] for s in states])

    gradient, expected = direction, [direction.norm()]
    for (h,) in states[:0:-1]:
        gradient = ((1 - h[0] ** 2) * gradient) @ layer.rnn.weight_hh_l0  # J_t^T g
        expected.append(gradient.norm())
    np.testing.assert_allclose(norms, [float(e.detach()) for e in reversed(expected)], rtol=1e-12)


def test_the_mean_over_the_batch_is_geometric():
    state = torch.tensor([[3.0, 4.0], [0.6, 0.8]], requires_grad=True)
    norms = probes.gradient_norms((state**2).sum() / 2, [state])
    assert norms == pytest.approx([math.sqrt(5 * 1)])


@pytest.mark.parametrize("kind", STEPS)
def test_flow_of_every_kind(kind):
    torch.manual_seed(0)
    layer, x = Recurrent(kind, 3, 16), torch.randn(4, 12, 3)
    flow = gradient_flow(layer, x)
    assert flow.norms.shape == (13,) and flow.norms[0] == pytest.approx(1, abs=1e-6)
    assert (flow.predicted is None) == (kind in ("gru", "lstm"))
    assert all(p.grad is None for p in layer.parameters())
    with torch.no_grad():
        assert gradient_flow(layer, x).slope == flow.slope


@pytest.mark.parametrize("scale", [0.3, 0.6, 0.9, 1.05])
@pytest.mark.parametrize("seed", range(3))
def test_an_orthogonal_tanh_network_decays_as_predicted(scale, seed):
    torch.manual_seed(seed)
    layer = Recurrent("rnn", 16, 64)
    orthogonal_(layer.rnn, scale)
    flow = gradient_flow(layer, 0.5 * torch.randn(16, 40, 16), skip=3, seed=seed)
    assert flow.slope == pytest.approx(flow.predicted, rel=0.1)


@pytest.mark.parametrize("scale", [0.5, 1.0, 1.5])
def test_an_identity_relu_network_is_exact(scale):
    layer = Recurrent("relu", 3, 8)
    identity_(layer.rnn, scale)
    flow = gradient_flow(layer, torch.zeros(2, 10, 3), state=(torch.ones(2, 8),))
    assert flow.slope == pytest.approx(math.log(scale), abs=1e-6)
    assert flow.predicted == pytest.approx(math.log(scale), abs=1e-6)


def test_the_fit_leaves_out_what_has_no_logarithm():
    assert probes.fitted_slope(np.array([1.0, 0.5, 0.25, 0.0, np.inf])) == pytest.approx(math.log(0.5))
    assert probes.fitted_slope(np.array([9.0, 0.5, 0.25]), skip=1) == pytest.approx(math.log(0.5))
    assert math.isnan(probes.fitted_slope(np.array([1.0, 0.0])))


@given(radius=st.floats(0.01, 10), seed=st.integers(0, 100))
def test_scaling_to_a_radius(radius, seed):
    matrix = torch.randn(6, 6, generator=torch.Generator().manual_seed(seed))
    probes.scale_to_radius_(matrix, radius)
    assert probes.spectral_radius(matrix) == pytest.approx(radius, rel=1e-4)


def test_a_nilpotent_matrix_cannot_be_scaled():
    assert probes.spectral_radius(torch.tensor([[0.0, 1.0], [0.0, 0.0]])) == 0
    with pytest.raises(ValueError, match="spectral radius 0"):
        probes.scale_to_radius_(torch.zeros(3, 3), 1.0)


@given(count=st.integers(1, 20), lag=st.integers(0, 12), symbols=st.integers(1, 9), seed=st.integers(0, 99))
def test_only_the_first_token_of_a_recall_sequence_is_a_symbol(count, lag, symbols, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens, answers = recall_batch(count, lag, symbols=symbols, generator=generator)
    assert tokens.shape == (count, lag + 1)
    assert torch.equal(tokens[:, 0], answers) and (answers < symbols).all()
    assert (tokens[:, 1:] >= symbols).all() and (tokens < 2 * symbols).all()


def test_every_symbol_is_drawn_about_equally_often():
    _, answers = recall_batch(8000, 1, generator=torch.Generator().manual_seed(0))
    counts = answers.bincount(minlength=8)
    assert counts.min() > 850 and counts.max() < 1150


def test_recall_is_learned_and_the_same_each_time():
    def once():
        torch.manual_seed(0)
        model = Recaller("lstm", hidden=24)
        long_memory_(model.layer.rnn, 5.0)
        return learn_recall(model, 5, steps=300, learning_rate=1e-2)

    first, second = once(), once()
    assert first.accuracy > 0.95 and first.steps < 300
    assert first[:2] == second[:2]


def test_an_untrained_model_guesses():
    torch.manual_seed(0)
    learned = learn_recall(Recaller("rnn", hidden=8), 40, steps=0)
    assert learned.steps == 0 and 0.05 < learned.accuracy < 0.25


def test_horizon():
    assert memory_horizon([5, 10, 20, 40], [1.0, 0.95, 0.9, 0.3]) == 20
    assert memory_horizon([40, 5, 20, 10], [0.99, 1.0, 0.2, 0.95]) == 10  # luck beyond a failure
    assert memory_horizon([5, 10], [0.5, 1.0]) == 0
    assert memory_horizon([], []) == 0
    with pytest.raises(ValueError):
        memory_horizon([5, 10], [1.0])
