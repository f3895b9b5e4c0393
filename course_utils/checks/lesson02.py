"""The exercises of lesson 02, gated memory (LSTM and GRU), and how they go wrong.

Sources such as "lstm-02" name the public bug report or thread that a mistake or a variant was first seen in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.random import Generator, default_rng

from course_utils.checks.draws import normal, sizes
from course_utils.checks.engine import Exercise, Finding, Mistake, Part, Variant, numeric_gradient
from course_utils.questions import find
from course_utils.questions.asking import (
    Inputs,
    Outputs,
)
from course_utils.questions.lesson02 import FIGURES, PATH, SIZES, WEIGHTS

# --- 02.1 and 02.2: what the steps share --------------------------------------------------------------------


def _reference(step: Callable, state: Sequence[str]) -> Callable[[Inputs], Outputs]:
    """A reference that takes the same steps as `_ask_steps`, in float64."""

    def steps(given: Inputs) -> Outputs:
        outputs: Outputs = {}
        current = tuple(given[name].astype(np.float64) for name in state)
        weights = [given[name].astype(np.float64) for name in WEIGHTS]
        for t, x in enumerate(given["xs"].astype(np.float64), start=1):
            current = step(x, *current, *weights)
            outputs |= {f"new_{name} at step {t}": v for name, v in zip(state, current, strict=True)}
        return outputs

    def reference(inputs: Inputs) -> Outputs:
        expected = steps(inputs)
        if "upstream" in inputs:
            last = f"new_h at step {len(inputs['xs'])}"
            for name in (*state, "W_hh"):
                expected[f"gradient of {name}"] = numeric_gradient(lambda g: steps(g)[last], inputs, name)
        return expected

    return reference


def _sigmoid(a: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-a))


def _step_inputs(
    rng: Generator, gates: int, steps: int, batch: int, width: int, hidden: int, dtype: str = "float32"
) -> Inputs:
    """Nothing is zero, neither the state nor a bias, so that nothing can hide behind a zero."""
    inputs = {"xs": normal(rng, steps, batch, width, dtype=dtype)}
    inputs |= {name: normal(rng, batch, hidden, dtype=dtype) for name in ("h", "c")[: gates - 2]}
    return inputs | {
        "W_ih": normal(rng, gates * hidden, width, dtype=dtype),
        "W_hh": normal(rng, gates * hidden, hidden, dtype=dtype),
        "b_ih": normal(rng, gates * hidden, dtype=dtype),
        "b_hh": normal(rng, gates * hidden, dtype=dtype),
    }


def _draw_step(gates: int, salt: int) -> Callable[[int], list[Inputs]]:
    def draw(seed: int) -> list[Inputs]:
        rng = default_rng([seed, salt])
        tiny = {name: value.round(1) for name, value in _step_inputs(rng, gates, 1, 1, 1, 1).items()}
        batch, width, hidden = sizes(rng, 3)
        same = int(rng.integers(3, 6))  # equal widths: a wrong product of matrices no longer raises
        full = _step_inputs(rng, gates, 1, batch, width, hidden)
        if gates == 4:
            full["c"] = full["c"] * 5  # far outside of what a tanh leaves as it is
        return [
            tiny,
            _step_inputs(rng, gates, 1, same, same, same),
            full,
            _step_inputs(rng, gates, 1, batch, width, hidden, "float64"),
        ]

    return draw


def _draw_steps(gates: int, salt: int) -> Callable[[int], list[Inputs]]:
    def draw(seed: int) -> list[Inputs]:
        rng = default_rng([seed, salt])
        batch, width, hidden = sizes(rng, 3)
        return [
            _step_inputs(rng, gates, 1, 1, 2, 1) | {"upstream": normal(rng, 1, 1)},
            _step_inputs(rng, gates, 3, 4, 3, 2) | {"upstream": normal(rng, 4, 2)},
            _step_inputs(rng, gates, 3, batch, width, hidden),
        ]

    return draw


# --- 02.1 one step of an LSTM -------------------------------------------------------------------------------


def _lstm_reference(x, h, c, W_ih, W_hh, b_ih, b_hh):
    """Float64 reference of torch.nn.LSTMCell."""
    enter, forget, new, leave = np.split(x @ W_ih.T + h @ W_hh.T + b_ih + b_hh, 4, axis=-1)
    c = _sigmoid(forget) * c + _sigmoid(enter) * np.tanh(new)
    return _sigmoid(leave) * np.tanh(c), c


def _h_is_bounded(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    name = "new_h at step 1"
    if (abs(outputs[name]) > 1 + 1e-6).any():
        return Finding(
            "A number of your h is larger than 1. A sigmoid times a tanh never is.",
            "what the output gate is multiplied with.",
            output=name,
        )
    return None


def _sums(x, h, W_ih, W_hh, b_ih, b_hh):
    return x @ W_ih.T + b_ih + h @ W_hh.T + b_hh


def _lstm(order: str = "ifgo", cell: Callable | None = None, leave: Callable | None = None) -> Callable:
    """An LSTM step, right by default, with one thing changed.

    order: of the rows. cell(i, f, g, c): the new cell, from sums that have been through no function yet.
    leave(o, new_c, old_c): the new state, o likewise.
    """

    def step(x, h, c, W_ih, W_hh, b_ih, b_hh):
        part = dict(zip(order, _sums(x, h, W_ih, W_hh, b_ih, b_hh).chunk(4, -1), strict=True))
        new = (cell or _new_cell)(part["i"], part["f"], part["g"], c)
        return (leave or _new_state)(part["o"], new, c), new

    return step


def _new_cell(i, f, g, c):
    return torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)


def _new_state(o, new, old):
    return torch.sigmoid(o) * torch.tanh(new)


_right_lstm = _lstm()


def _gates_open(x, h, c, W_ih, W_hh, b_ih, b_hh):
    i, f, g, o = _sums(x, h, W_ih, W_hh, b_ih, b_hh).chunk(4, -1)
    c = f * c + i * torch.tanh(g)
    return o * torch.tanh(c), c


def _gates_see_the_cell(x, h, c, *weights):
    i, f, g, o = _sums(x, c, *weights).chunk(4, -1)
    new = _new_cell(i, f, g, c)
    return _new_state(o, new, c), new


def _lstm_cut_along_the_batch(x, h, c, *weights):
    i, f, g, o = _sums(x, h, *weights).chunk(4)
    new = _new_cell(i, f, g, c)
    return _new_state(o, new, c), new


def _lstm_not_transposed(x, h, c, W_ih, W_hh, b_ih, b_hh):
    return _right_lstm(x @ W_ih, h @ W_hh, c, W_ih, W_hh, b_ih, b_hh)


def _cell_written(x, h, c, *weights):
    i, f, g, o = _sums(x, h, *weights).chunk(4, -1)
    with torch.no_grad():
        c *= torch.sigmoid(f)
        c += torch.sigmoid(i) * torch.tanh(g)
    return _new_state(o, c, c), c


LSTM_MISTAKES = (
    Mistake(
        "rows read as i, f, o, g",
        _lstm("ifog"),
        "You read the rows in the order i, f, o, g, so that candidate and output gate change places.",
        "the order of the four names where you cut: i, f, g, o, as PyTorch keeps them.",
        ("lstm-02",),
    ),
    Mistake(
        "rows read as i, g, f, o",
        _lstm("igfo"),
        "You read the rows in the order i, g, f, o (TensorFlow's old cell keeps them so).",
        "the order of the four names where you cut: i, f, g, o, as PyTorch keeps them.",
        ("lstm-02",),
    ),
    Mistake(
        "input and forget gate swapped",
        _lstm("figo"),
        "Input gate and forget gate have changed places.",
        "the order i, f, g, o where you cut, and which gate the old cell is multiplied with.",
        ("lstm-02",),
    ),
    Mistake(
        "rows read as f, i, o, g",
        _lstm("fiog"),
        "You read the rows in the order f, i, o, g.",
        "the order of the four names where you cut: i, f, g, o, as PyTorch keeps them.",
        ("lstm-02",),
    ),
    Mistake(
        "no tanh on the way out",
        _lstm(leave=lambda o, new, old: torch.sigmoid(o) * new),
        "Your h is the output gate times the cell itself, without the tanh; so it may grow larger than 1.",
        "the last equation: the tanh around the new cell.",
        ("lstm-04",),
    ),
    Mistake(
        "the old cell leaves",
        _lstm(leave=lambda o, new, old: torch.sigmoid(o) * torch.tanh(old)),
        "Your h shows the cell of the step before.",
        "the last equation: h_t reads c_t, the cell that you have just computed.",
    ),
    Mistake(
        "sigmoid on the way out",
        _lstm(leave=lambda o, new, old: torch.sigmoid(o) * torch.sigmoid(new)),
        "The cell leaves through a sigmoid, so your h is never negative.",
        "the last equation: a tanh around the new cell.",
    ),
    Mistake(
        "candidate through a sigmoid",
        _lstm(cell=lambda i, f, g, c: torch.sigmoid(f) * c + torch.sigmoid(i) * torch.sigmoid(g)),
        "Your candidate g goes through a sigmoid like the gates, so nothing negative can enter the cell.",
        "the function of g: three parts have a sigmoid, g has a tanh.",
    ),
    Mistake(
        "candidate through nothing",
        _lstm(cell=lambda i, f, g, c: torch.sigmoid(f) * c + torch.sigmoid(i) * g),
        "Your candidate g goes into the cell as it is, without a tanh.",
        "the equation of g.",
    ),
    Mistake(
        "gates without a sigmoid",
        _gates_open,
        "Your gates are not gates: without the sigmoid they can be negative, or larger than 1.",
        "the sigmoids around i, f and o.",
    ),
    Mistake(
        "candidate not gated",
        _lstm(cell=lambda i, f, g, c: torch.sigmoid(f) * c + torch.tanh(g)),
        "The candidate enters the cell in full: the input gate is never used.",
        "the second term of the new cell.",
    ),
    Mistake(
        "nothing is forgotten",
        _lstm(cell=lambda i, f, g, c: c + torch.sigmoid(i) * torch.tanh(g)),
        "The old cell stays in full: the forget gate is never used. (In 1997 the LSTM had none.)",
        "the first term of the new cell.",
    ),
    Mistake(
        "1 - f instead of the input gate",
        _lstm(
            cell=lambda i, f, g, c: torch.sigmoid(f) * c + (1 - torch.sigmoid(f)) * torch.tanh(g),
        ),
        "You mix old and new with f and 1 - f. That is a coupled LSTM (or nearly a GRU); here i has a say.",
        "the second term of the new cell: it has a gate of its own.",
    ),
    Mistake(
        "an extra 1 on the forget gate",
        _lstm(cell=lambda i, f, g, c: _new_cell(i, f + 1, g, c)),
        "You add 1 to the sum of the forget gate. Some libraries do; here the bias that you get is all.",
        "the sigmoid of the forget gate.",
    ),
    Mistake(
        "the recurrent bias is missing",
        lambda x, h, c, W_ih, W_hh, b_ih, b_hh: _right_lstm(x, h, c, W_ih, W_hh, b_ih, 0 * b_hh),
        "Your result is what b_hh = 0 would give. PyTorch has two biases, and adds both.",
        "the sum inside the gates: two products and two biases.",
        ("lstm-07",),
    ),
    Mistake(
        "no bias at all",
        lambda x, h, c, W_ih, W_hh, b_ih, b_hh: _right_lstm(x, h, c, W_ih, W_hh, 0 * b_ih, 0 * b_hh),
        "Your result is what biases of zero would give.",
        "the sum inside the gates: two products and two biases.",
    ),
    Mistake(
        "the state is not read",
        lambda x, h, c, *weights: _right_lstm(x, 0 * h, c, *weights),
        "Your gates do not depend on h: the recurrent product is missing.",
        "the sum inside the gates: h @ W_hh.T belongs to it.",
    ),
    Mistake(
        "the gates read the cell",
        _gates_see_the_cell,
        "Your gates read the cell state c where they should read the hidden state h.",
        "the recurrent product: W_hh is multiplied with h.",
        ("lstm-08",),
    ),
    Mistake(
        "c and h returned in the wrong order",
        lambda *given: _right_lstm(*given)[::-1],
        "You return the cell first. Wanted is (h, c).",
        "the return line.",
    ),
    Mistake(
        "the old cell returned",
        lambda x, h, c, *weights: (_right_lstm(x, h, c, *weights)[0], c),
        "Your h is right, but the cell that you return is the old one, so that nothing is ever remembered.",
        "the return line, and the name that the new cell has.",
    ),
    Mistake(
        "cut along the batch",
        _lstm_cut_along_the_batch,
        "You cut the sums into four along the batch, which is what chunk does when it is not told where.",
        "the dim of chunk: the last one, where the four parts stand side by side.",
    ),
    Mistake(
        "weights not transposed",
        _lstm_not_transposed,
        "The sizes do not fit: the rows of W_ih belong to the parts, its columns to the input.",
        "the product: x @ W_ih.T, or torch.nn.functional.linear(x, W_ih, b_ih).",
    ),
    Mistake(
        "state detached",
        lambda x, h, c, *weights: _right_lstm(x, h.detach(), c.detach(), *weights),
        "The values are right, but you cut the state off: no gradient flows back through the steps.",
        ".detach(), .data or torch.no_grad() on h and c.",
    ),
    Mistake(
        "the cell is written into",
        _cell_written,
        "You write into the cell that you were given (c *= ... changes it). The caller still needs it.",
        "operations that end in an underscore, *= and +=: make a new tensor instead.",
    ),
)


def _lstm_gate_by_gate(x, h, c, W_ih, W_hh, b_ih, b_hh):
    """Four products instead of one, no peepholes."""
    hidden = h.shape[1]

    def part(k):
        rows = slice(k * hidden, (k + 1) * hidden)
        return x @ W_ih[rows].T + h @ W_hh[rows].T + b_ih[rows] + b_hh[rows]

    i, f, g, o = torch.sigmoid(part(0)), torch.sigmoid(part(1)), torch.tanh(part(2)), torch.sigmoid(part(3))
    c = f * c + i * g
    return o * torch.tanh(c), c


def _lstm_one_product(x, h, c, W_ih, W_hh, b_ih, b_hh):
    """Input and state joined, the two biases added beforehand."""
    joined = torch.cat([x, h], dim=1)
    i, f, g, o = (joined @ torch.cat([W_ih, W_hh], dim=1).T + (b_ih + b_hh)).tensor_split(4, dim=1)
    c = torch.addcmul(f.sigmoid() * c, i.sigmoid(), g.tanh())
    return [o.sigmoid() * c.tanh(), c]


def _lstm_einsum(x, h, c, W_ih, W_hh, b_ih, b_hh):
    sums = torch.einsum("bi,gi->bg", x, W_ih) + torch.einsum("bh,gh->bg", h, W_hh) + b_ih + b_hh
    i, f, g, o = sums.unflatten(1, (4, -1)).unbind(1)
    c = c / (1 + torch.exp(-f)) + (2 * torch.sigmoid(2 * g) - 1) / (1 + torch.exp(-i))
    return torch.tanh(c) / (1 + torch.exp(-o)), c


LSTM_VARIANTS = (
    Variant("gate by gate, no peepholes", _lstm_gate_by_gate, ("lstm-08",)),
    Variant("one product, the biases added first, a list returned", _lstm_one_product, ("lstm-07",)),
    Variant("einsum, sigmoid and tanh written out", _lstm_einsum),
)

LSTM_STEP = Exercise(
    question=find("02.1"),
    title="one step of an LSTM",
    minutes=20,
    difficulty=2,
    reference=_reference(_lstm_reference, ("h", "c")),
    axes={"new_h": "batch, hidden", "new_c": "batch, hidden"},
    parts=(
        Part(
            "the new cell",
            1,
            _draw_step(4, 21),
            ("new_c",),
            "the four parts, one after the other, with the numbers of the smallest case.",
        ),
        Part(
            "the new hidden state",
            1,
            _draw_step(4, 22),
            ("new_h",),
            "the output gate, and what it is multiplied with.",
            (_h_is_bounded,),
        ),
        Part(
            "three steps in a row, and the gradient through them",
            1,
            _draw_steps(4, 23),
            ("new_h", "new_c", "gradient of h", "gradient of c", "gradient of W_hh"),
            "what one step hands to the next.",
        ),
    ),
    mistakes=LSTM_MISTAKES,
    variants=LSTM_VARIANTS,
    forbidden=(
        "course_utils.models",
        "torch.nn.LSTM",
        "torch.nn.LSTMCell",
        "torch.lstm",
        "torch.lstm_cell",
        "torch._VF",
    ),
)


# --- 02.2 one step of a GRU ---------------------------------------------------------------------------------


def _gru_reference(x, h, W_ih, W_hh, b_ih, b_hh):
    """Float64 reference of torch.nn.GRUCell."""
    r_x, z_x, n_x = np.split(x @ W_ih.T + b_ih, 3, axis=-1)
    r_h, z_h, n_h = np.split(h @ W_hh.T + b_hh, 3, axis=-1)
    reset, update = _sigmoid(r_x + r_h), _sigmoid(z_x + z_h)
    return ((1 - update) * np.tanh(n_x + reset * n_h) + update * h,)


def _gru(
    order: str = "rzn",
    candidate: Callable | None = None,
    mix: Callable | None = None,
    gate: Callable = torch.sigmoid,
) -> Callable:
    """A GRU step, right by default, with one thing changed.

    order: of the rows. candidate(r, of_x, of_h): of the two shares of n. mix(z, n, h): the new state.
    """

    def step(x, h, W_ih, W_hh, b_ih, b_hh):
        of_x = dict(zip(order, (x @ W_ih.T + b_ih).chunk(3, -1), strict=True))
        of_h = dict(zip(order, (h @ W_hh.T + b_hh).chunk(3, -1), strict=True))
        r, z = (gate(of_x[name] + of_h[name]) for name in "rz")
        n = (candidate or _candidate)(r, of_x["n"], of_h["n"])
        return (mix or _mix)(z, n, h)

    return step


def _candidate(r, of_x, of_h):
    return torch.tanh(of_x + r * of_h)


def _mix(z, n, h):
    return (1 - z) * n + z * h


_right_gru = _gru()


def _bias_outside(x, h, W_ih, W_hh, b_ih, b_hh):
    first, last = b_hh.tensor_split([2 * h.shape[1]])
    moved = torch.cat([torch.zeros_like(first), last])
    return _right_gru(x, h, W_ih, W_hh, b_ih + moved, b_hh - moved)


def _reset_before(x, h, W_ih, W_hh, b_ih, b_hh):
    widths = [2 * h.shape[1], h.shape[1]]
    (gates, n_x), (U, U_n), (b, b_n) = (
        (x @ W_ih.T + b_ih).split(widths, 1),
        W_hh.split(widths),
        b_hh.split(widths),
    )
    r, z = torch.sigmoid(gates + h @ U.T + b).chunk(2, 1)
    return _mix(z, torch.tanh(n_x + (r * h) @ U_n.T + b_n), h)


def _gru_cut_along_the_batch(x, h, W_ih, W_hh, b_ih, b_hh):
    r_x, z_x, n_x = (x @ W_ih.T + b_ih).chunk(3)
    r_h, z_h, n_h = (h @ W_hh.T + b_hh).chunk(3)
    return _mix(torch.sigmoid(z_x + z_h), torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h), h)


def _state_written(x, h, W_ih, W_hh, b_ih, b_hh):
    r_x, z_x, n_x = (x @ W_ih.T + b_ih).chunk(3, -1)
    r_h, z_h, n_h = (h @ W_hh.T + b_hh).chunk(3, -1)
    z, n = torch.sigmoid(z_x + z_h), torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h)
    with torch.no_grad():
        h *= z
        h += (1 - z) * n
    return h


GRU_MISTAKES = (
    Mistake(
        "recurrent bias outside the reset",
        _bias_outside,
        "Your reset gate multiplies the recurrent product alone; the recurrent bias of n stands outside.",
        "the bracket in the equation of n: r multiplies U_n h and its bias together.",
        ("gru-02",),
    ),
    Mistake(
        "reset gate never used",
        _gru(candidate=lambda r, of_x, of_h: torch.tanh(of_x + of_h)),
        "Your candidate sees the whole of h: the reset gate is computed, but it has no effect.",
        "the equation of n. The two products of n must not be added before r has done its work.",
        ("gru-03",),
    ),
    Mistake(
        "rows read as z, r, n",
        _gru("zrn"),
        "You read the rows in the order z, r, n (Keras keeps them so), and the two gates change places.",
        "the order of the three names where you cut: r, z, n, as PyTorch keeps them.",
        ("gru-04",),
    ),
    Mistake(
        "rows read as n, r, z",
        _gru("nrz"),
        "You read the rows in the order n, r, z.",
        "the order of the three names where you cut: r, z, n, as PyTorch keeps them.",
        ("gru-04",),
    ),
    Mistake(
        "reset before the product",
        _reset_before,
        "You reset h before the recurrent product. That is a GRU too (the paper's form), but not nn.GRU.",
        "the equation of n: r multiplies what comes out of the product, bias included.",
        ("gru-06",),
    ),
    Mistake(
        "reset over all of the candidate",
        _gru(candidate=lambda r, of_x, of_h: torch.tanh(r * (of_x + of_h))),
        "Your reset gate multiplies the input's share of the candidate as well.",
        "the bracket in the equation of n: only what comes from h is reset.",
    ),
    Mistake(
        "reset on the input's side",
        _gru(candidate=lambda r, of_x, of_h: torch.tanh(r * of_x + of_h)),
        "Your reset gate multiplies what comes from x, and h passes in full.",
        "the equation of n: what is reset is the memory.",
    ),
    Mistake(
        "update gate the other way round",
        _gru(mix=lambda z, n, h: z * n + (1 - z) * h),
        "In your step z is the share of the candidate. (Papers differ; in PyTorch z keeps the old state.)",
        "the last equation: z stands beside the old state.",
    ),
    Mistake(
        "the old state kept in full",
        _gru(mix=lambda z, n, h: (1 - z) * n + h),
        "You add the new to the old state without making room for it, so that the state can grow.",
        "the last equation: the old state is multiplied with z.",
    ),
    Mistake(
        "the candidate taken in full",
        _gru(mix=lambda z, n, h: n + z * h),
        "The candidate enters the state in full: its factor 1 - z is missing.",
        "the last equation.",
    ),
    Mistake(
        "update gate never used",
        _gru(mix=lambda z, n, h: n),
        "You return the candidate: the update gate is never used, and nothing of the old state is kept.",
        "the last equation.",
    ),
    Mistake(
        "candidate through a sigmoid",
        _gru(candidate=lambda r, of_x, of_h: torch.sigmoid(of_x + r * of_h)),
        "Your candidate goes through a sigmoid like the gates, so it is never negative.",
        "the function of n: a tanh.",
    ),
    Mistake(
        "candidate through nothing",
        _gru(candidate=lambda r, of_x, of_h: of_x + r * of_h),
        "Your candidate goes into the state as it is, without a tanh.",
        "the function of n: a tanh.",
    ),
    Mistake(
        "gates without a sigmoid",
        _gru(gate=lambda sums: sums),
        "Your gates are not gates: without the sigmoid they can be negative, or larger than 1.",
        "the sigmoids around r and z.",
    ),
    Mistake(
        "the recurrent bias is missing",
        lambda x, h, W_ih, W_hh, b_ih, b_hh: _right_gru(x, h, W_ih, W_hh, b_ih, 0 * b_hh),
        "Your result is what b_hh = 0 would give.",
        "the recurrent product: b_hh is added to it, before anything is cut or reset.",
    ),
    Mistake(
        "no bias at all",
        lambda x, h, W_ih, W_hh, b_ih, b_hh: _right_gru(x, h, W_ih, W_hh, 0 * b_ih, 0 * b_hh),
        "Your result is what biases of zero would give.",
        "the two products: each has its bias.",
    ),
    Mistake(
        "the old state returned",
        lambda x, h, *weights: h,
        "You return the state that you were given.",
        "the return line.",
    ),
    Mistake(
        "cut along the batch",
        _gru_cut_along_the_batch,
        "You cut the sums into three along the batch, which is what chunk does when it is not told where.",
        "the dim of chunk: the last one, where the three parts stand side by side.",
    ),
    Mistake(
        "weights not transposed",
        lambda x, h, W_ih, W_hh, b_ih, b_hh: _right_gru(x @ W_ih, h @ W_hh, W_ih, W_hh, b_ih, b_hh),
        "The sizes do not fit: the rows of W_ih belong to the parts, its columns to the input.",
        "the product: x @ W_ih.T, or torch.nn.functional.linear(x, W_ih, b_ih).",
        ("gru-04",),
    ),
    Mistake(
        "state detached",
        lambda x, h, *weights: _right_gru(x, h.detach(), *weights),
        "The values are right, but you cut the state off: no gradient flows back through the steps.",
        ".detach(), .data or torch.no_grad() on h.",
    ),
    Mistake(
        "the state is written into",
        _state_written,
        "You write into the state that you were given (h *= ... changes it). The caller still needs it.",
        "operations that end in an underscore, *= and +=: make a new tensor instead.",
    ),
)


def _gru_gate_by_gate(x, h, W_ih, W_hh, b_ih, b_hh):
    hidden = h.shape[1]
    rows = [slice(k * hidden, (k + 1) * hidden) for k in range(3)]
    of_x = [x @ W_ih[row].T + b_ih[row] for row in rows]
    of_h = [h @ W_hh[row].T + b_hh[row] for row in rows]
    r, z = torch.sigmoid(of_x[0] + of_h[0]), torch.sigmoid(of_x[1] + of_h[1])
    n = torch.tanh(of_x[2] + r * of_h[2])
    return n + z * (h - n)


def _gru_joined(x, h, W_ih, W_hh, b_ih, b_hh):
    """Both gates from one product with [x; h] and summed biases; the candidate apart."""
    two = 2 * h.shape[1]
    weight = torch.cat([W_ih[:two], W_hh[:two]], dim=1)
    r, z = torch.sigmoid(torch.cat([x, h], 1) @ weight.T + (b_ih + b_hh)[:two]).chunk(2, 1)
    memory = torch.nn.functional.linear(h, W_hh[two:], b_hh[two:])
    n = torch.tanh(torch.nn.functional.linear(x, W_ih[two:], b_ih[two:]) + memory * r)
    return torch.lerp(n, h, z)


def _gru_unbound(x, h, W_ih, W_hh, b_ih, b_hh):
    of_x = torch.einsum("bi,gi->bg", x, W_ih).add(b_ih).unflatten(1, (3, -1))
    of_h = torch.einsum("bi,gi->bg", h, W_hh).add(b_hh).unflatten(1, (3, -1))
    keep = torch.sigmoid(of_x[:, :2] + of_h[:, :2])
    n = torch.tanh(torch.addcmul(of_x[:, 2], keep[:, 0], of_h[:, 2]))
    return n - keep[:, 1] * n + keep[:, 1] * h


GRU_VARIANTS = (
    Variant("gate by gate, n + z (h - n)", _gru_gate_by_gate, ("gru-06",)),
    Variant("both gates from one product", _gru_joined),
    Variant("einsum and unflatten", _gru_unbound),
)

GRU_STEP = Exercise(
    question=find("02.2"),
    title="one step of a GRU",
    minutes=20,
    difficulty=2,
    reference=_reference(_gru_reference, ("h",)),
    axes={"new_h": "batch, hidden"},
    parts=(
        Part(
            "one step",
            2,
            _draw_step(3, 24),
            ("new_h",),
            "r, z and n, one after the other, with the numbers of the smallest case.",
        ),
        Part(
            "three steps in a row, and the gradient through them",
            1,
            _draw_steps(3, 25),
            ("new_h", "gradient of h", "gradient of W_hh"),
            "what one step hands to the next.",
        ),
    ),
    mistakes=GRU_MISTAKES,
    variants=GRU_VARIANTS,
    forbidden=(
        "course_utils.models",
        "torch.nn.GRU",
        "torch.nn.GRUCell",
        "torch.gru",
        "torch.gru_cell",
        "torch._VF",
    ),
)


# --- 02.3 biases for a wished memory ------------------------------------------------------------------------


def _biases_reference(inputs: Inputs) -> Outputs:
    forget = -np.log(np.expm1(np.log(2) / inputs["half_lives"].astype(np.float64)))
    return {"biases": np.concatenate([-forget, forget, 0 * forget, 0 * forget])}


def _draw_half_lives(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 26])
    few, many = sizes(rng, 2, 3, 8)

    def lives(count: int, low: float, high: float, dtype: str = "float32") -> np.ndarray:
        return np.exp(rng.uniform(np.log(low), np.log(high), count)).astype(dtype)

    return [
        {"half_lives": rng.choice(np.arange(2, 10), 2, replace=False).astype("float32")},
        {"half_lives": lives(few, 0.2, 3)},  # below 1 the gate is under a half
        {"half_lives": lives(many, 2, 300)},
        {"half_lives": lives(many, 100, 100_000, "float64")},
    ]


def _joined(forget: torch.Tensor, enter: torch.Tensor | None = None) -> torch.Tensor:
    nothing = torch.zeros_like(forget)
    return torch.cat([-forget if enter is None else enter, forget, nothing, nothing])


def _keeping(share: Callable) -> Callable:
    """Biases for a forget gate of share(half_lives)."""
    return lambda half_lives: _joined(torch.logit(share(half_lives)))


def _half_life(half_lives: torch.Tensor) -> torch.Tensor:
    """The right forget bias."""
    return -torch.log(torch.expm1(math.log(2) / half_lives))


BIAS_MISTAKES = (
    Mistake(
        "time constant instead of half-life",
        _keeping(lambda T: torch.exp(-1 / T)),
        "After that many steps 37% of your cell is left (1/e), not half.",
        "the equation for f: f to the power T is 1/2.",
    ),
    Mistake(
        "chrono initialisation",
        lambda T: _joined(torch.log(T)),
        "Your forget bias is log(T), which the lesson draws. It keeps 1/e or so for T steps, not half.",
        "the equation for f: f to the power T is 1/2. Solve it before you take a logarithm.",
    ),
    Mistake(
        "1 - 1 / (2 T)",
        _keeping(lambda T: 1 - 1 / (2 * T)),
        "You lose half of 1/T at each step. But the loss is a share of what is left, so it does not add up.",
        "the equation for f: f to the power T is 1/2.",
    ),
    Mistake(
        "the power T instead of 1 / T",
        _keeping(lambda T: 0.5**T),
        "Your gate is a half to the power T, so that a long memory forgets at once.",
        "the solution for f: the T-th root of a half.",
    ),
    Mistake(
        "the gate instead of its bias",
        lambda T: _joined(0.5 ** (1 / T), 1 - 0.5 ** (1 / T)),
        "You return the gates themselves. The sigmoid still comes on top of what you return.",
        "the inverse of the sigmoid (torch.logit).",
    ),
    Mistake(
        "logarithm of the gate",
        lambda T: _joined(-math.log(2) / T),
        "Your forget bias is log(f). The inverse of the sigmoid is log(f / (1 - f)).",
        "the step from the gate to its bias.",
    ),
    Mistake(
        "forget and input biases swapped",
        lambda T: _joined(-_half_life(T)),
        "Your forget gate has the input gate's bias, and the other way round: a long memory forgets at once.",
        "the order i, f, g, o, and the sign: a gate near 1 has a large positive bias.",
        ("lstm-02",),
    ),
    Mistake(
        "order i, g, f, o",
        lambda T: torch.cat([-_half_life(T), 0 * T, _half_life(T), 0 * T]),
        "Your forget biases stand third, where PyTorch looks for those of the candidate.",
        "the order i, f, g, o.",
        ("lstm-02",),
    ),
    Mistake(
        "unit by unit",
        lambda T: _joined(_half_life(T)).unflatten(0, (4, -1)).T.flatten(),
        "You put the four biases of a unit side by side. First come all of i, then all of f, and so on.",
        "stack and reshape: torch.cat of the four blocks does it.",
    ),
    Mistake(
        "input gate as open as the forget gate",
        lambda T: _joined(_half_life(T), _half_life(T)),
        "Your input gate is as open as your forget gate; it should be open by 1 - f.",
        "the sign of the input gate's bias.",
    ),
    Mistake(
        "input gate left at 0",
        lambda T: _joined(_half_life(T), 0 * T),
        "The bias of your input gate is 0, so half of everything enters.",
        "the input gate: its sigmoid should be 1 - f.",
    ),
    Mistake(
        "only the forget biases",
        _half_life,
        "You return the forget biases alone. nn.LSTM wants one vector with those of i, f, g and o.",
        "torch.cat, in the order i, f, g, o.",
    ),
    Mistake(
        "one memory for all units",
        lambda T: _joined(_half_life(T.mean().expand(len(T)))),
        "All your units have one memory, that of the mean half-life.",
        "a mean, a sum or a max over the half-lives: each unit has its own.",
    ),
    Mistake(
        "split over the two biases",
        lambda T: _joined(_half_life(T) / 2),
        "You return half of each bias, as if for one of two vectors. Here one vector holds all.",
        "a factor of a half.",
    ),
)

BIAS_VARIANTS = (
    Variant("logit of the root", _keeping(lambda T: 0.5 ** (1 / T))),
    Variant("logarithms of the gate and of what it lets go", lambda T: _log_odds(torch.exp2(-1 / T))),
    Variant("unit by unit in a loop", lambda T: torch.tensor(_loop_of_biases(T.tolist()), dtype=T.dtype)),
)


def _log_odds(f: torch.Tensor) -> torch.Tensor:
    return _joined(f.log() - (1 - f).log())


def _loop_of_biases(half_lives: list[float]) -> list[float]:
    forget = [-math.log(2 ** (1 / life) - 1) for life in half_lives]
    return [-b for b in forget] + forget + [0.0] * (2 * len(forget))


MEMORY_BIASES = Exercise(
    question=find("02.3"),
    title="biases for a wished memory",
    minutes=10,
    difficulty=2,
    reference=_biases_reference,
    axes={"biases": "4 * hidden"},
    parts=(
        Part(
            "half of the cell is left after that many steps",
            1,
            _draw_half_lives,
            ("biases",),
            "torch.sigmoid of your forget biases, to the power of the half-lives: it should be 0.5.",
        ),
    ),
    mistakes=BIAS_MISTAKES,
    variants=BIAS_VARIANTS,
    forbidden=("course_utils.models",),
    tolerance={"float32": 1e-4, "float64": 1e-6},  # 1 - f loses digits where f is near 1
)


# --- 02.4 the gradient along the cell path ------------------------------------------------------------------


def _path_reference(inputs: Inputs) -> Outputs:
    i, f, g, o, c_0, grad_h = (inputs[name].astype(np.float64) for name in PATH)
    steps = range(f.shape[1])
    c = np.concatenate([c_0[:, None], np.zeros_like(f)], axis=1)
    for t in steps:
        c[:, t + 1] = f[:, t] * c[:, t] + i[:, t] * g[:, t]
    grad_c = np.zeros_like(c)
    for t in reversed(steps):
        grad_c[:, t + 1] += grad_h[:, t] * o[:, t] * (1 - np.tanh(c[:, t + 1]) ** 2)
        grad_c[:, t] = f[:, t] * grad_c[:, t + 1]
    return {"grad_c": grad_c, "grad_f": grad_c[:, 1:] * c[:, :-1] * f * (1 - f)}


def _path_inputs(
    rng: Generator, batch: int, length: int, hidden: int, dtype: str = "float32", open: float = 1.0
) -> Inputs:
    """Gates as an LSTM has them; `open` is what the forget gate's pre-activation is on average."""
    shape = (batch, length, hidden)
    i, f, o = (_sigmoid(normal(rng, *shape, dtype=dtype) + shift) for shift in (0.0, open, 1.0))
    return {
        "i": i.astype(dtype),
        "f": f.astype(dtype),
        "g": np.tanh(normal(rng, *shape, dtype=dtype)),
        "o": o.astype(dtype),
        "c_0": normal(rng, batch, hidden, dtype=dtype),
        "grad_h": normal(rng, *shape, dtype=dtype),
    }


