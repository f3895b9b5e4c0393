"""How the exercises of lesson 05 are asked: Luong attention (Luong, Pham and Manning 2015)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from course_utils.models import AdditiveScore
from course_utils.questions.asking import (
    Inputs,
    Outputs,
    Question,
    WrongResult,
    array,
    ask_tensors,
    call,
    changed,
    gradients,
    several,
    tensor,
)

# --- 05.1 the three scores ----------------------------------------------------------------------------------

SCORE_ARGUMENTS = ("kind", "queries", "keys", "W", "v")


def _ask_scores(answer: Callable, inputs: Inputs) -> Outputs:
    arrays = {name: inputs[name] for name in SCORE_ARGUMENTS[1:] if inputs[name] is not None}
    tensors = {name: tensor(value) for name, value in arrays.items()}
    leaves = {}
    if "upstream" in inputs:
        leaves = {name: tensors[name].requires_grad_() for name in ("queries", "keys")}
        tensors |= {name: leaf.clone() for name, leaf in leaves.items()}
    returned = call(answer, inputs["kind"], *(tensors.get(name) for name in SCORE_ARGUMENTS[1:]))
    outputs: Outputs = {"scores": array(returned, "the result")}
    if leaves:
        outputs |= gradients(returned, inputs["upstream"], leaves)
    outputs["changed"] = changed(inputs, tensors)
    return outputs


LUONG_SCORES = Question("05.1", "luong_scores(kind, queries, keys, W, v)", _ask_scores)


# --- 05.2 the attentional state -----------------------------------------------------------------------------

STATE_ARGUMENTS = ("states", "encoder_states", "weights", "W_c")

ATTENTIONAL_STATES = Question(
    "05.2",
    "attentional_states(states, encoder_states, weights, W_c)",
    ask_tensors(STATE_ARGUMENTS, ["attentional"]),
)


# --- 05.3 the decoder, with and without input feeding -------------------------------------------------------

LOOP_ARGUMENTS = ("embeddings", "state", "encoder_states", "mask", "W_a", "W_c")
LOOP_LEAVES = ("embeddings", "state", "encoder_states")


def _ask_loop(answer: Callable, inputs: Inputs) -> Outputs:
    tensors = {name: tensor(inputs[name]) for name in LOOP_ARGUMENTS}
    leaves = {}
    if "upstream" in inputs:
        leaves = {name: tensors[name].requires_grad_() for name in LOOP_LEAVES}
        tensors |= {name: leaf.clone() for name, leaf in leaves.items()}
    layers = len(inputs["state"])
    sizes = inputs["weight_ih_l0"].shape[1], inputs["weight_hh_l0"].shape[1]
    with torch.random.fork_rng(devices=[]):  # nn.GRU draws its weights; the reader's seed stays
        rnn = torch.nn.GRU(*sizes, num_layers=layers, batch_first=True)
    rnn.load_state_dict({name: tensor(inputs[name]) for name in rnn.state_dict()})
    returned = call(answer, *tensors.values(), rnn, inputs["feeding"])
    values = several(returned, ("attentional", "weights"))
    outputs: Outputs = {
        name: array(v, name) for name, v in zip(("attentional", "weights"), values, strict=True)
    }
    if leaves:
        outputs |= gradients(values[0], inputs["upstream"], leaves)
    outputs["changed"] = changed(inputs, tensors)
    return outputs


DECODE = Question(
    "05.3", "decode(embeddings, state, encoder_states, mask, W_a, W_c, rnn, feeding)", _ask_loop
)


# --- 05.4 local-p weights -----------------------------------------------------------------------------------

LOCAL_ARGUMENTS = ("scores", "states", "mask", "W_p", "v_p", "reach")
SHARES = "weights, rows divided by their sum"


def _ask_local(answer: Callable, inputs: Inputs) -> Outputs:
    """The weights are judged up to a factor for each row: whether they are renormalised is a choice."""
    tensors = {name: tensor(inputs[name]) for name in LOCAL_ARGUMENTS if name != "reach"}
    weights, centre = several(call(answer, *tensors.values(), inputs["reach"]), ("weights", "centre"))
    weights, centre = array(weights, "weights"), array(centre, "centre")
    total = weights.sum(-1, keepdims=True) if weights.ndim else weights
    shares = weights / np.where(total == 0, 1, total).astype(weights.dtype)
    return {"centre": centre, SHARES: shares, "changed": changed(inputs, tensors)}


LOCAL_WEIGHTS = Question("05.4", "local_weights(scores, states, mask, W_p, v_p, reach)", _ask_local)


# --- 05.5 concat as the additive score ----------------------------------------------------------------------


def _ask_additive(answer: Callable, inputs: Inputs) -> Outputs:
    tensors = {name: tensor(inputs[name]) for name in ("W", "v")}
    with torch.random.fork_rng(devices=[]):  # an AdditiveScore draws its weights; the reader's seed stays
        torch.manual_seed(0)
        score = call(answer, *tensors.values(), inputs["query_width"])
    if score is None:
        raise WrongResult("The result is None. Is a return missing?")
    if type(score) is not AdditiveScore:
        raise WrongResult(f"The result is of type {type(score).__name__}; an AdditiveScore is wanted.")
    queries, keys = tensor(inputs["queries"]), tensor(inputs["keys"])
    with torch.no_grad():
        return {
            "scores": array(score(queries, score.project_keys(keys)), "scores"),
            "changed": changed(inputs, tensors),
        }


AS_ADDITIVE = Question("05.5", "as_additive(W, v, query_width)", _ask_additive)


QUESTIONS = (LUONG_SCORES, ATTENTIONAL_STATES, DECODE, LOCAL_WEIGHTS, AS_ADDITIVE)
