"""The exercises of lesson 01, recurrent networks and their vanishing gradient, and how they go wrong.

Sources such as "rnn-02" name the public bug report or thread that a mistake or a variant was first seen in.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from numpy.random import Generator, default_rng

from course_utils.checks.draws import normal, sizes
from course_utils.checks.engine import (
    GRADIENT_TOLERANCE,
    Exercise,
    Finding,
    Mistake,
    Part,
    Variant,
    numeric_gradient,
)
from course_utils.questions import find
from course_utils.questions.asking import (
    Inputs,
    Outputs,
)
from course_utils.questions.lesson01 import (
    BPTT_ARGUMENTS,
    BPTT_RESULTS,
    CELL_WEIGHTS,
    FORWARD_ARGUMENTS,
    NORM_ARGUMENTS,
)

CUT = ".detach(), .data, .numpy(), torch.tensor(...) and torch.no_grad(): each of them cuts the way back."


# --- 01.1 the forward pass ----------------------------------------------------------------------------------


def _forward(x: np.ndarray, h0: np.ndarray, W_x: np.ndarray, W_h: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Float64 reference: x (batch, length, input), h0 (batch, hidden) -> (batch, length, hidden)."""
    x, h, W_x, W_h, b = (a.astype(np.float64) for a in (x, h0, W_x, W_h, b))
    states = []
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_x.T + h @ W_h.T + b)
        states.append(h)
    return np.stack(states, axis=1)


def _forward_reference(inputs: Inputs) -> Outputs:
    def states(given: Inputs) -> np.ndarray:
        return _forward(*(given[name] for name in FORWARD_ARGUMENTS))

    expected = {"states": states(inputs)}
    if "upstream" in inputs:
        for name in FORWARD_ARGUMENTS[1:]:
            expected[f"gradient of {name}"] = numeric_gradient(states, inputs, name)
    return expected


def _network(
    rng: Generator, batch: int, length: int, input: int, hidden: int, dtype: str = "float32"
) -> Inputs:
    """Weights that keep tanh out of its flat ends; bias and first state are not zero, so nothing hides."""
    return {
        "x": normal(rng, batch, length, input, dtype=dtype),
        "h0": 0.5 * normal(rng, batch, hidden, dtype=dtype),
        "W_x": 0.5 * normal(rng, hidden, input, dtype=dtype),
        "W_h": 0.5 * normal(rng, hidden, hidden, dtype=dtype),
        "b": 0.5 * normal(rng, hidden, dtype=dtype),
    }


def _rounded(inputs: Inputs) -> Inputs:
    """A case that can be followed with a pencil; + 0.0 turns a -0 into 0."""
    return {name: value if type(value) is str else value.round(1) + 0.0 for name, value in inputs.items()}


def _draw_one_sequence(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 11])
    length, input, hidden = sizes(rng, 3, 3, 8)
    return [
        _rounded(_network(rng, 1, 2, 1, 2)),
        _network(rng, 1, length, input, hidden),
        _network(rng, 1, length, hidden, hidden),  # equal widths: a wrong product of matrices does not raise
    ]


def _draw_batch(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 12])
    length, hidden = sizes(rng, 2, 3, 6)
    twins = _network(rng, 2, length, hidden, hidden)  # alike but for the last input and nothing before it
    twins["x"][1, :-1], twins["h0"][1] = twins["x"][0, :-1], twins["h0"][0]
    batch, length, input, hidden = sizes(rng, 4, 2, 7)
    slow = _network(rng, batch, length, input, hidden)
    square = _network(rng, length, length, input, hidden)  # as many sequences as steps
    return [
        twins,
        square,
        slow | {"upstream": normal(rng, batch, length, hidden)},
    ]


