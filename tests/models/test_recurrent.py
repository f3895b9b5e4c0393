import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from course_utils.models import (
    Recurrent,
    SplitGRUCell,
    SplitLSTMCell,
    forget_bias_,
    gates_of,
    identity_,
    long_memory_,
    orthogonal_,
)
from course_utils.models.recurrent import STEPS

KINDS = [(SplitGRUCell, nn.GRUCell), (SplitLSTMCell, nn.LSTMCell)]
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@given(
    batch=st.integers(1, 5),
    length=st.integers(1, 7),
    width=st.integers(1, 6),
    hidden=st.integers(1, 8),
    given_state=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(deadline=None, max_examples=30)
def test_by_hand_equals_torchs_layer(kind, dtype, batch, length, width, hidden, given_state, seed):
    torch.manual_seed(seed)
    layer = Recurrent(kind, width, hidden).to(dtype)
    x = torch.randn(batch, length, width, dtype=dtype, requires_grad=True)
    first = [torch.randn(batch, hidden, dtype=dtype, requires_grad=True) for _ in range(layer.states)]
    upstream = torch.randn(batch, length, hidden, dtype=dtype)
    leaves = [x, *layer.parameters(), *(first if given_state else [])]

    results = []
    for layer.fused in (True, False):
        outputs, state = layer(x, tuple(first) if given_state else None)
        loss = (outputs * upstream).sum() / upstream.numel() + sum(s.mean() for s in state)
        results.append((outputs, state, torch.autograd.grad(loss, leaves)))
    own = layer.rnn(x, _torchs(first)) if given_state else layer.rnn(x)
    tolerance = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    torch.testing.assert_close(results[0], results[1], **tolerance)
    torch.testing.assert_close(own[0], results[1][0], **tolerance)


def _torchs(state):
    first = tuple(s[None] for s in state)
    return first if len(first) > 1 else first[0]


@pytest.mark.parametrize("kind", STEPS)
def test_unrolled_states_begin_with_the_first_and_end_with_the_last(kind):
    torch.manual_seed(0)
    layer = Recurrent(kind, 3, 5)
    x, first = torch.randn(2, 4, 3), tuple(torch.randn(2, 5) for _ in range(layer.states))
    states = layer.unroll(x, first)
    assert len(states) == 5 and states[0] == first
    torch.testing.assert_close(states[-1], layer(x, first)[1])


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="'rnm'; choose one of rnn, relu, gru, lstm"):
        Recurrent("rnm", 2, 3)


def test_gates_of_an_lstm_make_its_states():
    torch.manual_seed(0)
    layer = Recurrent("lstm", 3, 5)
    x, first = torch.randn(2, 4, 3), (torch.randn(2, 5), torch.randn(2, 5))
    gates = gates_of(layer, x, first)
    outputs, (_, cell) = layer(x, first)
    torch.testing.assert_close(gates.hidden, outputs)
    torch.testing.assert_close(gates.cell[:, -1], cell)
    before = torch.cat([first[1][:, None], gates.cell[:, :-1]], dim=1)
    torch.testing.assert_close(gates.cell, gates.forget * before + gates.enter * gates.new)
    torch.testing.assert_close(gates.hidden, gates.leave * gates.cell.tanh())
    with pytest.raises(ValueError, match="of kind 'gru'"):
        gates_of(Recurrent("gru", 3, 5), x)


def test_forget_bias_opens_the_gate_by_its_sigmoid():
    layer = Recurrent("lstm", 3, 5)
    forget_bias_(layer.rnn, 2.0)
    gates = gates_of(layer, torch.zeros(1, 1, 3))
    torch.testing.assert_close(gates.forget, torch.sigmoid(torch.tensor(2.0)).expand(1, 1, 5))
    torch.testing.assert_close(gates.enter, torch.full((1, 1, 5), 0.5))


@given(longest=st.floats(1, 1e4), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=30)
def test_long_memory_keeps_from_two_steps_to_one_more_than_the_longest(longest, seed):
    layer = Recurrent("lstm", 3, 50)
    long_memory_(layer.rnn, longest, torch.Generator().manual_seed(seed))
    gates = gates_of(layer.double(), torch.zeros(1, 1, 3, dtype=torch.float64))
    memory = 1 / (1 - gates.forget)
    assert memory.min() > 2 - 1e-4 and memory.max() < (1 + longest) * (1 + 1e-3)
    torch.testing.assert_close(gates.enter, 1 - gates.forget, rtol=1e-4, atol=1e-6)


