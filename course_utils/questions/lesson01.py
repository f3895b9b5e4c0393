"""How the exercises of lesson 01 are asked: recurrent networks and their vanishing gradient."""

from __future__ import annotations

from collections.abc import Callable

import torch

from course_utils.questions.asking import (
    Inputs,
    Outputs,
    Question,
    array,
    ask_tensors,
    call,
    changed,
    number,
    several,
    tensor,
)

# --- 01.1 the forward pass ----------------------------------------------------------------------------------

FORWARD_ARGUMENTS = ("x", "h0", "W_x", "W_h", "b")

RNN_FORWARD = Question(
    "01.1",
    "rnn_forward(x, h0, W_x, W_h, b)",
    ask_tensors(FORWARD_ARGUMENTS, ["states"], wrt=FORWARD_ARGUMENTS[1:]),
)


# --- 01.2 backpropagation through time ----------------------------------------------------------------------

BPTT_ARGUMENTS = ("x", "h0", "states", "W_h", "d_states")
BPTT_RESULTS = ("dW_x", "dW_h", "db", "dh0")

BPTT = Question("01.2", "bptt(x, h0, states, W_h, d_states)", ask_tensors(BPTT_ARGUMENTS, BPTT_RESULTS))


# --- 01.3 the gradient norm at each step --------------------------------------------------------------------

CELLS = {"rnn": torch.nn.RNNCell, "gru": torch.nn.GRUCell}
CELL_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
NORM_ARGUMENTS = ("x", "h0", "direction")


def _ask_norms(answer: Callable, inputs: Inputs) -> Outputs:
    tensors = {name: tensor(inputs[name]) for name in NORM_ARGUMENTS}
    sizes = inputs["weight_ih"].shape[1], inputs["weight_hh"].shape[1]
    dtype = tensors["x"].dtype
    with torch.random.fork_rng(devices=[]):  # leaves a reader's seed as it is
        cell = CELLS[inputs["cell"]](*sizes, dtype=dtype)
    cell.load_state_dict({name: tensor(inputs[name]) for name in CELL_WEIGHTS})
    norms = array(call(answer, cell, *tensors.values()), "norms")
    return {"norms": norms, "changed": changed(inputs, tensors)}


GRADIENT_NORMS = Question("01.3", "gradient_norms(cell, x, h0, direction)", _ask_norms)


# --- 01.4 clipping by the global norm -----------------------------------------------------------------------


def _ask_clip(answer: Callable, inputs: Inputs) -> Outputs:
    given = [tensor(g) for g in inputs["gradients"]]
    clipped, norm = several(call(answer, given, inputs["max_norm"]), ("clipped", "norm"))
    clipped = several(clipped, [f"clipped[{i}]" for i in range(len(given))])
    outputs: Outputs = {f"clipped at {i}": array(g, f"clipped[{i}]") for i, g in enumerate(clipped)}
    outputs["norm"] = number(norm, "norm")
    names = {f"gradients[{i}]": g for i, g in enumerate(given)}
    outputs["changed"] = changed(dict(zip(names, inputs["gradients"], strict=True)), names)
    return outputs


CLIP_BY_GLOBAL_NORM = Question("01.4", "clip_by_global_norm(gradients, max_norm)", _ask_clip)


# --- 01.5 the spectral radius, and the decay that it predicts -----------------------------------------------

DECAY_ARGUMENTS = ("W_h", "radius", "states", "lag")


def _ask_decay(answer: Callable, inputs: Inputs) -> Outputs:
    tensors = {name: tensor(inputs[name]) for name in ("W_h", "states")}
    given = {**inputs, **tensors}
    scaled, factor = several(call(answer, *(given[name] for name in DECAY_ARGUMENTS)), ("scaled", "factor"))
    return {
        "scaled": array(scaled, "scaled"),
        "factor": number(factor, "factor"),
        "changed": changed(inputs, tensors),
    }


SCALE_AND_PREDICT = Question("01.5", "scale_and_predict(W_h, radius, states, lag)", _ask_decay)


# --- 01.6 the memory horizon --------------------------------------------------------------------------------


def _ask_horizon(answer: Callable, inputs: Inputs) -> Outputs:
    given = {"lags": list(inputs["lags"]), "accuracies": list(inputs["accuracies"])}
    found = number(call(answer, *given.values(), inputs["symbols"]), "the horizon")
    return {"horizon": found, "changed": [name for name in given if given[name] != list(inputs[name])]}


MEMORY_HORIZON = Question("01.6", "memory_horizon(lags, accuracies, symbols)", _ask_horizon)


QUESTIONS = (RNN_FORWARD, BPTT, GRADIENT_NORMS, CLIP_BY_GLOBAL_NORM, SCALE_AND_PREDICT, MEMORY_HORIZON)