def _inputs_count(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    states = outputs["states"].astype(np.float64)
    if states.shape[1] > 1 and (abs(states - states[:, :1]) < 1e-6).all():
        return Finding(
            "The state is the same after every step.",
            "what your loop puts into the list of states.",
            output="states",
        )
    return None


def _the_future_moves_nothing(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    """Where the first two sequences differ in their last input alone, the states before it are the same."""
    (x, y), (h, k), states = inputs["x"][:2], inputs["h0"][:2], outputs["states"]
    if (x[:-1] == y[:-1]).all() and (h == k).all() and (abs(states[0] - states[1])[:-1] > 1e-5).any():
        return Finding(
            "The first two sequences differ in their last input alone, and yet earlier states differ.",
            "whether a state has read an input that comes after it.",
            output="states",
        )
    return None


def _steps(step: Callable) -> Callable:
    """A forward pass from one step: step(x_t, h, W_x, W_h, b) -> h."""

    def forward(x, h0, W_x, W_h, b):
        h, states = h0, []
        for x_t in x.unbind(1):
            h = step(x_t, h, W_x, W_h, b)
            states.append(h)
        return torch.stack(states, dim=1)

    return forward


def _sum(x_t, h, W_x, W_h, b):
    return x_t @ W_x.T + h @ W_h.T + b


_rnn_forward = _steps(lambda *given: torch.tanh(_sum(*given)))


def _first_state_everywhere(x, h0, W_x, W_h, b):
    return torch.tanh(x @ W_x.T + (h0 @ W_h.T)[:, None] + b)


def _batch_as_time(x, h0, W_x, W_h, b):
    h, states = h0, []
    for x_t in x:
        h = torch.tanh(x_t @ W_x.T + h @ W_h.T + b)
        states.append(h)
    return torch.stack(states)


def _inputs_late(x, h0, W_x, W_h, b):
    return _rnn_forward(torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1), h0, W_x, W_h, b)


def _state_written_over(x, h0, W_x, W_h, b):
    h, states = h0, []
    for x_t in x.unbind(1):
        h.copy_(torch.tanh(_sum(x_t, h, W_x, W_h, b)))
        states.append(h.clone())
    return torch.stack(states, dim=1)


FORWARD_MISTAKES = (
    Mistake(
        "tanh closed too early",
        _steps(lambda x_t, h, W_x, W_h, b: torch.tanh(x_t @ W_x.T) + h @ W_h.T + b),
        "You apply tanh to the input's share alone. Recurrent share and bias belong inside; outside, the "
        "state can grow without end.",
        "the closing bracket of tanh.",
        ("rnn-08",),
    ),
    Mistake(
        "bias outside tanh",
        _steps(lambda x_t, h, W_x, W_h, b: torch.tanh(x_t @ W_x.T + h @ W_h.T) + b),
        "You add the bias after tanh. It belongs inside, and no state can leave -1 to 1.",
        "the closing bracket of tanh.",
        ("rnn-08",),
    ),
    Mistake(
        "h0 ignored",
        lambda x, h0, *weights: _rnn_forward(x, torch.zeros_like(h0), *weights),
        "You start from zeros. The first state to enter is the h0 that you were given.",
        "the line before the loop.",
        ("rnn-11",),
    ),
    Mistake(
        "state never carried on",
        _first_state_everywhere,
        "Every step starts from h0 again, so that a state knows its own input only.",
        "the loop: the new state has to become the old state of the next step.",
    ),
    Mistake(
        "no bias",
        _steps(lambda x_t, h, W_x, W_h, b: torch.tanh(x_t @ W_x.T + h @ W_h.T)),
        "The bias is missing.",
        "the sum inside tanh: it has three parts.",
        ("rnn-11",),
    ),
    Mistake(
        "bias added twice",
        _steps(lambda *given: torch.tanh(_sum(*given) + given[-1])),
        "You add the bias twice. (nn.RNN has two biases, b_ih and b_hh; here there is one, their sum.)",
        "the sum inside tanh.",
    ),
    Mistake(
        "no recurrence",
        _steps(lambda x_t, h, W_x, W_h, b: torch.tanh(x_t @ W_x.T + b)),
        "The old state does not enter: without W_h times it, nothing is remembered.",
        "the sum inside tanh: it has three parts.",
    ),
    Mistake(
        "W_h left out",
        _steps(lambda x_t, h, W_x, W_h, b: torch.tanh(x_t @ W_x.T + h + b)),
        "You add the old state itself. W_h times it is wanted.",
        "the recurrent part of the sum.",
    ),
    Mistake(
        "W_h not transposed",
        _steps(lambda x_t, h, W_x, W_h, b: torch.tanh(x_t @ W_x.T + h @ W_h + b)),
        "You multiply by W_h as it is. It is square, so nothing complains; but with the state on the left it "
        "has to be transposed.",
        "h @ W_h.T: row i of W_h makes unit i of the new state.",
        ("rnn-11",),
    ),
    Mistake(
        "reshape instead of a transpose",
        _steps(lambda x_t, h, W_x, W_h, b: torch.tanh(x_t @ W_x.reshape(x_t.shape[-1], -1) + h @ W_h.T + b)),
        "You reshape W_x to fit. That deals its numbers out anew; a transpose keeps rows and columns apart.",
        ".T (or F.linear, which transposes for you).",
    ),
    Mistake(
        "no tanh",
        _steps(_sum),
        "Your states lack the tanh.",
        "the line that makes the new state.",
    ),
    Mistake(
        "sigmoid instead of tanh",
        _steps(lambda *given: torch.sigmoid(_sum(*given))),
        "You use a sigmoid where this network has a tanh.",
        "the activation function.",
    ),
    Mistake(
        "relu instead of tanh",
        _steps(lambda *given: torch.relu(_sum(*given))),
        "You use a ReLU where this network has a tanh.",
        "the activation function.",
    ),
    Mistake(
        "tanh applied twice",
        _steps(lambda *given: torch.tanh(torch.tanh(_sum(*given)))),
        "You apply tanh twice.",
        "the line that makes the new state, and the one that stores it.",
    ),
    Mistake(
        "batch taken for time",
        _batch_as_time,
        "Your loop goes through the sequences of the batch, and hands the state of one to the next.",
        "the axis of the loop: x is (batch, length, input), and time is axis 1.",
    ),
    Mistake(
        "time first",
        lambda *given: _rnn_forward(*given).transpose(0, 1),
        "Your states are (length, batch, hidden). Wanted is batch first: (batch, length, hidden).",
        "torch.stack(states, dim=1).",
    ),
    Mistake(
        "last state only",
        lambda *given: _rnn_forward(*given)[:, -1],
        "You return the last state. The states after every step are wanted.",
        "a list that collects the states, and torch.stack(states, dim=1) at the end.",
    ),
    Mistake(
        "h0 among the states",
        lambda x, h0, *weights: torch.cat([h0[:, None], _rnn_forward(x, h0, *weights)], dim=1),
        "You return h0 as well. The first state that is wanted is the one after the first input.",
        "when your loop appends: before the step or after it.",
    ),
    Mistake(
        "states one step early",
        lambda x, h0, *weights: torch.cat([h0[:, None], _rnn_forward(x, h0, *weights)[:, :-1]], dim=1),
        "Your states come one step early: first h0, and the last state is missing.",
        "when your loop appends: before the step or after it.",
    ),
    Mistake(
        "inputs one step late",
        _inputs_late,
        "Your inputs come one step late: state t has to read x_t.",
        "the index of x in the loop.",
    ),
    Mistake(
        "read backwards",
        lambda x, *rest: _rnn_forward(x.flip(1), *rest).flip(1),
        "You read the sequence from its end.",
        "the order of the loop.",
    ),
    Mistake(
        "all states are the last",
        lambda *given: _rnn_forward(*given)[:, -1:].expand(-1, given[0].shape[1], -1),
        "All your states are the last one: a list of one tensor that is written into holds it many times.",
        "a new tensor for each step, instead of h.copy_(...) or h[:] = ...",
    ),
    Mistake(
        "h0 written over",
        _state_written_over,
        "You write the new state into h0. The caller still needs it.",
        "operations that end in an underscore, and assignments to h0[...].",
    ),
    Mistake(
        "gradient cut",
        _steps(lambda x_t, h, *weights: torch.tanh(_sum(x_t, h.detach(), *weights))),
        "You cut the state off from the step before: no gradient flows back through time.",
        CUT,
        ("gn-09",),
    ),
)


def _forward_preprojected(x, h0, W_x, W_h, b):
    """The input's share of all steps in one product."""
    drive, h, states = torch.nn.functional.linear(x, W_x, b), h0, []
    for t in range(x.shape[1]):
        h = torch.tanh(drive[:, t] + torch.nn.functional.linear(h, W_h))
        states += [h.unsqueeze(1)]
    return torch.cat(states, dim=1)


def _forward_joined(x, h0, W_x, W_h, b):
    """One product with [x; h]."""
    W = torch.cat([W_x, W_h], dim=1)
    return _steps(lambda x_t, h, *_: (torch.cat([x_t, h], dim=-1) @ W.T + b).tanh())(x, h0, W_x, W_h, b)


def _forward_one_by_one(x, h0, W_x, W_h, b):
    rows = []
    for sequence, h in zip(x, h0, strict=True):
        row = []
        for x_t in sequence:
            h = torch.tanh(W_x @ x_t + W_h @ h + b)
            row.append(h)
        rows.append(torch.stack(row))
    return torch.stack(rows)


def _forward_into_a_table(x, h0, W_x, W_h, b):
    states = x.new_zeros(*x.shape[:2], len(b))
    h = h0
    for t in range(x.shape[1]):
        a = _sum(x[:, t], h, W_x, W_h, b)
        h = 2 * torch.sigmoid(2 * a) - 1  # which is tanh
        states[:, t] = h
    return states


FORWARD_VARIANTS = (
    Variant("all inputs projected first", _forward_preprojected),
    Variant("input and state joined", _forward_joined),
    Variant("one sequence at a time", _forward_one_by_one),
    Variant("written into a table, tanh through a sigmoid", _forward_into_a_table),
)

RNN_FORWARD = Exercise(
    question=find("01.1"),
    title="forward pass",
    minutes=10,
    difficulty=1,
    reference=_forward_reference,
    axes={"states": "batch, length, hidden"},
    parts=(
        Part(
            "one sequence",
            1,
            _draw_one_sequence,
            ("states",),
            "the first step alone: tanh of three parts, with h0 as the old state.",
            (_inputs_count,),
        ),
        Part(
            "a batch, and the gradient through all steps",
            1,
            _draw_batch,
            ("states", *(f"gradient of {name}" for name in FORWARD_ARGUMENTS[1:])),
            "the axes: x is (batch, length, input), and so are the states, with hidden in place of input.",
            (_the_future_moves_nothing,),
        ),
    ),
    mistakes=FORWARD_MISTAKES,
    variants=FORWARD_VARIANTS,
    forbidden=("torch.nn.RNN", "torch.nn.RNNCell", "torch.rnn_tanh", "course_utils.models"),
)


# --- 01.2 backpropagation through time ----------------------------------------------------------------------


def _bptt_reference(inputs: Inputs) -> Outputs:
    x, h0, states, W_h, d_states = (inputs[name].astype(np.float64) for name in BPTT_ARGUMENTS)
    before = np.concatenate([h0[:, None], states[:, :-1]], axis=1)  # (batch, length, hidden)
    dz = np.zeros_like(states)
    carry = np.zeros_like(h0)
    for t in reversed(range(states.shape[1])):
        dz[:, t] = (d_states[:, t] + carry) * (1 - states[:, t] ** 2)
        carry = dz[:, t] @ W_h
    return {
        "dW_x": np.einsum("bth,bti->hi", dz, x),
        "dW_h": np.einsum("bth,btk->hk", dz, before),
        "db": dz.sum((0, 1)),
        "dh0": carry,
    }


def _backward_inputs(rng: Generator, *shape: int, dtype: str = "float32", tiny: bool = False) -> Inputs:
    batch, length, _, hidden = shape
    network = _network(rng, *shape, dtype=dtype)
    d_states = normal(rng, batch, length, hidden, dtype=dtype)
    if tiny:
        network, d_states = _rounded(network), d_states.round(1) + 0.0
    states = _forward(**network).astype(dtype)
    return network | {"states": states, "d_states": d_states}


def _given(inputs: Inputs) -> Inputs:
    """What the answer gets: states, and not what they were made with, so that it has to go back by hand."""
    return {name: inputs[name] for name in BPTT_ARGUMENTS}


def _draw_one_step_back(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 13])
    batch, input, hidden = sizes(rng, 3, 2, 7)
    return [
        _given(_backward_inputs(rng, 1, 1, 1, 2, tiny=True)),
        _given(_backward_inputs(rng, 1, 1, input, hidden)),
        _given(_backward_inputs(rng, batch, 1, input, hidden)),
    ]


def _draw_through_time(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 14])
    length, input, hidden = sizes(rng, 3, 3, 7)
    last = _backward_inputs(rng, 1, length, input, hidden)
    last["d_states"][:, :-1] = 0
    return [
        _given(_backward_inputs(rng, 1, 2, 1, 2, tiny=True)),
        _given(last),
        _given(_backward_inputs(rng, 2, 3, 4, 5)),
        _given(_backward_inputs(rng, *sizes(rng, 4, 2, 8))),
    ]


