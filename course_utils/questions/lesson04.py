"""How the exercises of lesson 04 are asked: Bahdanau attention (Bahdanau, Cho and Bengio 2015)."""

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
    gradients,
    number,
    several,
    tensor,
)

# --- 04.1 masked softmax ------------------------------------------------------------------------------------

MASKED_SOFTMAX = Question(
    "04.1", "masked_softmax(scores, mask)", ask_tensors(["scores", "mask"], ["weights"], wrt=["scores"])
)


# --- 04.2 additive scores -----------------------------------------------------------------------------------

SCORE_ARGUMENTS = ("queries", "keys", "W_q", "W_k", "v")

ADDITIVE_SCORES = Question(
    "04.2",
    "additive_scores(queries, keys, W_q, W_k, v)",
    ask_tensors(SCORE_ARGUMENTS, ["scores"], wrt=["queries", "keys"]),
)


# --- 04.3 the context of a bidirectional encoder ------------------------------------------------------------

BIDIRECTIONAL_CONTEXT = Question(
    "04.3",
    "bidirectional_context(scores, forward_states, backward_states, mask)",
    ask_tensors(["scores", "forward_states", "backward_states", "mask"], ["context", "weights"]),
)


# --- 04.4 one decoder step ----------------------------------------------------------------------------------

STEP_WEIGHTS = ("W_q", "W_k", "v")
CELL_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def _ask_step(answer: Callable, inputs: Inputs) -> Outputs:
    """Take as many steps as there are embeddings, each from the state that the one before returned."""
    tensors = {name: tensor(inputs[name]) for name in ("state", "encoder_states", "mask", *STEP_WEIGHTS)}
    leaves = {}
    if "upstream" in inputs:
        leaves = {name: tensors[name].requires_grad_() for name in ("state", "encoder_states")}
        tensors |= {name: leaf.clone() for name, leaf in leaves.items()}
    sizes = inputs["weight_ih"].shape[1], inputs["weight_hh"].shape[1]
    dtype = tensors["state"].dtype
    with torch.random.fork_rng(devices=[]):  # leaves a reader's seed as it is
        cell = torch.nn.GRUCell(*sizes, dtype=dtype)
    cell.load_state_dict({name: tensor(inputs[name]) for name in CELL_WEIGHTS})

    outputs: Outputs = {}
    state = tensors["state"]
    for t, embedding in enumerate(inputs["embeddings"], start=1):
        given = tensors | {"state": state, "embedding": tensor(embedding)}
        returned = call(answer, *(given[name] for name in STEP_ARGUMENTS), cell)
        results = several(returned, ("new_state", "context", "weights"))
        for name, value in zip(("weights", "context", "new_state"), reversed(results), strict=True):
            outputs[f"{name} at step {t}"] = array(value, name)
        if results[0].shape != state.shape:
            return outputs  # no further step is possible; judge says why
        state = results[0]
    if leaves:
        outputs |= gradients(state, inputs["upstream"], leaves)
    outputs["changed"] = changed(inputs, tensors)
    return outputs


STEP_ARGUMENTS = ("state", "embedding", "encoder_states", "mask", *STEP_WEIGHTS)

DECODER_STEP = Question(
    "04.4", "decoder_step(state, embedding, encoder_states, mask, W_q, W_k, v, cell)", _ask_step
)


# --- 04.5 alignment error rate ------------------------------------------------------------------------------

LINKS = ("links", "sure", "possible")


def _ask_rate(answer: Callable, inputs: Inputs) -> Outputs:
    given = {name: [set(sentence) for sentence in inputs[name]] for name in LINKS}
    value = call(answer, *given.values())
    kept = [name for name in LINKS if given[name] != [set(sentence) for sentence in inputs[name]]]
    return {"rate": number(value, "the rate"), "changed": kept}


ALIGNMENT_ERROR_RATE = Question("04.5", "alignment_error_rate(links, sure, possible)", _ask_rate)


QUESTIONS = (MASKED_SOFTMAX, ADDITIVE_SCORES, BIDIRECTIONAL_CONTEXT, DECODER_STEP, ALIGNMENT_ERROR_RATE)