def _draw_path(salt: int) -> Callable[[int], list[Inputs]]:
    def draw(seed: int) -> list[Inputs]:
        rng = default_rng([seed, salt])
        batch, length, hidden = sizes(rng, 3, 3, 8)
        tiny = {name: value.round(2) for name, value in _path_inputs(rng, 1, 2, 1).items()}
        last = _path_inputs(rng, 2, 4, 3)
        last["grad_h"][:, :-1] = 0  # the loss reads the last state alone
        return [
            tiny,
            last,
            _path_inputs(rng, batch, length, hidden),
            _path_inputs(rng, hidden, batch, length, "float64"),
            _path_inputs(rng, 2, 60, 3, open=4.0),
        ]

    return draw


def _cells(i, f, g, c_0):
    c = [c_0]
    for t in range(f.shape[1]):
        c.append(f[:, t] * c[-1] + i[:, t] * g[:, t])
    return torch.stack(c, dim=1)


def _through_h(c, o, grad_h):
    return grad_h * o * (1 - torch.tanh(c[:, 1:]) ** 2)


def _back(here, carry):
    """dL/dc_t for t = 0 .. T, when here[:, t] arrives through h and carry[:, t] leads from c_t to c_{t-1}."""
    grads, later = [], torch.zeros_like(here[:, 0])
    for t in reversed(range(here.shape[1])):
        grads.append(here[:, t] + later)
        later = carry[:, t] * grads[-1]
    return torch.stack([later, *reversed(grads)], dim=1)