def _backward(
    slope: Callable = lambda h: 1 - h**2,
    carried: Callable = lambda dz, dh, W_h: dz @ W_h,
    incoming: Callable = lambda d_states, t, carry: d_states[:, t] + carry,
    order: Callable = lambda length: reversed(range(length)),
) -> Callable:
    """Backpropagation through time, right unless one of its steps is replaced."""

    def bptt(x, h0, states, W_h, d_states):
        dW_x, dW_h, db = x.new_zeros(len(W_h), x.shape[2]), torch.zeros_like(W_h), x.new_zeros(len(W_h))
        carry = torch.zeros_like(h0)
        for t in order(x.shape[1]):
            before = states[:, t - 1] if t > 0 else h0
            dh = incoming(d_states, t, carry)
            dz = dh * slope(states[:, t])
            dW_x, dW_h, db = dW_x + dz.T @ x[:, t], dW_h + dz.T @ before, db + dz.sum(0)
            carry = carried(dz, dh, W_h)
        return dW_x, dW_h, db, carry

    return bptt


_bptt = _backward()


def _tanh_backward_of_the_gradient(x, h0, states, W_h, d_states):
    dW_x, dW_h, db, carry = 0, 0, 0, torch.zeros_like(h0)
    for t in reversed(range(x.shape[1])):
        dz = 1 - torch.tanh(d_states[:, t] + carry) ** 2
        before = states[:, t - 1] if t else h0
        dW_x, dW_h, db = dW_x + dz.T @ x[:, t], dW_h + dz.T @ before, db + dz.sum(0)
        carry = dz @ W_h
    return dW_x, dW_h, db, carry


def _paired_with(before: Callable) -> Callable:
    """Backpropagation with another state in the gradient of W_h: before(h0, states, t)."""

    def bptt(x, h0, states, W_h, d_states):
        dW_x, _, db, dh0 = _bptt(x, h0, states, W_h, d_states)
        dW_h, carry = torch.zeros_like(W_h), torch.zeros_like(h0)
        for t in reversed(range(x.shape[1])):
            dz = (d_states[:, t] + carry) * (1 - states[:, t] ** 2)
            dW_h = dW_h + dz.T @ before(h0, states, t)
            carry = dz @ W_h
        return dW_x, dW_h, db, dh0

    return bptt


def _changed_results(change: Callable) -> Callable:
    """Backpropagation whose four results go through change(x, results)."""
    return lambda x, *rest: change(x, _bptt(x, *rest))


def _first_step_only(x, h0, states, W_h, d_states):
    carry = torch.zeros_like(h0)
    for t in reversed(range(x.shape[1])):
        dz = (d_states[:, t] + carry) * (1 - states[:, t] ** 2)
        dW_x, dW_h, db = dz.T @ x[:, t], dz.T @ (states[:, t - 1] if t else h0), dz.sum(0)
        carry = dz @ W_h
    return dW_x, dW_h, db, carry


def _stops_before_h0(x, h0, states, W_h, d_states):
    *weights, _ = _bptt(x, h0, states, W_h, d_states)
    last = []
    _backward(carried=lambda dz, dh, W_h: last.append(dz) or dz @ W_h)(x, h0, states, W_h, d_states)
    return *weights, last[-1]


def _slope_of_the_state_before(x, h0, states, W_h, d_states):
    before = torch.cat([h0[:, None], states[:, :-1]], dim=1)
    carry, dW_x, dW_h, db = torch.zeros_like(h0), 0, 0, 0
    for t in reversed(range(x.shape[1])):
        dz = (d_states[:, t] + carry) * (1 - before[:, t] ** 2)
        dW_x, dW_h, db = dW_x + dz.T @ x[:, t], dW_h + dz.T @ before[:, t], db + dz.sum(0)
        carry = dz @ W_h
    return dW_x, dW_h, db, carry


def _last_gradient_only(x, h0, states, W_h, d_states):
    last = torch.zeros_like(d_states)
    last[:, -1] = d_states[:, -1]
    return _bptt(x, h0, states, W_h, last)


def _writes_into_d_states(x, h0, states, W_h, d_states):
    results = _bptt(x, h0, states, W_h, d_states.clone())
    for t in reversed(range(1, x.shape[1])):
        d_states[:, t - 1] += (d_states[:, t] * (1 - states[:, t] ** 2)) @ W_h
    return results


BPTT_MISTAKES = (
    Mistake(
        "nothing flows back through time",
        _backward(incoming=lambda d_states, t, carry: d_states[:, t]),
        "Each step gets the gradient of its own state only: what flows back from step t+1 is never added.",
        "the variable that carries dL/dh to the step before: set at the end of the loop, added at its start.",
        ("rnn-02",),
    ),
    Mistake(
        "tanh' of the gradient",
        _tanh_backward_of_the_gradient,
        "You take 1 - tanh² of the incoming gradient. It is to be multiplied by tanh' at the state.",
        "the line of tanh'. Twice the loss must give twice the gradients; yours does not.",
        ("rnn-03",),
    ),
    Mistake(
        "new state instead of old",
        _paired_with(lambda h0, states, t: states[:, t]),
        "In dW_h you pair step t with its own state h_t. W_h was multiplied with the state before, h_{t-1}.",
        "the index of the states in the gradient of W_h.",
        ("rnn-05",),
    ),
    Mistake(
        "index wraps to the last state",
        _paired_with(lambda h0, states, t: states[:, t - 1]),
        "At the first step, states[:, t - 1] is states[:, -1], the last state. There h0 belongs.",
        "the first step of the sequence: the state before it is h0.",
        ("rnn-06",),
    ),
    Mistake(
        "zeros instead of h0",
        _paired_with(lambda h0, states, t: states[:, t - 1] if t else torch.zeros_like(h0)),
        "At the first step you take zeros for the state before. It is the h0 that you were given.",
        "the first step of the sequence.",
        ("rnn-11",),
    ),
    Mistake(
        "divided by the batch",
        _changed_results(lambda x, results: [g / len(x) for g in results]),
        "Your gradients are too small by exactly the size of the batch. The loss is a sum, no mean.",
        "a mean, or a division by len(x). A constant factor is never a mistake of calculus.",
        ("rnn-07",),
    ),
    Mistake(
        "divided by the length",
        _changed_results(lambda x, results: [g / x.shape[1] for g in results]),
        "Your gradients are too small by exactly the number of steps. The loss is a sum, no mean.",
        "a mean, or a division by the length. A constant factor is never a mistake of calculus.",
        ("rnn-07",),
    ),
    Mistake(
        "weights' gradients averaged over the batch",
        _changed_results(lambda x, results: [*(g / len(x) for g in results[:3]), results[3]]),
        "The weights' gradients are too small by the size of the batch: they add up over sequences.",
        "a mean(0) where a sum(0) belongs.",
        ("rnn-07",),
    ),
    Mistake(
        "tanh' left out",
        _backward(slope=torch.ones_like),
        "Your gradient goes through tanh as if it were not there.",
        "the factor 1 - h_t² on the way from h_t to what stands inside tanh.",
    ),
    Mistake(
        "1 - h instead of 1 - h²",
        _backward(slope=lambda h: 1 - h),
        "Your tanh' is 1 - h. It is 1 - h².",
        "the square.",
    ),
    Mistake(
        "sigmoid's derivative",
        _backward(slope=lambda h: h * (1 - h)),
        "h(1 - h) is the derivative of the sigmoid. That of tanh is 1 - h².",
        "the derivative of the activation.",
    ),
    Mistake(
        "tanh of the state again",
        _backward(slope=lambda h: 1 - torch.tanh(h) ** 2),
        "The states have been through tanh already: tanh' is 1 - h², and not 1 - tanh(h)².",
        "the line of tanh'.",
        ("rnn-12",),
    ),
    Mistake(
        "divided by tanh'",
        _backward(slope=lambda h: 1 / (1 - h**2)),
        "You divide by 1 - h². That undoes a tanh; the chain rule multiplies.",
        "the line of tanh'.",
        ("rnn-12",),
    ),
    Mistake(
        "tanh' of the state before",
        _slope_of_the_state_before,
        "You take tanh' at h_{t-1}. It belongs to what step t put out: h_t.",
        "the index of the state in tanh'.",
    ),
    Mistake(
        "tanh' skipped on the way to the step before",
        _backward(carried=lambda dz, dh, W_h: dh @ W_h),
        "You carry dL/dh_t on without tanh'. What goes back through W_h has been through tanh first.",
        "the line that makes the gradient for the step before.",
    ),
    Mistake(
        "W_h transposed on the way back",
        _backward(carried=lambda dz, dh, W_h: dz @ W_h.T),
        "Your way back multiplies with W_h.T in rows. Forward it was h @ W_h.T, so back it is dz @ W_h.",
        "the line that makes the gradient for the step before.",
    ),
    Mistake(
        "W_h skipped on the way back",
        _backward(carried=lambda dz, dh, W_h: dz),
        "You hand the gradient to the step before without going through W_h.",
        "the line that makes the gradient for the step before.",
    ),
    Mistake(
        "dW_h transposed",
        _changed_results(lambda x, results: [results[0], results[1].T, *results[2:]]),
        "Your dW_h is transposed. Row i belongs to unit i of the new state, as in W_h.",
        "the order of the product: dz is on the left, transposed.",
    ),
    Mistake(
        "only one step counts",
        _first_step_only,
        "Your weights' gradients are those of a single step: each turn of the loop writes over the last.",
        "= where += belongs.",
    ),
    Mistake(
        "dh0 stops inside the first step",
        _stops_before_h0,
        "Your dh0 is the gradient inside the first tanh. From there it still goes through W_h to h0.",
        "what you return for dh0.",
    ),
    Mistake(
        "only the last state's gradient",
        _last_gradient_only,
        "You use the gradient of the last state only. The loss reads every state.",
        "d_states[:, t] inside the loop.",
    ),
    Mistake(
        "forwards through time",
        _backward(order=range),
        "Your loop runs forwards. The gradient of h_t needs that of h_{t+1} first.",
        "reversed(range(length)).",
    ),
    Mistake(
        "dh0 summed over the batch",
        _changed_results(lambda x, results: [*results[:3], results[3].sum(0)]),
        "You sum dh0 over the batch. Each sequence has its own h0, and so its own gradient.",
        "the shape of dh0: (batch, hidden).",
    ),
    Mistake(
        "writes into d_states",
        _writes_into_d_states,
        "You write into the gradients that you were given. The caller still needs them.",
        "d_states[:, t] += ...: make a new tensor instead.",
    ),
)


