"""How the exercises of lesson 03 are asked: sequence to sequence (Sutskever, Vinyals and Le 2014)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

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
    number,
    several,
    tensor,
)

SPECIAL = ("bos", "eos", "pad")  # the numbers of the special words, in the order in which answers take them


def _word_numbers(value: object, name: str, dtype: str) -> np.ndarray:
    """The word numbers of an integer tensor, as floats of the dtype in which the case is judged."""
    found = array(value, name)
    if found.dtype.kind not in "iu":
        raise WrongResult(f"{name} is {found.dtype.name}; word numbers are integers (torch.int64).")
    return found.astype(dtype)


# --- 03.1 the shift -----------------------------------------------------------------------------------------


def _ask_shift(answer: Callable, inputs: Inputs) -> Outputs:
    """Where the target is padding, what the decoder reads is nobody's business: it is put to <pad>."""
    target = tensor(inputs["target"])
    returned = several(call(answer, target, *(inputs[name] for name in SPECIAL)), ("target_in", "target_out"))
    names = ("target_in", "target_out")
    outputs = {
        name: _word_numbers(value, name, "float64") for name, value in zip(names, returned, strict=True)
    }
    given = inputs["target"]
    read = np.pad(given, ((0, 0), (1, 0)), constant_values=-1) != inputs["pad"]  # (batch, target + 1)
    if outputs["target_in"].shape == read.shape:
        outputs["target_in"] = np.where(read, outputs["target_in"], inputs["pad"])
    return outputs | {"changed": changed(inputs, {"target": target})}


SHIFT_TARGETS = Question("03.1", "shift_targets(target, bos, eos, pad)", _ask_shift)


# --- 03.2 the loss ------------------------------------------------------------------------------------------

PADDED_LOSS = Question(
    "03.2",
    "padded_loss(logits, target, mask)",
    ask_tensors(["logits", "target", "mask"], ["loss"], wrt=["logits"]),
)


# --- 03.3 the encoder's state -------------------------------------------------------------------------------

GRU_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def _ask_state(answer: Callable, inputs: Inputs) -> Outputs:
    embedded = tensor(inputs["embedded"]).requires_grad_()
    tensors = {"embedded": embedded.clone(), "mask": tensor(inputs["mask"])}
    sizes = inputs["weight_ih"].shape[1], inputs["weight_hh"].shape[1]
    gru = torch.nn.GRU(*sizes, batch_first=True, device="meta")  # draws nothing: a reader's seed stays
    gru = gru.to_empty(device="cpu")
    gru.load_state_dict({f"{name}_l0": tensor(inputs[name]) for name in GRU_WEIGHTS})
    state = call(answer, *tensors.values(), gru)
    outputs: Outputs = {"state": array(state, "state")}
    if "upstream" in inputs:
        outputs |= gradients(state, inputs["upstream"], {"embedded": embedded})
    return outputs | {"changed": changed(inputs, tensors)}


ENCODER_STATE = Question("03.3", "encoder_state(embedded, mask, gru)", _ask_state)


# --- a small language model, out of arrays ------------------------------------------------------------------

MODEL = ("embedding", "recurrent", "output", "bias")


class _Step:
    """The same model as the step function that an answer gets; it says what it is not happy with."""

    def __init__(self, inputs: Inputs, limit: int):
        self.embedding, self.recurrent, self.output, self.bias = (tensor(inputs[name]) for name in MODEL)
        self.never = [inputs["pad"], inputs["bos"]]
        self.rows, self.limit = 0, limit  # the rows of all calls together: one call for a batch, or many

    def __call__(self, token: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if token.ndim != 1 or state.ndim != 2 or len(token) != len(state):
            raise ValueError(
                f"step was given a token of shape {tuple(token.shape)} and a state of shape "
                f"{tuple(state.shape)}; it wants (rows,) and (rows, hidden)"
            )
        self.rows += len(token)
        if self.rows > self.limit:
            raise RuntimeError("step has been called far more often than max_length allows")
        state = torch.tanh(state @ self.recurrent.T + self.embedding[token])
        logits = state @ self.output.T + self.bias
        logits[:, self.never] = -torch.inf
        return logits.log_softmax(-1), state


# --- 03.4 greedy decoding -----------------------------------------------------------------------------------

GREEDY_ARGUMENTS = ("bos", "eos", "pad", "max_length")


def _ask_greedy(answer: Callable, inputs: Inputs) -> Outputs:
    state = tensor(inputs["state"])
    step = _Step(inputs, limit=(3 * inputs["max_length"] + 5) * len(state))
    tokens = call(answer, step, state, *(inputs[name] for name in GREEDY_ARGUMENTS))
    tokens = _word_numbers(tokens, "tokens", "float32")
    columns = tokens.shape[1] if tokens.ndim == 2 else inputs["max_length"]
    # A loop that looks ahead may need one step more than there are columns.
    return {
        "tokens": tokens,
        "needless steps": max(0, step.rows // max(len(state), 1) - columns - 1),
        "changed": changed(inputs, {"state": state}),
    }


GREEDY_DECODE = Question("03.4", "greedy_decode(step, state, bos, eos, pad, max_length)", _ask_greedy)


# --- 03.5 beam search ---------------------------------------------------------------------------------------

BEAM_ARGUMENTS = ("bos", "eos", "width", "max_length", "alpha")


def _ask_beam(answer: Callable, inputs: Inputs) -> Outputs:
    state = tensor(inputs["state"])
    step = _Step(inputs, limit=(3 * inputs["max_length"] + 5) * max(inputs["width"], 2))
    returned = call(answer, step, state, *(inputs[name] for name in BEAM_ARGUMENTS))
    tokens, score = several(returned, ("tokens", "score"))
    return {
        "tokens": _word_numbers(tokens, "tokens", "float32"),
        "score": number(score, "score").astype("float32"),
        "changed": changed(inputs, {"state": state}),
    }


BEAM_SEARCH = Question("03.5", "beam_search(step, state, bos, eos, width, max_length, alpha)", _ask_beam)


# --- 03.6 BLEU's two factors --------------------------------------------------------------------------------


def _ask_factors(answer: Callable, inputs: Inputs) -> Outputs:
    candidate, references = list(inputs["candidate"]), [list(words) for words in inputs["references"]]
    returned = several(call(answer, candidate, references, inputs["n"]), ("precision", "penalty"))
    kept = candidate == list(inputs["candidate"]), references == [list(r) for r in inputs["references"]]
    names = ("candidate", "references")
    return {
        "precision": number(returned[0], "precision"),
        "penalty": number(returned[1], "penalty"),
        "changed": [name for name, same in zip(names, kept, strict=True) if not same],
    }


BLEU_FACTORS = Question("03.6", "bleu_factors(candidate, references, n)", _ask_factors)


QUESTIONS = (SHIFT_TARGETS, PADDED_LOSS, ENCODER_STATE, GREEDY_DECODE, BEAM_SEARCH, BLEU_FACTORS)