def _path(
    cells: Callable | None = None,
    here: Callable | None = None,
    carry: Callable | None = None,
    gate: Callable | None = None,
    given: Callable | None = None,
) -> Callable:
    """Both gradients, right by default, with one thing changed.

    cells(i, f, g, c_0); here(c, o, grad_h); carry(f); given(grad_h): the loss that is taken in.
    gate(grad_c, c, f, here): the gradient of the forget gate's pre-activation.
    """

    def answer(i, f, g, o, c_0, grad_h):
        grad_h = given(grad_h) if given else grad_h
        c = (cells or _cells)(i, f, g, c_0)
        local = (here or _through_h)(c, o, grad_h)
        grad_c = _back(local, carry(f) if carry else f)
        return grad_c, (gate or _of_the_gate)(grad_c, c, f, local)

    return answer


def _of_the_gate(grad_c, c, f, here):
    return grad_c[:, 1:] * c[:, :-1] * f * (1 - f)


_right_path = _path()


def _gate_with(factor: Callable) -> Callable:
    """The gradient of the gate's pre-activation with another factor for the sigmoid."""
    return _path(gate=lambda grad_c, c, f, here: grad_c[:, 1:] * c[:, :-1] * factor(f))


def _next_alone(grad_c, c, f, here):
    return (grad_c[:, 1:] - here) * c[:, :-1] * f * (1 - f)