def _bptt_by_matrices(x, h0, states, W_h, d_states):
    """Collects dz of all steps, then takes each weight's gradient in one product."""
    collected, carry = [], 0
    for h, dh in zip(states.unbind(1)[::-1], d_states.unbind(1)[::-1], strict=True):
        collected.insert(0, (1 - h) * (1 + h) * (dh + carry))
        carry = torch.matmul(collected[0], W_h)
    dz = torch.stack(collected, dim=1)
    before = torch.cat([h0[:, None], states], dim=1)[:, :-1]
    dW_x, dW_h = (torch.einsum("bth,btk->hk", dz, value) for value in (x, before))
    return [dW_x, dW_h, dz.sum(dim=(0, 1)), carry]


def _bptt_one_by_one(x, h0, states, W_h, d_states):
    """One sequence at a time, with explicit Jacobians, as on paper."""
    totals, first = [0, 0, 0], []
    for sequence, h_first, row, d_row in zip(x, h0, states, d_states, strict=True):
        before = [h_first, *row[:-1]]
        dh = torch.zeros_like(h_first)
        for t in range(len(row) - 1, -1, -1):
            dz = torch.diag(1 - row[t] * row[t]) @ (dh + d_row[t])
            parts = torch.outer(dz, sequence[t]), torch.outer(dz, before[t]), dz
            totals = [total + part for total, part in zip(totals, parts, strict=True)]
            dh = W_h.T @ dz
        first.append(dh)
    return *totals, torch.stack(first)


BPTT_VARIANTS = (
    Variant("1 - h**2 from the stored state", _bptt, ("rnn-12",)),
    Variant("all dz first, then one product for each weight", _bptt_by_matrices, ("rnn-12",)),
    Variant("explicit Jacobians, one sequence at a time", _bptt_one_by_one, ("rnn-12",)),
)

BPTT = Exercise(
    question=find("01.2"),
    title="backpropagation through time",
    minutes=25,
    difficulty=3,
    reference=_bptt_reference,
    axes={"dW_x": "hidden, input", "dW_h": "hidden, hidden", "db": "hidden", "dh0": "batch, hidden"},
    parts=(
        Part(
            "one step back",
            1,
            _draw_one_step_back,
            BPTT_RESULTS,
            "the chain rule of one step: from h_1 through tanh' to the sum inside, from there to its parts.",
        ),
        Part(
            "through time: b and h0",
            1,
            _draw_through_time,
            ("db", "dh0"),
            "what reaches h_t: its own gradient, and what comes back from step t+1.",
        ),
        Part(
            "through time: W_x and W_h",
            1,
            _draw_through_time,
            ("dW_x", "dW_h"),
            "what each weight was multiplied with at step t, and the sum over all steps.",
        ),
    ),
    mistakes=BPTT_MISTAKES,
    variants=BPTT_VARIANTS,
    forbidden=("torch.autograd", "torch.func", "torch.Tensor.backward", "torch.nn", "course_utils.models"),
    tolerance=GRADIENT_TOLERANCE,
)


# --- 01.3 the gradient norm at each step --------------------------------------------------------------------


def _cell_step(inputs: Inputs, x: np.ndarray, h: np.ndarray) -> np.ndarray:
    """Float64 reference of torch's RNNCell and GRUCell."""
    weight_ih, weight_hh, bias_ih, bias_hh = (inputs[name].astype(np.float64) for name in CELL_WEIGHTS)
    of_x, of_h = x @ weight_ih.T + bias_ih, h @ weight_hh.T + bias_hh
    if inputs["cell"] == "rnn":
        return np.tanh(of_x + of_h)
    (r_x, z_x, n_x), (r_h, z_h, n_h) = np.split(of_x, 3, axis=-1), np.split(of_h, 3, axis=-1)
    reset, update = (1 / (1 + np.exp(-gate)) for gate in (r_x + r_h, z_x + z_h))
    return (1 - update) * np.tanh(n_x + reset * n_h) + update * h


def _norms_reference(inputs: Inputs) -> Outputs:
    """By central differences from every state to the end: no chain rule that could be wrong."""
    x, h, direction = (inputs[name].astype(np.float64) for name in NORM_ARGUMENTS)
    length = x.shape[1]
    norms = np.empty((len(x), length + 1))

    for t in range(length + 1):

        def rest(given: Inputs, t: int = t) -> np.ndarray:
            state = given["state"]
            for later in range(t, length):
                state = _cell_step(inputs, x[:, later], state)
            return state

        upstream = np.broadcast_to(direction, h.shape)
        norms[:, t] = np.linalg.norm(
            numeric_gradient(rest, {"state": h, "upstream": upstream}, "state"), axis=-1
        )
        if t < length:
            h = _cell_step(inputs, x[:, t], h)
    return {"norms": norms}


def _norm_inputs(rng: Generator, cell: str, batch: int, length: int, input: int, hidden: int) -> Inputs:
    gates = {"rnn": 1, "gru": 3}[cell] * hidden
    return {
        "cell": cell,
        "x": normal(rng, batch, length, input),
        "h0": 0.5 * normal(rng, batch, hidden),
        "direction": normal(rng, hidden),
        "weight_ih": 0.5 * normal(rng, gates, input),
        "weight_hh": 0.7 * normal(rng, gates, hidden),
        "bias_ih": 0.3 * normal(rng, gates),
        "bias_hh": 0.3 * normal(rng, gates),
    }


def _draw_norms(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 15])
    length, input, hidden = sizes(rng, 3, 2, 7)
    tiny = _norm_inputs(rng, "rnn", 1, 2, 1, 2)
    return [_rounded(tiny), _norm_inputs(rng, "rnn", 1, length, input, hidden)]


def _draw_batch_norms(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 16])
    return [
        _norm_inputs(rng, "rnn", *sizes(rng, 4, 2, 7)),
        _norm_inputs(rng, "gru", *sizes(rng, 4, 2, 6)),
        _norm_inputs(rng, "gru", 4, 3, 2, 5),
    ]


def _run(cell, x, h0) -> list[torch.Tensor]:
    """All states, the first one included, each reachable by autograd."""
    states = [h0.clone().requires_grad_()]
    for x_t in x.unbind(1):
        states.append(cell(x_t, states[-1]))
    return states


def _state_gradients(cell, x, h0, loss: Callable) -> torch.Tensor:
    states = _run(cell, x, h0)
    return torch.stack(torch.autograd.grad(loss(states), states), dim=1)  # (batch, length + 1, hidden)


def _norms(norm: Callable = lambda g: g.norm(dim=-1), loss: Callable | None = None) -> Callable:
    """The gradient norms, right unless the norm or the loss is replaced: loss(states, direction)."""
    loss = loss or (lambda states, direction: (states[-1] * direction).sum())
    return lambda cell, x, h0, direction: norm(
        _state_gradients(cell, x, h0, lambda states: loss(states, direction))
    )