def test_long_memory_spreads_over_the_orders_of_magnitude():
    layer = Recurrent("lstm", 3, 2000)
    long_memory_(layer.rnn, 1000.0, torch.Generator().manual_seed(0))
    u = layer.rnn.bias_hh_l0.chunk(4)[1].exp()
    shares = [float(((low <= u) & (u < 10 * low)).float().mean()) for low in (1, 10, 100)]
    assert all(abs(share - 1 / 3) < 0.04 for share in shares)


def test_a_memory_of_less_than_a_step_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        long_memory_(nn.LSTM(2, 3), 0.5)


@pytest.mark.parametrize("kind", STEPS)
def test_orthogonal_sets_every_singular_value(kind):
    layer = Recurrent(kind, 3, 6)
    orthogonal_(layer.rnn, 0.7, torch.Generator().manual_seed(0))
    for matrix in layer.rnn.weight_hh_l0.split(6):
        torch.testing.assert_close(torch.linalg.svdvals(matrix), torch.full((6,), 0.7))
    again = Recurrent(kind, 3, 6)
    orthogonal_(again.rnn, 0.7, torch.Generator().manual_seed(0))
    assert torch.equal(again.rnn.weight_hh_l0, layer.rnn.weight_hh_l0)


def test_identity_hands_a_positive_state_on():
    layer = Recurrent("relu", 3, 4)
    identity_(layer.rnn)
    first = (torch.rand(2, 4),)
    outputs, _ = layer(torch.zeros(2, 9, 3), first)
    assert torch.equal(outputs[:, -1], first[0])


@pytest.mark.parametrize("kind", STEPS)
def test_layers_on_meta(kind):
    with torch.device("meta"):
        layer = Recurrent(kind, 3, 4)
        x = torch.randn(2, 5, 3)
    for layer.fused in (True, False):
        outputs, state = layer(x)
        layer.zero_grad()
        (outputs.sum() + sum(s.sum() for s in state)).backward()
        assert all(p.grad.is_meta for p in layer.parameters())


# --- cells with their input in parts ------------------------------------------------------------------------


@pytest.mark.parametrize("split, whole", KINDS)
@given(
    widths=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    hidden=st.integers(1, 7),
    batch=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
@settings(deadline=None, max_examples=25)
def test_equal_to_torch_over_three_steps(split, whole, widths, hidden, batch, seed):
    torch.manual_seed(seed)
    reference = whole(sum(widths), hidden).double()
    cell = split(*widths, hidden=hidden).double()
    cell.load_state_dict(reference.state_dict())
    inputs = [[torch.randn(batch, w, dtype=torch.float64) for w in widths] for _ in range(3)]
    first = [torch.randn(batch, hidden, dtype=torch.float64) for _ in range(cell.states)]
    upstream = torch.randn(batch, hidden, dtype=torch.float64)

    results = []
    for module in (cell, reference):
        parts = [[x.clone().requires_grad_() for x in step] for step in inputs]
        state = start = tuple(x.clone().requires_grad_() for x in first)
        for step in parts:
            if module is cell:
                state = cell(sum(cell.project(i, x) for i, x in enumerate(step)), state)
            elif cell.states == 1:
                state = (reference(torch.cat(step, dim=1), state[0]),)
            else:
                state = reference(torch.cat(step, dim=1), state)
        leaves = [*start, *(x for step in parts for x in step), *module.parameters()]
        loss = sum((s * upstream).sum() for s in state)
        results.append((state, torch.autograd.grad(loss, leaves)))
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("split, whole", KINDS)
def test_the_share_of_all_steps_at_once_is_that_of_each(split, whole):
    torch.manual_seed(0)
    cell = split(3, 5, hidden=4)
    x = torch.randn(2, 6, 5)  # (batch, steps, width)
    at_once = cell.project(1, x)
    for t in range(6):
        torch.testing.assert_close(at_once[:, t], cell.project(1, x[:, t]))


@pytest.mark.parametrize("split, whole", KINDS)
def test_on_meta(split, whole):
    with torch.device("meta"):
        cell = split(3, 5, hidden=4)
        state = tuple(torch.randn(2, 4) for _ in range(cell.states))
        gates = cell.project(0, torch.randn(2, 3)) + cell.project(1, torch.randn(2, 5))
    sum(s.sum() for s in cell(gates, state)).backward()
    assert all(p.grad.is_meta for p in cell.parameters())