def _last_only(grad_h):
    return torch.cat([torch.zeros_like(grad_h[:, :-1]), grad_h[:, -1:]], dim=1)


def _products_only(i, f, g, o, c_0, grad_h):
    grad_c = _back(torch.zeros_like(f), f)
    later = torch.ones_like(c_0)
    products = [later]
    for t in reversed(range(f.shape[1])):
        later = later * f[:, t]
        products.append(later)
    grad_c = torch.stack(products[::-1], dim=1)
    return grad_c, _of_the_gate(grad_c, _cells(i, f, g, c_0), f, None)


def _turned(*given):
    grad_c, grad_f = _right_path(*given)
    return grad_c.flip(1), grad_f.flip(1)


def _gates_do_not_meet(i, f, g, c_0):
    return _cells(torch.ones_like(i), f, g, c_0)


PATH_MISTAKES = (
    Mistake(
        "sigmoid's derivative missing",
        _gate_with(torch.ones_like),
        "Your grad_f is the gradient of the gate itself. Its pre-activation lies behind a sigmoid.",
        "the last factor of grad_f: the derivative of the sigmoid, f (1 - f).",
        ("lstm-01",),
    ),
    Mistake(
        "the gate instead of the derivative",
        _gate_with(lambda f: f),
        "You multiply by f where the derivative of the sigmoid belongs.",
        "the last factor of grad_f: f (1 - f).",
        ("lstm-01",),
    ),
    Mistake(
        "sigmoid of the gate",
        _gate_with(torch.sigmoid),
        "You multiply by sigmoid(f). f has been through the sigmoid already, and its derivative is wanted.",
        "the last factor of grad_f: f (1 - f).",
        ("lstm-01",),
    ),
    Mistake(
        "sigmoid's derivative of the gate",
        _gate_with(lambda f: torch.sigmoid(f) * (1 - torch.sigmoid(f))),
        "You take the derivative of the sigmoid at f. But f is the sigmoid's value, not where it was taken.",
        "the last factor of grad_f: with the gate itself it is f (1 - f), and no further sigmoid.",
        ("lstm-01",),
    ),
    Mistake(
        "tanh's derivative for a sigmoid",
        _gate_with(lambda f: 1 - f**2),
        "You multiply by 1 - f², the derivative of a tanh. The forget gate has a sigmoid.",
        "the last factor of grad_f: f (1 - f).",
        ("lstm-01",),
    ),
    Mistake(
        "the gate hears h alone",
        _path(gate=lambda grad_c, c, f, here: here * c[:, :-1] * f * (1 - f)),
        "grad_c is right, but your grad_f takes only what comes through h_t, nothing from later cells.",
        "the factor that all gates share: the whole gradient of c_t, both terms.",
        ("lstm-06",),
    ),
    Mistake(
        "the gate hears the next cell alone",
        _path(gate=_next_alone),
        "grad_c is right, but your grad_f takes only what comes from later cells, nothing through h_t.",
        "the factor that all gates share: the whole gradient of c_t, both terms.",
        ("lstm-06",),
    ),
    Mistake(
        "the cell after the gate",
        _path(gate=lambda grad_c, c, f, here: grad_c[:, 1:] * c[:, 1:] * f * (1 - f)),
        "Your grad_f has c_t where the forget gate multiplies c_{t-1}.",
        "the index of the cell in grad_f.",
    ),
    Mistake(
        "the gradient of the cell before",
        _path(gate=lambda grad_c, c, f, here: grad_c[:, :-1] * c[:, :-1] * f * (1 - f)),
        "Your grad_f uses the gradient of c_{t-1}. The forget gate of step t acts on c_t.",
        "the index of the gradient in grad_f.",
    ),
    Mistake(
        "the forget gate of the same step",
        lambda i, f, g, o, c_0, grad_h: _path(
            carry=lambda f: torch.cat([torch.ones_like(f[:, :1]), f[:, :-1]], dim=1)
        )(i, f, g, o, c_0, grad_h),
        "Between c_t and c_{t+1} you multiply by f_t. It is f_{t+1} that stands there.",
        "the index of the forget gate in the backward pass.",
    ),
    Mistake(
        "no forget gate on the way back",
        _path(carry=torch.ones_like),
        "On your way back nothing is forgotten: the gradient of the next cell is passed on in full.",
        "the factor between one cell and the one before: its forget gate.",
    ),
    Mistake(
        "tanh's derivative missing",
        _path(here=lambda c, o, grad_h: grad_h * o),
        "The way from h_t to c_t leads through a tanh, and its derivative is missing.",
        "the factor 1 - tanh(c_t)².",
    ),
    Mistake(
        "1 - c² for the tanh",
        _path(here=lambda c, o, grad_h: grad_h * o * (1 - c[:, 1:] ** 2)),
        "You write 1 - c². The derivative of the tanh is 1 - tanh(c)².",
        "the tanh inside the square.",
    ),
    Mistake(
        "tanh at the cell before",
        _path(here=lambda c, o, grad_h: grad_h * o * (1 - torch.tanh(c[:, :-1]) ** 2)),
        "You take the tanh's derivative at c_{t-1}. h_t reads c_t.",
        "the index of the cell: with c_0 first, c_t stands one place further.",
    ),
    Mistake(
        "output gate missing",
        _path(here=lambda c, o, grad_h: grad_h * (1 - torch.tanh(c[:, 1:]) ** 2)),
        "The way from h_t to c_t leads through the output gate, and it is missing.",
        "the equation of h_t.",
    ),
    Mistake(
        "the last state alone",
        _path(given=_last_only),
        "You take in the gradient of the last state alone. grad_h brings one at every step.",
        "the loop: each step adds what comes through its own h_t.",
    ),
    Mistake(
        "no way through later cells",
        _path(carry=torch.zeros_like),
        "Nothing comes back from later cells in your gradients: the steps do not know of each other.",
        "the second term: the forget gate of the next step times the gradient of the next cell.",
    ),
    Mistake(
        "products of forget gates alone",
        _products_only,
        "You return the products of forget gates. They still have to be joined with what the loss sends.",
        "the two terms in the gradient of a cell.",
    ),
    Mistake(
        "in the order of the backward pass",
        _turned,
        "Your results are in the order in which the backward pass finds them: the last step first.",
        "reversed(...) or .flip(1) before you return.",
    ),
    Mistake(
        "c_0 missing",
        lambda *given: (_right_path(*given)[0][:, 1:], _right_path(*given)[1]),
        "The gradient of c_0 is missing: there are length + 1 cells.",
        "the end of the backward pass, one step before the first.",
    ),
    Mistake(
        "cells from zero",
        _path(cells=lambda i, f, g, c_0: _cells(i, f, g, torch.zeros_like(c_0))),
        "Your cells start from zero, not from c_0.",
        "the first cell of the forward pass.",
    ),
    Mistake(
        "candidate not gated",
        _path(cells=_gates_do_not_meet),
        "In your forward pass the candidate enters in full: the input gate is missing.",
        "the equation of c_t.",
    ),
)