_gradient_norms = _norms()


def _backward_and_read(read: Callable) -> Callable:
    """loss.backward() without retain_grad(), then read(gradients of the states)."""

    def norms(cell, x, h0, direction):
        states = _run(cell, x, h0)
        (states[-1] * direction).sum().backward()
        return read([h.grad for h in states])

    return norms


def _cut_states(cell, x, h0, direction):
    states = [h0.clone().requires_grad_()]
    for x_t in x.unbind(1):
        states.append(cell(x_t, states[-1]).detach().requires_grad_())
    loss = (states[-1] * direction).sum()
    found = torch.autograd.grad(loss, states, allow_unused=True)
    return torch.stack([torch.zeros_like(h0) if g is None else g for g in found], dim=1).norm(dim=-1)


def _accumulated(cell, x, h0, direction):
    norms = _gradient_norms(cell, x, h0, direction)
    return norms * torch.arange(1, norms.shape[1] + 1)


def _one_step_jacobians(cell, x, h0, direction):
    states = _run(cell, x, h0)
    found = [
        torch.autograd.grad((after * direction).sum(), before, retain_graph=True)[0]
        for before, after in pairwise(states)
    ]
    return torch.stack([*found, direction.expand_as(h0)], dim=1).norm(dim=-1)


def _inputs_gradient(cell, x, h0, direction):
    x = x.clone().requires_grad_()
    h = h0
    for x_t in x.unbind(1):
        h = cell(x_t, h)
    (gradient,) = torch.autograd.grad((h * direction).sum(), x)
    return gradient.norm(dim=-1)


NORM_MISTAKES = (
    Mistake(
        "gradients not kept",
        _backward_and_read(lambda found: torch.stack([g.norm(dim=-1) for g in found], dim=1)),
        "backward() keeps gradients for leaves only. A computed state is none: its .grad is None.",
        "h.retain_grad() for every state when it is made, or torch.autograd.grad(loss, states).",
        ("gn-09",),
    ),
    Mistake(
        "gradients not kept, stacked",
        _backward_and_read(lambda found: torch.stack(found, dim=1).norm(dim=-1)),
        "backward() keeps gradients for leaves only. A computed state is none: its .grad is None.",
        "h.retain_grad() for every state when it is made, or torch.autograd.grad(loss, states).",
        ("gn-09",),
    ),
    Mistake(
        "zeros for gradients not kept",
        _backward_and_read(
            lambda found: torch.stack(
                [torch.zeros_like(found[0]) if g is None else g for g in found], dim=1
            ).norm(dim=-1)
        ),
        "You put zeros where .grad is None. None does not mean zero: the gradient was not kept.",
        "h.retain_grad() for every state when it is made, or torch.autograd.grad(loss, states).",
        ("gn-09",),
    ),
    Mistake(
        "states detached",
        _cut_states,
        "You cut each state off from the step before, so that only the last one gets a gradient.",
        ".detach() inside the loop: to read a gradient you need none.",
        ("gn-09",),
    ),
    Mistake(
        "gradients added up",
        _accumulated,
        "You call backward() once for each state, and .grad adds up: the later states hold multiples.",
        "one call of backward() or of torch.autograd.grad for all states.",
    ),
    Mistake(
        "last to first",
        _norms(lambda g: g.norm(dim=-1).flip(1)),
        "Your norms run from the last state to the first. Wanted is the order of time, h_0 first.",
        "the order of what you return.",
    ),
    Mistake(
        "without h0",
        _norms(lambda g: g.norm(dim=-1)[:, 1:]),
        "The norm of h_0 is missing: there is one more state than inputs.",
        "the list of states: it starts with h0.",
    ),
    Mistake(
        "norm over the batch",
        _norms(lambda g: g.norm(dim=(0, 2))),
        "You take one norm over the whole batch. Each sequence has a norm of its own.",
        "the dim of the norm: the hidden axis only.",
    ),
    Mistake(
        "norm over time",
        _norms(lambda g: g.norm(dim=1)),
        "You take the norm over the steps. Each step has a norm of its own; it runs over the hidden axis.",
        "the dim of the norm.",
    ),
    Mistake(
        "time first",
        _norms(lambda g: g.norm(dim=-1).T),
        "Your norms are (length + 1, batch). Wanted is batch first.",
        "the dim of torch.stack.",
    ),
    Mistake(
        "squared norm",
        _norms(lambda g: g.square().sum(-1)),
        "You return squared norms: the square root is missing.",
        "the last line.",
    ),
    Mistake(
        "sum of absolute values",
        _norms(lambda g: g.abs().sum(-1)),
        "You add up absolute values. The norm is the root of the sum of squares.",
        "the last line.",
    ),
    Mistake(
        "root mean square",
        _norms(lambda g: g.square().mean(-1).sqrt()),
        "You take the mean of the squares. The norm takes their sum.",
        "mean where sum belongs.",
    ),
    Mistake(
        "loss averaged",
        _norms(loss=lambda states, direction: (states[-1] @ direction).mean()),
        "Your loss is the mean over the batch, so every norm is too small by its size. Wanted is the sum.",
        "the line of the loss.",
        ("rnn-07",),
    ),
    Mistake(
        "loss of all states",
        _norms(loss=lambda states, direction: (torch.stack(states[1:]) * direction).sum()),
        "Your loss reads every state. Here it reads the last one only.",
        "the line of the loss.",
    ),
    Mistake(
        "direction left out",
        _norms(loss=lambda states, direction: states[-1].sum()),
        "Your loss sums the last state without the direction.",
        "the line of the loss.",
    ),
    Mistake(
        "one step only",
        _one_step_jacobians,
        "You go back one step from each state. Wanted is the way from the last state to each of them.",
        "which loss you differentiate: there is one, at the end.",
    ),
    Mistake(
        "norms of the states",
        lambda cell, x, h0, direction: torch.stack(_run(cell, x, h0), dim=1).norm(dim=-1),
        "You return the norms of the states. Wanted are those of the loss's gradients by the states.",
        "torch.autograd.grad(loss, states).",
    ),
    Mistake(
        "gradient of the inputs",
        _inputs_gradient,
        "You differentiate by the inputs. Wanted is the gradient by the states.",
        "the second argument of torch.autograd.grad.",
    ),
    Mistake(
        "h0 ignored",
        lambda cell, x, h0, direction: _gradient_norms(cell, x, torch.zeros_like(h0), direction),
        "You start from zeros (a cell that is called without a state does). The first state is h0.",
        "the first call of the cell.",
        ("rnn-11",),
    ),
)


def _norms_with_retain_grad(cell, x, h0, direction):
    h = h0.requires_grad_()
    states = [h]
    for t in range(x.shape[1]):
        h = cell(x[:, t], h)
        h.retain_grad()
        states.append(h)
    (h @ direction).sum().backward()
    return torch.stack([torch.linalg.vector_norm(state.grad, dim=1) for state in states], 1)


def _norms_with_hooks(cell, x, h0, direction):
    """The gradients are caught as they pass."""
    caught = []
    h = h0.clone().requires_grad_()
    h.register_hook(lambda g: caught.insert(0, g.norm(dim=-1)))
    for x_t in x.transpose(0, 1):
        h = cell(x_t, h)
        h.register_hook(lambda g: caught.insert(0, g.norm(dim=-1)))
    h.backward(direction.expand_as(h))
    return torch.stack(caught, dim=-1)


def _norms_one_by_one(cell, x, h0, direction):
    rows = [
        _gradient_norms(cell, sequence[None], h[None], direction)[0]
        for sequence, h in zip(x, h0, strict=True)
    ]
    return torch.stack(rows)


NORM_VARIANTS = (
    Variant("retain_grad on every state", _norms_with_retain_grad, ("gn-09",)),
    Variant("hooks", _norms_with_hooks, ("gn-09",)),
    Variant("one sequence at a time", _norms_one_by_one),
    Variant("torch.autograd.grad", _gradient_norms, ("gn-09",)),
)

GRADIENT_NORMS = Exercise(
    question=find("01.3"),
    title="gradient norms",
    minutes=15,
    difficulty=2,
    reference=_norms_reference,
    axes={"norms": "batch, length + 1"},
    parts=(
        Part(
            "one sequence",
            1,
            _draw_norms,
            ("norms",),
            "the last number first: it is the norm of the direction itself.",
        ),
        Part(
            "a batch, and another kind of cell",
            1,
            _draw_batch_norms,
            ("norms",),
            "the axes: a row for each sequence, and no sequence may touch another.",
        ),
    ),
    mistakes=NORM_MISTAKES,
    variants=NORM_VARIANTS,
    forbidden=("course_utils.probes",),
    tolerance=GRADIENT_TOLERANCE,
)


