"""Lesson 02's exercises: what their texts promise, and that the answers are torch's LSTM and GRU."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_solutions import cells, functions

from course_utils import checks

ANSWERS = functions("02")
SIZES = {name: st.integers(1, 6) for name in ("batch", "width", "hidden")}
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}
tensor = torch.tensor


def close(yours, right, atol=5e-5):
    torch.testing.assert_close(yours, right, atol=atol, rtol=0)


def test_minutes_and_points_at_the_top():
    top = " ".join(cells("02")[0].source.split())
    offered = checks.exercises("02")
    assert f"{sum(e.points for e in offered)} points, about {sum(e.minutes for e in offered)} minutes" in top
    assert [e.points for e in offered] == [3, 3, 1, 2, 1]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(
    ("function", "cell"), [("lstm_step", torch.nn.LSTMCell), ("gru_step", torch.nn.GRUCell)]
)
@given(**SIZES, seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=25)
def test_the_steps_are_torchs_forward_and_backward(function, cell, dtype, batch, width, hidden, seed):
    torch.manual_seed(seed)
    cell = cell(width, hidden).to(dtype)
    x = torch.randn(batch, width, dtype=dtype, requires_grad=True)
    state = [torch.randn(batch, hidden, dtype=dtype, requires_grad=True) for _ in range(2)]
    state = state if function == "lstm_step" else state[:1]
    leaves = [x, *state, *cell.parameters()]

    right = cell(x, tuple(state) if len(state) == 2 else state[0])
    yours = ANSWERS[function](x, *state, *cell.parameters())
    right, yours = (torch.cat(r if isinstance(r, tuple) else (r,), dim=1) for r in (right, yours))
    upstream = torch.randn(right.shape, dtype=dtype)
    close(yours, right, atol=TOLERANCE[dtype])
    for mine, torchs in zip(
        torch.autograd.grad(yours, leaves, upstream),
        torch.autograd.grad(right, leaves, upstream),
        strict=True,
    ):
        torch.testing.assert_close(mine, torchs, atol=10 * TOLERANCE[dtype], rtol=10 * TOLERANCE[dtype])


@given(**SIZES, length=st.integers(1, 9), seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=25)
def test_the_cells_gradient_is_autograds(batch, width, hidden, length, seed):
    torch.manual_seed(seed)
    i, a, g, o, upstream = torch.randn(5, batch, length, hidden, dtype=torch.float64).unbind()
    a, c = a.requires_grad_(), torch.randn(batch, hidden, dtype=torch.float64, requires_grad=True)
    i, f, g, o = i.sigmoid(), a.sigmoid(), g.tanh(), o.sigmoid()
    loss, cells = 0.0, [c]
    for t in range(length):
        cells.append(f[:, t] * cells[-1] + i[:, t] * g[:, t])
        loss = loss + (upstream[:, t] * o[:, t] * cells[-1].tanh()).sum()
    *grad_c, grad_f = torch.autograd.grad(loss, [*cells, a])
    yours = ANSWERS["cell_path_gradient"](i, f.detach(), g, o, c.detach(), upstream)
    close(yours[0], torch.stack(grad_c, dim=1), atol=1e-12)
    close(yours[1], grad_f, atol=1e-12)


@given(st.lists(st.floats(0.1, 100_000), min_size=1, max_size=5))
def test_half_is_left_after_a_half_life(half_lives):
    half_lives = tensor(half_lives, dtype=torch.float64)
    enter, forget, *others = ANSWERS["memory_biases"](half_lives).chunk(4)
    close(forget.sigmoid() ** half_lives, torch.full_like(forget, 0.5), atol=1e-9)
    close(enter.sigmoid(), 1 - forget.sigmoid(), atol=1e-9)
    assert not torch.cat(others).any()


def test_tiny_examples():
    """The numbers in the text come out of the solutions."""
    zeros = torch.zeros(4, 1)
    h, c = ANSWERS["lstm_step"](
        tensor([[0.7]]), tensor([[0.3]]), tensor([[1.0]]), zeros, zeros, tensor([0, 1, 0.5, 2]), zeros[:, 0]
    )
    close(c, tensor([[0.9621]]))
    close(h, tensor([[0.6564]]))

    new = ANSWERS["gru_step"](
        tensor([[0.3]]), tensor([[0.5]]), tensor([[0.0], [0], [1]]), tensor([[0.0], [0], [2]]),
        torch.zeros(3), tensor([0, 0, 0.5]),
    )  # fmt: skip
    close(new, tensor([[0.6409]]))

    close(ANSWERS["memory_biases"](tensor([1.0, 3])), tensor([0, -1.3474, 0, 1.3474, 0, 0, 0, 0]))

    i, f, g, o, grad_h = (
        tensor(row).view(1, 2, 1) for row in ([0.0, 0], [0.5, 0.8], [0.0, 0], [1.0, 1], [0.0, 1])
    )
    grad_c, grad_f = ANSWERS["cell_path_gradient"](i, f, g, o, tensor([[1.0]]), grad_h)
    close(grad_c.flatten(), tensor([0.3423, 0.6845, 0.8556]))
    close(grad_f.flatten(), tensor([0.1711, 0.0685]))

    document, state, longest = ANSWERS["document_and_state"](100, 10_000, 64, 16, "gru")
    assert document == pytest.approx(1328.77, abs=5e-3) and (state, longest) == (1024, 77)
    assert longest * math.log2(10_000) == pytest.approx(1023.15, abs=5e-3)


def test_an_lstm_has_two_vectors_in_its_state():
    assert ANSWERS["document_and_state"](100, 10_000, 64, 16, "lstm")[1] == 2048