def _path_by_cumulated_products(i, f, g, o, c_0, grad_h):
    """Each gradient as a sum over the later states, each behind its own product of forget gates."""
    c = _cells(i, f, g, c_0)
    here = torch.cat([torch.zeros_like(c_0)[:, None], _through_h(c, o, grad_h)], dim=1)
    grads = []
    for t in range(c.shape[1]):
        kept = torch.cumprod(torch.cat([torch.ones_like(c_0)[:, None], f[:, t:]], dim=1), dim=1)
        grads.append((kept * here[:, t:]).sum(1))
    grad_c = torch.stack(grads, dim=1)
    return grad_c, grad_c[:, 1:] * c[:, :-1] * f * (1 - f)


def _path_in_place(i, f, g, o, c_0, grad_h):
    """Results written into tensors that the answer made itself, a sigmoid's derivative from its input."""
    c = torch.empty(f.shape[0], f.shape[1] + 1, f.shape[2], dtype=f.dtype)
    c[:, 0] = c_0
    for t in range(f.shape[1]):
        c[:, t + 1] = f[:, t] * c[:, t] + i[:, t] * g[:, t]
    grad_c, grad_f = torch.zeros_like(c), torch.zeros_like(f)
    for t in range(f.shape[1] - 1, -1, -1):
        grad_c[:, t + 1] += grad_h[:, t] * o[:, t] / torch.cosh(c[:, t + 1]) ** 2
        grad_c[:, t] = grad_c[:, t + 1] * f[:, t]
        grad_f[:, t] = grad_c[:, t + 1] * c[:, t] * (f[:, t] - f[:, t] ** 2)
    return [grad_c, grad_f]