# --- 01.4 clipping by the global norm -----------------------------------------------------------------------


def _clip_reference(inputs: Inputs) -> Outputs:
    gradients = [g.astype(np.float64) for g in inputs["gradients"]]
    norm = np.sqrt(sum((g**2).sum() for g in gradients))
    factor = min(1.0, inputs["max_norm"] / norm) if norm else 1.0
    return {f"clipped at {i}": g * factor for i, g in enumerate(gradients)} | {"norm": np.array(norm)}


def _draw_clip(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 17])
    three, four = np.array([[3.0, 0.0]]) * rng.choice([1, 2]), np.array([4.0, -1.0])
    shapes = [tuple(sizes(rng, n, 2, 6)) for n in (2, 1, 3)]
    many = [normal(rng, *shape, dtype="float64") for shape in shapes]
    rows = 2 * normal(rng, *sizes(rng, 2, 3, 6), dtype="float64")
    norm = float(np.sqrt(sum((g**2).sum() for g in many)))
    return [
        {"gradients": [three, four], "max_norm": 2.0},
        {"gradients": many, "max_norm": 0.6 * norm},
        {"gradients": [rows], "max_norm": 1.0},
        {"gradients": many, "max_norm": 1.7 * norm},
        {"gradients": [np.zeros(shape) for shape in shapes[:2]], "max_norm": 1.0},
    ]


def _total(gradients) -> torch.Tensor:
    return torch.sqrt(sum((g**2).sum() for g in gradients))


def _clip(
    total: Callable = _total,
    factor: Callable = lambda norm, max_norm: min(1.0, max_norm / (float(norm) or 1.0)),
    told: Callable = lambda norm, max_norm: norm,
) -> Callable:
    """Clipping by the global norm, right unless one of its steps is replaced."""

    def clip(gradients, max_norm):
        norm = total(gradients)
        return [g * factor(norm, max_norm) for g in gradients], told(norm, max_norm)

    return clip


_right_clip = _clip()


def _each_on_its_own(gradients, max_norm):
    return [_right_clip([g], max_norm)[0][0] for g in gradients], _total(gradients)


def _by_rows(gradients, max_norm):
    rows = [g.norm(dim=-1, keepdim=True) for g in gradients]
    return [g * (max_norm / n.clamp(min=max_norm)) for g, n in zip(gradients, rows, strict=True)], _total(
        gradients
    )


def _by_value(gradients, max_norm):
    return [g.clamp(-max_norm, max_norm) for g in gradients], _total(gradients)


def _clip_in_place(gradients, max_norm):
    norm = _total(gradients)
    if norm > max_norm:
        for g in gradients:
            g *= max_norm / norm
    return gradients, norm


def _zero_divided(gradients, max_norm):
    norm = _total(gradients)
    return [g * torch.clamp(max_norm / norm, max=1.0) * (norm / norm) for g in gradients], norm


CLIP_MISTAKES = (
    Mistake(
        "each tensor on its own",
        _each_on_its_own,
        "You clip each tensor by its own norm. That turns the step another way; clip by the norm of all.",
        "the sum of squares: it runs over all tensors.",
    ),
    Mistake(
        "by rows",
        _by_rows,
        "You clip each row by its own norm. Wanted is one norm over everything.",
        "the dim of the norm: there is none.",
        ("gn-07",),
    ),
    Mistake(
        "by value",
        _by_value,
        "You cut off the single numbers. That turns the direction of the step; scale all of them alike.",
        "clamp: the gradients are multiplied by one factor instead.",
    ),
    Mistake(
        "always scaled",
        _clip(factor=lambda norm, max_norm: max_norm / (float(norm) or 1.0)),
        "You scale small gradients up to max_norm. Below the limit they stay as they are.",
        "the factor: it is never larger than 1.",
    ),
    Mistake(
        "scaled by max_norm",
        _clip(factor=lambda norm, max_norm: max_norm if norm > max_norm else 1.0),
        "You multiply by max_norm. The factor is max_norm divided by the norm.",
        "the factor.",
    ),
    Mistake(
        "scaled to norm 1",
        _clip(factor=lambda norm, max_norm: 1 / float(norm) if norm > max_norm else 1.0),
        "You scale to a norm of 1. It should be max_norm.",
        "the factor.",
    ),
    Mistake(
        "norm after clipping returned",
        _clip(told=lambda norm, max_norm: torch.clamp(norm, max=max_norm)),
        "You return the norm after clipping. Wanted is the one before (as clip_grad_norm_ returns it).",
        "what you return as norm.",
        ("gn-05",),
    ),
    Mistake(
        "squared norm",
        _clip(total=lambda gradients: sum((g**2).sum() for g in gradients)),
        "Your norm lacks the square root.",
        "the line of the norm.",
    ),
    Mistake(
        "norms added",
        _clip(total=lambda gradients: sum(g.norm() for g in gradients)),
        "You add the norms of the tensors. Add their squares, and take one root.",
        "the line of the norm.",
    ),
    Mistake(
        "sum of absolute values",
        _clip(total=lambda gradients: sum(g.abs().sum() for g in gradients)),
        "You add up absolute values. The norm is the root of the sum of squares.",
        "the line of the norm.",
    ),
    Mistake(
        "largest norm only",
        _clip(total=lambda gradients: max(g.norm() for g in gradients)),
        "You take the largest of the norms. The norm of all is the root of the sum of all squares.",
        "the line of the norm.",
    ),
    Mistake(
        "nothing clipped",
        _clip(factor=lambda norm, max_norm: 1.0),
        "You return the gradients as they came.",
        "the case norm > max_norm.",
    ),
    Mistake(
        "zero divided by zero",
        _zero_divided,
        "Gradients that are all zero become NaN: 0 / 0.",
        "the division: only where the norm is above max_norm, or with a small number added below.",
    ),
    Mistake(
        "writes into the gradients",
        _clip_in_place,
        "You write into the gradients that you were given. Here new tensors are wanted.",
        "*= and mul_: they change the tensor of the caller.",
    ),
)


def _clip_as_torch_does(gradients, max_norm):
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients]))
    factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    return [g * factor for g in gradients], norm


def _clip_joined(gradients, max_norm):
    norm = torch.cat([g.flatten() for g in gradients]).norm()
    if norm <= max_norm:
        return list(gradients), norm.item()
    return tuple(g / norm * max_norm for g in gradients), norm.item()


CLIP_VARIANTS = (
    Variant("norm of the norms, with torch's epsilon", _clip_as_torch_does),
    Variant("one long vector, a tuple returned", _clip_joined),
    Variant("sum of squares", _right_clip),
)

CLIP_BY_GLOBAL_NORM = Exercise(
    question=find("01.4"),
    title="clipping by global norm",
    minutes=10,
    difficulty=1,
    reference=_clip_reference,
    axes={"norm": ""},
    parts=(
        Part(
            "one factor for all, and only above the limit",
            1,
            _draw_clip,
            ("norm", "clipped"),
            "the norm first: the root of the sum of the squares of all numbers in all tensors.",
        ),
    ),
    mistakes=CLIP_MISTAKES,
    variants=CLIP_VARIANTS,
    forbidden=("torch.nn.utils",),
)


# --- 01.5 the spectral radius, and the decay that it predicts -----------------------------------------------


def _decay_reference(inputs: Inputs) -> Outputs:
    W_h, states = (inputs[name].astype(np.float64) for name in ("W_h", "states"))
    slope = np.sqrt(((1 - states**2) ** 2).mean())
    return {
        "scaled": W_h * (inputs["radius"] / abs(np.linalg.eigvals(W_h)).max()),
        "factor": np.array((inputs["radius"] * slope) ** inputs["lag"]),
    }


def _turning(rng: Generator, hidden: int) -> np.ndarray:
    """A random matrix whose largest eigenvalues are complex: it turns, and no real part shows its radius."""
    while True:
        matrix = normal(rng, hidden, hidden, dtype="float64")
        values = np.linalg.eigvals(matrix)
        if values.real.max() < 0.8 * abs(values).max():
            return matrix


def _decay_inputs(rng: Generator, W_h: np.ndarray, radius: float, length: int, lag: int) -> Inputs:
    states = np.tanh(0.8 * normal(rng, length, len(W_h), dtype="float64"))
    return {"W_h": W_h, "radius": radius, "states": states, "lag": lag}


