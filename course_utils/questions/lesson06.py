"""How the exercises of lesson 06 are asked: self-attention (Vaswani et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from course_utils.models import causal_mask, masked_softmax, sinusoidal
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
    working_dtype,
)

# --- 06.1 scaled dot-product attention ----------------------------------------------------------------------

DOT_ARGUMENTS = ("query", "key", "value", "mask")

SCALED_DOT_PRODUCT = Question(
    "06.1",
    "attention(query, key, value, mask)",
    ask_tensors(DOT_ARGUMENTS, ["output", "weights"], wrt=DOT_ARGUMENTS[:3]),
)


# --- 06.2 padding and causal masks --------------------------------------------------------------------------

MASKS = ("encoder_mask", "decoder_mask", "cross_mask")


def _ask_masks(answer: Callable, inputs: Inputs) -> Outputs:
    """The three masks as numbers, stretched to (batch, queries, keys); rows of padding are cleared.

    A row that belongs to padding is read by nobody, so it may hold what it likes (cm-10).
    """
    tokens = {name: tensor(inputs[name]) for name in ("source", "target")}
    pads = (inputs["source_pad"], inputs["target_pad"])
    returned = several(call(answer, *tokens.values(), *pads), MASKS)
    real = {name: inputs[name] != inputs[f"{name}_pad"] for name in tokens}
    sides = (("source", "source"), ("target", "target"), ("target", "source"))
    outputs: Outputs = {"kinds": []}
    for name, value, (asking, asked) in zip(MASKS, returned, sides, strict=True):
        found = array(value, name)
        outputs["kinds"].append(found.dtype.name)
        if found.ndim == 4 and found.shape[1] == 1:  # an axis for the heads
            found = found[:, 0]
        full = (*inputs[asking].shape, inputs[asked].shape[1])
        try:
            found = np.broadcast_to(found, full)
        except ValueError:  # of another shape, as judge will say
            if found.ndim == 2:
                raise WrongResult(
                    f"{name} has the shape {found.shape}, which does not fit {full}: where is the axis "
                    "of those who ask? (batch, keys) has to become (batch, 1, keys)."
                ) from None
        else:
            found = np.where(real[asking][..., None], found, 0)
        outputs[name] = np.array(found, dtype=np.float64)
    outputs["changed"] = changed(inputs, tokens)
    return outputs


ATTENTION_MASKS = Question("06.2", "attention_masks(source, target, source_pad, target_pad)", _ask_masks)


# --- 06.3 split and merge heads -----------------------------------------------------------------------------


def _ask_by_head(answer: Callable, inputs: Inputs) -> Outputs:
    """What arrives at `attend`, and what the answer makes of its result: every head mixed in its own way."""
    x, mix, heads = tensor(inputs["x"]), tensor(inputs["attend_mixes"]), inputs["heads"]
    outputs: Outputs = {"calls": 0}

    def attend(given: Any) -> torch.Tensor:
        outputs["calls"] += 1
        outputs["heads"] = array(given, "what attend is given")
        fits = given.ndim == 4 and given.shape[1:3] == mix.shape[:2]
        return mix @ given if fits else given.clone()

    returned = call(answer, x, heads, attend)
    if outputs["calls"] != 1:
        raise WrongResult(
            f"attend should be called once, with all heads; it was called {outputs['calls']} times."
        )
    outputs["merged"] = array(returned, "the result")
    outputs["changed"] = changed(inputs, {"x": x})
    return outputs


BY_HEAD = Question("06.3", "by_head(x, heads, attend)", _ask_by_head)


# --- 06.4 multi-head attention ------------------------------------------------------------------------------

MULTI_TENSORS = ("x", "memory", "mask", "W_in", "b_in", "W_out", "b_out")


def _ask_multi_head(answer: Callable, inputs: Inputs) -> Outputs:
    tensors = {name: tensor(inputs[name]) for name in MULTI_TENSORS}
    leaves = {}
    if "upstream" in inputs:
        leaves = {name: tensors[name].requires_grad_() for name in ("x", "memory")}
        tensors |= {name: leaf.clone() for name, leaf in leaves.items()}
    output, weights = several(call(answer, *tensors.values(), inputs["heads"]), ("output", "weights"))
    outputs: Outputs = {"weights": array(weights, "weights"), "output": array(output, "output")}
    if leaves:
        outputs |= gradients(output, inputs["upstream"], leaves)
    outputs["changed"] = changed(inputs, tensors)
    return outputs


MULTI_HEAD = Question("06.4", "multi_head(x, memory, mask, W_in, b_in, W_out, b_out, heads)", _ask_multi_head)


# --- 06.5 sinusoidal positions ------------------------------------------------------------------------------


def _ask_positions(answer: Callable, inputs: Inputs) -> Outputs:
    """The encoded embeddings, in the dtype of the embeddings: a table may be more or less exact (sd-09)."""
    embeddings = tensor(inputs["embeddings"])
    found = array(call(answer, embeddings), "the result")
    if found.dtype.kind == "f":
        found = found.astype(working_dtype(inputs))
    return {"encoded": found, "changed": changed(inputs, {"embeddings": embeddings})}


POSITIONS = Question("06.5", "with_positions(embeddings)", _ask_positions)


# --- 06.6 a test for blindness to order ---------------------------------------------------------------------


def layers(inputs: Inputs) -> dict[str, Callable]:
    """The layers to be tested, by name; each maps (batch, length, width) to the same shape.

    They come in an order that depends on the numbers of the case: counting them tells nothing.
    """
    W_q, W_k, W_v = (tensor(inputs[name]) for name in ("W_q", "W_k", "W_v"))

    def attend(
        x: torch.Tensor, mask: torch.Tensor | bool = True, bias: torch.Tensor | float = 0.0
    ) -> torch.Tensor:
        scores = (x @ W_q) @ (x @ W_k).mT / x.shape[2] ** 0.5 + bias
        return masked_softmax(scores, torch.as_tensor(mask).expand_as(scores)) @ (x @ W_v)

    def places(x: torch.Tensor) -> torch.Tensor:
        return torch.arange(x.shape[1])

    def distance(x: torch.Tensor) -> torch.Tensor:
        return (places(x)[:, None] - places(x)).abs().to(x.dtype)

    def encoded(x: torch.Tensor) -> torch.Tensor:
        return sinusoidal(places(x), x.shape[2]).to(x.dtype)

    def recurrent(x: torch.Tensor) -> torch.Tensor:
        states = [x[:, 0] * 0]
        for word in x.unbind(1):
            states.append(torch.tanh(word @ W_k + states[-1] @ W_q))
        return torch.stack(states[1:], 1)

    offered = {
        "self-attention": attend,
        "a network for each word alone": lambda x: torch.tanh(x @ W_v),
        "the mean of all words for every word": lambda x: x.mean(1, keepdim=True).expand_as(x),
        "self-attention with sinusoidal positions": lambda x: attend(x + encoded(x)),
        "causal self-attention": lambda x: attend(x, causal_mask(x.shape[1])),
        "an RNN": recurrent,
        "self-attention that favours near words": lambda x: attend(x, bias=-distance(x)),
        "each word with its neighbour, in a ring": lambda x: x @ W_q + x.roll(1, 1) @ W_k,
        "self-attention that numbers the words from the third on": lambda x: (
            attend(x) + (places(x) - 1).clamp(min=0).to(x.dtype)[:, None]
        ),
        "self-attention with its output turned round": lambda x: attend(x).flip(1),
        "self-attention with its output sorted": lambda x: attend(x).sort(1).values,
        "self-attention with faint positions": lambda x: attend(x) + 0.02 * encoded(x),
    }
    numbers = np.frombuffer(inputs["x"].tobytes(), np.uint64)
    order = np.random.default_rng(numbers[:4]).permutation(len(offered))
    names = list(offered)
    return {names[i]: offered[names[i]] for i in order}


def _ask_equivariant(answer: Callable, inputs: Inputs) -> Outputs:
    """What the reader's test says of every layer, as 1 for True and 0 for False."""
    verdicts = []
    for layer in layers(inputs).values():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # the orders that a test draws are the same in every run
            verdicts.append(_truth(call(answer, layer, tensor(inputs["x"]))))
    return {"verdicts": np.array(verdicts, float)}


def _truth(value: Any) -> bool:
    if type(value) is torch.Tensor and value.dtype == torch.bool and value.numel() == 1:
        value = value.item()
    if type(value) is torch.Tensor and value.dtype == torch.bool:
        raise WrongResult(
            f"True or False is wanted, but the result is {value.numel()} of them: which counts?"
        )
    if type(value) not in (bool, np.bool_):
        what = "None. Is a return missing?" if value is None else f"of type {type(value).__name__}."
        raise WrongResult(f"True or False is wanted, but the result is {what}")
    return bool(value)


EQUIVARIANT = Question("06.6", "equivariant(layer, x)", _ask_equivariant)


QUESTIONS = (SCALED_DOT_PRODUCT, ATTENTION_MASKS, BY_HEAD, MULTI_HEAD, POSITIONS, EQUIVARIANT)
