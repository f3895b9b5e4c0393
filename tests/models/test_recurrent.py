import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from course_utils.models import SplitGRUCell, SplitLSTMCell

KINDS = [(SplitGRUCell, nn.GRUCell), (SplitLSTMCell, nn.LSTMCell)]


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