def _draw_decay(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 18])
    quarter = np.array([[0.0, 2.0], [-0.5, 0.0]]) * rng.choice([1.0, 2.0])  # a quarter turn, skewed
    tiny = _decay_inputs(rng, quarter, 0.9, 2, 3)
    tiny["states"] = tiny["states"].round(1) + 0.0
    length, hidden = sizes(rng, 2, 4, 8)
    wide = _decay_inputs(rng, _turning(rng, hidden), 0.7, length, int(rng.integers(4, 9)))
    grows = _decay_inputs(rng, _turning(rng, length), 1.5, hidden, int(rng.integers(4, 9)))
    return [tiny, wide, grows]


def _radius_of(W_h: torch.Tensor) -> torch.Tensor:
    return torch.linalg.eigvals(W_h).abs().max()


def _slope_of(states: torch.Tensor) -> torch.Tensor:
    return (1 - states**2).square().mean().sqrt()


def _decay(
    size: Callable = _radius_of,
    slope: Callable = _slope_of,
    scaled: Callable = lambda W_h, size, radius: W_h * (radius / size),
    factor: Callable = lambda rate, lag: rate**lag,
) -> Callable:
    """Scaled matrix and predicted factor, right unless one of the steps is replaced."""

    def decay(W_h, radius, states, lag):
        return scaled(W_h, size(W_h), radius), factor(radius * slope(states), lag)

    return decay


def _decay_of_the_matrix_that_came(W_h, radius, states, lag):
    return W_h * (radius / _radius_of(W_h)), (_radius_of(W_h) * _slope_of(states)) ** lag


def _decay_in_place(W_h, radius, states, lag):
    W_h *= radius / _radius_of(W_h)
    return W_h, (radius * _slope_of(states)) ** lag


DECAY_MISTAKES = (
    Mistake(
        "spectral norm",
        _decay(size=lambda W: torch.linalg.matrix_norm(W, 2)),
        "You take the largest singular value, the spectral norm. The radius is about eigenvalues.",
        "torch.linalg.eigvals.",
    ),
    Mistake(
        "Frobenius norm",
        _decay(size=lambda W: W.norm()),
        "You take the root of the sum of squares, the Frobenius norm. Wanted are the eigenvalues.",
        "torch.linalg.eigvals.",
    ),
    Mistake(
        "largest real part",
        _decay(size=lambda W: torch.linalg.eigvals(W).real.max()),
        "You take the largest real part. Eigenvalues are complex, and their size is abs().",
        "what you take the maximum of.",
    ),
    Mistake(
        "absolute real part",
        _decay(size=lambda W: torch.linalg.eigvals(W).real.abs().max()),
        "You drop the imaginary parts. Eigenvalues are complex, and their size is abs() of the whole number.",
        "what you take the maximum of.",
    ),
    Mistake(
        "eigenvalues of a symmetric matrix",
        _decay(size=lambda W: torch.linalg.eigvalsh(W).abs().max()),
        "eigvalsh takes the matrix for symmetric and reads one half of it. W_h is not symmetric.",
        "torch.linalg.eigvals.",
    ),
    Mistake(
        "smallest eigenvalue",
        _decay(size=lambda W: torch.linalg.eigvals(W).abs().min()),
        "You scale by the smallest eigenvalue. The radius is the largest.",
        "min where max belongs.",
    ),
    Mistake(
        "first eigenvalue",
        _decay(size=lambda W: torch.linalg.eigvals(W).abs().mean()),
        "You scale by the mean size of the eigenvalues. The radius is the largest.",
        "mean where max belongs.",
    ),
    Mistake(
        "multiplied by the radius",
        _decay(scaled=lambda W, size, radius: W * radius),
        "You multiply by the wanted radius without dividing by the one that the matrix has.",
        "the factor: wanted radius over present radius.",
    ),
    Mistake(
        "divided the wrong way round",
        _decay(scaled=lambda W, size, radius: W * (size / radius)),
        "Your factor is upside down.",
        "the factor: wanted radius over present radius.",
    ),
    Mistake(
        "scaled to radius 1",
        _decay(scaled=lambda W, size, radius: W / size),
        "Your matrix has radius 1. Wanted is the given radius.",
        "the factor: wanted radius over present radius.",
    ),
    Mistake(
        "mean instead of root mean square",
        _decay(slope=lambda states: (1 - states**2).mean()),
        "You take the mean of tanh'. A norm adds squares, so it is the root of the mean of its squares.",
        "the order: square tanh', then the mean, then the root.",
    ),
    Mistake(
        "mean square without the root",
        _decay(slope=lambda states: (1 - states**2).square().mean()),
        "The square root of the mean is missing.",
        "the line of the root mean square.",
    ),
    Mistake(
        "states instead of tanh'",
        _decay(slope=lambda states: states.square().mean().sqrt()),
        "You take the root mean square of the states. Wanted is that of tanh', which is 1 - h².",
        "what you square.",
    ),
    Mistake(
        "tanh of the state again",
        _decay(slope=lambda states: (1 - torch.tanh(states) ** 2).square().mean().sqrt()),
        "The states have been through tanh already: tanh' is 1 - h².",
        "the line of tanh'.",
        ("rnn-12",),
    ),
    Mistake(
        "tanh' left out",
        _decay(slope=lambda states: torch.ones(())),
        "Your factor has the radius only. Every step goes through tanh as well.",
        "the root mean square of tanh'.",
    ),
    Mistake(
        "radius left out",
        lambda W_h, radius, states, lag: (W_h * (radius / _radius_of(W_h)), _slope_of(states) ** lag),
        "Your factor has tanh' only. Every step goes through the matrix as well.",
        "the rate of one step: radius times the root mean square of tanh'.",
    ),
    Mistake(
        "radius of the matrix that came",
        _decay_of_the_matrix_that_came,
        "You predict with the radius that the matrix had before you scaled it.",
        "which radius enters the factor.",
    ),
    Mistake(
        "times the lag",
        _decay(factor=lambda rate, lag: rate * lag),
        "You multiply by the lag. Each step multiplies once more, so the lag is an exponent.",
        "the power.",
    ),
    Mistake(
        "one step only",
        _decay(factor=lambda rate, lag: rate),
        "Your factor is that of one step.",
        "the power: one factor for each step of the lag.",
    ),
    Mistake(
        "logarithm returned",
        _decay(factor=lambda rate, lag: lag * rate.log()),
        "You return the logarithm of the factor.",
        "the last line: exp of what you have.",
    ),
    Mistake(
        "one step too few",
        _decay(factor=lambda rate, lag: rate ** (lag - 1)),
        "Your exponent is lag - 1. To the state that lies `lag` steps back there are `lag` steps.",
        "the power.",
    ),
    Mistake(
        "writes into W_h",
        _decay_in_place,
        "You scale the matrix that you were given. Here a new one is wanted.",
        "*= and mul_: they change the tensor of the caller.",
    ),
)


def _decay_in_numpy(W_h, radius, states, lag):
    values = np.linalg.eigvals(W_h.numpy())
    rms = np.sqrt(np.mean((1 - states.numpy() ** 2) ** 2))
    return W_h / float(np.abs(values).max()) * radius, (radius * rms) ** lag


def _decay_by_logarithms(W_h, radius, states, lag):
    values, _ = torch.linalg.eig(W_h)
    present = torch.sqrt(values.real**2 + values.imag**2).max()
    slope = torch.linalg.vector_norm(1 - states * states) / states.numel() ** 0.5
    return radius * W_h / present, torch.exp(lag * torch.log(radius * slope))


DECAY_VARIANTS = (
    Variant("numpy", _decay_in_numpy),
    Variant("by logarithms, real and imaginary part", _decay_by_logarithms, ("rnn-12",)),
    Variant("eigvals, a tensor without axes", _decay(), ("rnn-12",)),
)

SCALE_AND_PREDICT = Exercise(
    question=find("01.5"),
    title="spectral radius",
    minutes=10,
    difficulty=2,
    reference=_decay_reference,
    axes={"scaled": "hidden, hidden", "factor": ""},
    parts=(
        Part(
            "the scaled matrix and the predicted factor",
            1,
            _draw_decay,
            ("scaled", "factor"),
            "the two results one by one: the radius of what you return, then the rate of a single step.",
        ),
    ),
    mistakes=DECAY_MISTAKES,
    variants=DECAY_VARIANTS,
    forbidden=("course_utils.probes",),
)


# --- 01.6 the memory horizon --------------------------------------------------------------------------------


HORIZON_ARGUMENTS = ("lags", "accuracies", "symbols")