PATH_VARIANTS = (
    Variant("sums over cumulated products", _path_by_cumulated_products),
    Variant("written in place, 1 / cosh²", _path_in_place),
)

CELL_PATH = Exercise(
    question=find("02.4"),
    title="the gradient along the cell path",
    minutes=20,
    difficulty=3,
    reference=_path_reference,
    axes={"grad_c": "batch, length + 1, hidden", "grad_f": "batch, length, hidden"},
    parts=(
        Part(
            "the gradients of the cells",
            1,
            _draw_path(27),
            ("grad_c",),
            "who reads a cell, and with which factor: the two terms, for the smallest case by hand.",
        ),
        Part(
            "the gradients of the forget gates",
            1,
            _draw_path(28),
            ("grad_f",),
            "what the forget gate of a step multiplies, and what lies between it and its pre-activation.",
        ),
    ),
    mistakes=PATH_MISTAKES,
    variants=PATH_VARIANTS,
    forbidden=("torch.autograd", "torch.Tensor.backward"),
)


# --- 02.5 the bits of a document against those of a state ---------------------------------------------------


def _bits(
    tokens: int,
    vocabulary: int,
    hidden: int,
    bits: int,
    cell: str,
    *,
    token: Callable[[int], float] = math.log2,
    states: Sequence[int] = (1, 2),
    whole: Callable = math.floor,
) -> tuple:
    """The three numbers, right by default, with one thing changed; `states` of a GRU and of an LSTM."""
    state = states[cell == "lstm"] * hidden * bits
    return tokens * token(vocabulary), state, whole(state / token(vocabulary))


def _bits_reference(inputs: Inputs) -> Outputs:
    values = _bits(*(inputs[name] for name in SIZES))
    return {name: np.array(float(value)) for name, value in zip(FIGURES, values, strict=True)}


def _draw_sizes(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 29])
    cases = []
    # What fits beside whole tokens is a large part of a token or a small one, so that any rounding shows.
    for cell, bits, low, high in (
        ("gru", 8, 0.55, 0.95),
        ("gru", 16, 0.05, 0.45),
        ("lstm", 32, 0.55, 0.95),
        ("lstm", 16, 0.05, 0.45),
    ):
        while True:
            vocabulary, hidden = int(rng.integers(300, 60_000)), int(rng.integers(60, 900))
            fit = (1 + (cell == "lstm")) * hidden * bits / math.log2(vocabulary)
            if low < fit % 1 < high and math.log2(vocabulary) % 1 > 0.02:
                break
        tokens = int(rng.integers(10, 30) if bits == 8 else rng.integers(1_000, 9_000))  # it fits, or not
        cases.append(dict(zip(SIZES, (tokens, vocabulary, hidden, bits, cell), strict=True)))
    return cases


def _bits_with(**changes) -> Callable:
    return lambda *sizes: _bits(*sizes, **changes)


def _longest_of_tokens(tokens, vocabulary, hidden, bits, cell):
    document, state, longest = _bits(tokens, vocabulary, hidden, bits, cell)
    return document, state, min(longest, tokens)