def _horizon_reference(inputs: Inputs) -> Outputs:
    chance = 1 / inputs["symbols"]
    horizon = 0
    for lag, accuracy in sorted(zip(inputs["lags"], inputs["accuracies"], strict=True)):
        if (accuracy - chance) / (1 - chance) < 0.5:
            break
        horizon = lag
    return {"horizon": np.array(float(horizon))}


def _in_order(order: list[int], lags: list[int], accuracies: list[float], symbols: int) -> Inputs:
    return {
        "lags": [lags[i] for i in order],
        "accuracies": [accuracies[i] for i in order],
        "symbols": symbols,
    }


def _draw_horizon(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 19])
    a, b, c, d, e = (int(n) for n in np.cumsum(rng.integers(2, 9, 5)) + 2)
    high, low = (
        (lambda: round(float(rng.uniform(0.9, 1)), 2)),
        (lambda: round(float(rng.uniform(0.5, 0.55)), 2)),
    )
    return [
        # With two symbols, 0.6 is a fifth of the way from guessing to knowing.
        {"lags": [a, b, c], "accuracies": [high(), 0.6, 0.52], "symbols": 2},
        # With eight, 0.53 is close to half of the way, and 0.57 just above it.
        {"lags": [a, b, c], "accuracies": [0.57, 0.53, 0.15], "symbols": 8},
        # 0.75 of two, and 0.625 of four, are half of the way exactly: learned.
        {"lags": [a, b, c], "accuracies": [high(), 0.75, low()], "symbols": 2},
        # A lag that failed ends the horizon, even where a longer one was learned.
        {"lags": [a, b, c, d, e], "accuracies": [high(), 0.625, 0.3, high(), 0.25], "symbols": 4},
        _in_order([4, 1, 0, 2, 3], [a, b, c, d, e], [high(), high(), 0.66, low(), high()], 2),
        _in_order([1, 3, 0, 2], [a, b, c, d], [high(), high(), high(), 0.9], 8),
        {"lags": [a, b], "accuracies": [0.26, 0.9], "symbols": 4},
    ]


def _learned(accuracy: float, symbols: int) -> float:
    """The share of the way from guessing (0) to knowing (1)."""
    return (accuracy - 1 / symbols) / (1 - 1 / symbols)


def _horizon(share: Callable = _learned, enough: Callable = lambda share: share >= 0.5) -> Callable:
    """The horizon, right unless one of its steps is replaced."""

    def horizon(lags, accuracies, symbols):
        found = 0
        for lag, accuracy in sorted(zip(lags, accuracies, strict=True)):
            if not enough(share(accuracy, symbols)):
                return found
            found = lag
        return found

    return horizon


def _learned_lags(lags, accuracies, symbols) -> list[int]:
    return [lag for lag, accuracy in zip(lags, accuracies, strict=True) if _learned(accuracy, symbols) >= 0.5]


def _first_failing(lags, accuracies, symbols):
    for lag, accuracy in sorted(zip(lags, accuracies, strict=True)):
        if _learned(accuracy, symbols) < 0.5:
            return lag
    return max(lags)


def _in_the_given_order(lags, accuracies, symbols):
    found = 0
    for lag, accuracy in zip(lags, accuracies, strict=True):
        if _learned(accuracy, symbols) < 0.5:
            break
        found = lag
    return found


def _largest_or_error(lags, accuracies, symbols):
    failed = [
        lag for lag, accuracy in zip(lags, accuracies, strict=True) if _learned(accuracy, symbols) < 0.5
    ]
    return max(lag for lag in lags if not failed or lag < min(failed))


def _sorts_the_lags(lags, accuracies, symbols):
    lags.sort()
    return _in_the_given_order(lags, accuracies, symbols)


def _sorted_in_place(lags, accuracies, symbols):
    found = _horizon()(lags, accuracies, symbols)
    order = sorted(range(len(lags)), key=lambda i: lags[i])
    lags[:], accuracies[:] = [lags[i] for i in order], [accuracies[i] for i in order]
    return found


HORIZON_MISTAKES = (
    Mistake(
        "chance ignored",
        _horizon(share=lambda accuracy, symbols: accuracy),
        "You compare the accuracy itself with one half. With two symbols, guessing alone reaches that.",
        "the share of the way from guessing to knowing: (accuracy - chance) / (1 - chance).",
    ),
    Mistake(
        "anything above chance",
        _horizon(share=lambda accuracy, symbols: accuracy - 1 / symbols, enough=lambda share: share > 0.02),
        "You take everything above chance for learned. It has to be half of the way from chance to 1.",
        "the threshold.",
    ),
    Mistake(
        "chance subtracted only",
        _horizon(share=lambda accuracy, symbols: accuracy - 1 / symbols),
        "You subtract chance but do not divide by 1 - chance, so that knowing everything falls short of 1.",
        "the denominator.",
    ),
    Mistake(
        "twice chance",
        _horizon(share=lambda accuracy, symbols: accuracy * symbols / 4),
        "You compare the accuracy with a multiple of chance. Wanted is the way from chance to 1.",
        "the share: (accuracy - chance) / (1 - chance).",
    ),
    Mistake(
        "chance is one half",
        _horizon(share=lambda accuracy, symbols: _learned(accuracy, 2)),
        "You take one half for chance, whatever the number of symbols. It is 1 / symbols.",
        "where chance comes from.",
    ),
    Mistake(
        "more than half",
        _horizon(enough=lambda share: share > 0.5),
        "A lag at half of the way counts as learned: the share is at least 0.5, and you ask for more.",
        "> where >= belongs.",
    ),
    Mistake(
        "longest learned lag",
        lambda *given: max(_learned_lags(*given), default=0),
        "You return the longest lag that was learned. The horizon ends at the first that was not.",
        "what happens at the first lag that was not learned.",
    ),
    Mistake(
        "number of learned lags",
        lambda *given: len(_learned_lags(*given)),
        "You count the lags. Wanted is the lag itself.",
        "what you return.",
    ),
    Mistake(
        "first lag that fails",
        _first_failing,
        "You return the first lag that was not learned. The horizon is the last one before it.",
        "what you return.",
    ),
    Mistake(
        "order taken as given",
        _in_the_given_order,
        "You walk through the lags as they come. They may come in any order.",
        "sorted(zip(lags, accuracies)).",
    ),
    Mistake(
        "lags sorted alone",
        _sorts_the_lags,
        "You sort the lags and leave the accuracies where they were: the pairs are torn apart.",
        "sorted(zip(lags, accuracies)).",
    ),
    Mistake(
        "error when none is learned",
        _largest_or_error,
        "Where not even the shortest lag was learned there is no maximum. The horizon is then 0.",
        "max(..., default=0).",
    ),
    Mistake(
        "writes into the lists",
        _sorted_in_place,
        "You sort the lists that you were given. The caller still needs them as they were.",
        "sorted(...) instead of .sort().",
    ),
)


def _horizon_in_numpy(lags, accuracies, symbols):
    order = np.argsort(lags)
    lags, accuracies = np.array(lags)[order], np.array(accuracies)[order]
    failed = accuracies < 0.5 + 0.5 / symbols  # half of the way, solved for the accuracy
    return lags[failed.argmax() - 1] if failed.any() and failed.argmax() else 0 if failed.any() else lags[-1]


def _horizon_by_definition(lags, accuracies, symbols):
    learned = dict(zip(lags, [_learned(a, symbols) >= 0.5 for a in accuracies], strict=True))
    return max((lag for lag in lags if all(learned[other] for other in lags if other <= lag)), default=0)


HORIZON_VARIANTS = (
    Variant("numpy, the threshold solved for the accuracy", _horizon_in_numpy),
    Variant("the largest lag with all shorter ones learned", _horizon_by_definition),
    Variant("a tensor without axes", lambda *given: torch.tensor(_horizon()(*given))),
)

MEMORY_HORIZON = Exercise(
    question=find("01.6"),
    title="memory horizon",
    minutes=10,
    difficulty=1,
    reference=_horizon_reference,
    axes={"horizon": ""},
    parts=(
        Part(
            "how far the memory reaches, with guessing taken out",
            1,
            _draw_horizon,
            ("horizon",),
            "the share of each lag first, in the order of the lags; then where the first falls short.",
        ),
    ),
    mistakes=HORIZON_MISTAKES,
    variants=HORIZON_VARIANTS,
    forbidden=("course_utils.probes",),
)

EXERCISES = [
    RNN_FORWARD,
    BPTT,
    GRADIENT_NORMS,
    CLIP_BY_GLOBAL_NORM,
    SCALE_AND_PREDICT,
    MEMORY_HORIZON,
]