def _per_token(tokens, vocabulary, hidden, bits, cell):
    _, state, longest = _bits(tokens, vocabulary, hidden, bits, cell)
    return math.log2(vocabulary), state, longest


def _state_grows(tokens, vocabulary, hidden, bits, cell):
    document, state, longest = _bits(tokens, vocabulary, hidden, bits, cell)
    return document, state * tokens, longest


def _numbers_of_the_state(tokens, vocabulary, hidden, bits, cell):
    document, state, _ = _bits(tokens, vocabulary, hidden, bits, cell)
    return document, state // bits, math.floor(state // bits / math.log2(vocabulary))


def _in_bytes(tokens, vocabulary, hidden, bits, cell):
    document, state, longest = _bits(tokens, vocabulary, hidden, bits, cell)
    return document / 8, state / 8, longest


def _ratio(tokens, vocabulary, hidden, bits, cell):
    document, state, _ = _bits(tokens, vocabulary, hidden, bits, cell)
    return document, state, state / document


def _state_first(*sizes):
    document, state, longest = _bits(*sizes)
    return state, document, longest


BITS_MISTAKES = (
    Mistake(
        "32 bits an id",
        _bits_with(token=lambda vocabulary: 32),
        "You count 32 bits an id, as it is kept in memory. To tell the words apart takes fewer.",
        "the bits of a token: log2 of the vocabulary.",
    ),
    Mistake(
        "whole bits a token",
        _bits_with(token=lambda vocabulary: math.ceil(math.log2(vocabulary))),
        "You round the bits of each token up. Tokens share: together they need less.",
        "a ceil, a round or bit_length around the log2.",
    ),
    Mistake(
        "natural logarithm",
        _bits_with(token=math.log),
        "You use the natural logarithm, which counts nats. Bits come from log2.",
        "math.log2.",
    ),
    Mistake(
        "the vocabulary as bits",
        _bits_with(token=lambda vocabulary: vocabulary),
        "You count one bit for each word of the vocabulary. To number them takes log2 of that.",
        "the bits of a token.",
    ),
    Mistake(
        "the cell of the LSTM is missing",
        _bits_with(states=(1, 1)),
        "Your LSTM carries h alone. It carries c as well, of the same width.",
        "the number of vectors in the state of each cell.",
    ),
    Mistake(
        "two vectors for the GRU too",
        _bits_with(states=(2, 2)),
        "Your GRU carries two vectors. It has h alone.",
        "the number of vectors in the state of each cell.",
    ),
    Mistake(
        "the gates counted as state",
        _bits_with(states=(3, 4)),
        "You count the gates. They are computed anew at each step; what is carried on is h, or h and c.",
        "the number of vectors in the state of each cell.",
    ),
    Mistake(
        "bytes",
        _in_bytes,
        "You return bytes. Wanted are bits.",
        "a division by 8.",
    ),
    Mistake(
        "numbers, not bits, of the state",
        _numbers_of_the_state,
        "Your state is counted in numbers. Each has `bits` bits.",
        "the bits of the state.",
    ),
    Mistake(
        "a state for each token",
        _state_grows,
        "Your state grows with the document. A recurrent layer has one, however long the document is.",
        "what the bits of the state depend on.",
    ),
    Mistake(
        "one token",
        _per_token,
        "Your document has one token.",
        "the bits of the document: all its tokens.",
    ),
    Mistake(
        "the longest rounded up",
        _bits_with(whole=math.ceil),
        "You round the longest document up: its last token fits only in part.",
        "math.floor.",
    ),
    Mistake(
        "the longest rounded",
        _bits_with(whole=round),
        "You round the longest document to the nearest number: its last token fits only in part.",
        "math.floor.",
    ),
    Mistake(
        "the longest not whole",
        _bits_with(whole=float),
        "Your longest document ends within a token.",
        "math.floor.",
    ),
    Mistake(
        "the longest kept to this document",
        _longest_of_tokens,
        "Your longest document is never longer than the one given. It does not depend on it.",
        "a min with the number of tokens.",
    ),
    Mistake(
        "a ratio for the longest",
        _ratio,
        "Your third number is the state's bits over the document's. Wanted is a number of tokens.",
        "what the bits of the state are divided by.",
    ),
    Mistake(
        "state before document",
        _state_first,
        "You return the state first. Wanted is (document, state, longest).",
        "the return line.",
    ),
)


def _bits_by_search(tokens, vocabulary, hidden, bits, cell):
    """Whole numbers only: how many tokens can be numbered with the state's bits."""
    state = hidden * bits * (2 if cell == "lstm" else 1)
    longest = int(state * math.log(2) / math.log(vocabulary))
    return [tokens * math.log(vocabulary, 2), float(state), float(longest)]


BITS_VARIANTS = (
    Variant("natural logarithms divided", _bits_by_search),
    Variant("numpy numbers", lambda t, v, h, b, c: tuple(map(np.float64, _bits(t, v, h, b, c)))),
    Variant(
        "tensors without axes", lambda *sizes: tuple(torch.tensor(float(n)).double() for n in _bits(*sizes))
    ),
)

DOCUMENT_AND_STATE = Exercise(
    question=find("02.5"),
    title="the bits of a document and of a state",
    minutes=10,
    difficulty=1,
    reference=_bits_reference,
    axes={name: "" for name in FIGURES},
    parts=(
        Part(
            "what must be held, what there is, and what would fit",
            1,
            _draw_sizes,
            FIGURES,
            "the three numbers one by one, with the tiny example.",
        ),
    ),
    mistakes=BITS_MISTAKES,
    variants=BITS_VARIANTS,
)

EXERCISES = [LSTM_STEP, GRU_STEP, MEMORY_BIASES, CELL_PATH, DOCUMENT_AND_STATE]
