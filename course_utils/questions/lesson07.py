"""How the exercises of lesson 07 are asked: the Transformer (Vaswani et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from course_utils.questions.asking import (
    Inputs,
    Outputs,
    Question,
    WrongResult,
    array,
    call,
    changed,
    gradients,
    number,
    several,
    tensor,
)

# --- 07.1 a stack of residual sublayers ---------------------------------------------------------------------


def _ask_stack(answer: Callable, inputs: Inputs) -> Outputs:
    """Sublayer i multiplies by matrix i."""
    tensors = {name: tensor(inputs[name]) for name in ("x", "gains", "biases")}
    leaves = {"x": tensors["x"].requires_grad_()} if "upstream" in inputs else {}
    tensors |= {name: leaf.clone() for name, leaf in leaves.items()}
    sublayers = [partial(_times, tensor(matrix)) for matrix in inputs["matrices"]]
    x, gains, biases = tensors.values()
    states = call(answer, x, sublayers, gains, biases, inputs["pre"])
    outputs: Outputs = {"states": array(states, "the result")}
    if leaves:
        outputs |= gradients(states, inputs["upstream"], leaves)
    outputs["changed"] = changed(inputs, tensors)
    return outputs


def _times(matrix: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return x @ matrix.T


RESIDUAL_STACK = Question("07.1", "residual_stack(x, sublayers, gains, biases, pre)", _ask_stack)


# --- 07.2 a decoder layer -----------------------------------------------------------------------------------

LAYER_WEIGHTS = ("own_matrices", "cross_matrices", "widen", "narrow", "gains", "biases")


def _attention(matrices: torch.Tensor, heads: int) -> Callable:
    """attend(queries, others, mask): multi-head attention of `queries` over `others`, the lesson's own."""

    def attend(queries, others, mask=None):
        if mask is not None and not (type(mask) is torch.Tensor and mask.dtype == torch.bool):
            kind = getattr(mask, "dtype", type(mask).__name__)
            raise TypeError(f"attention wants a boolean mask (True = may look) or None, but got {kind}")
        q, k, v = (
            (x @ W.T).unflatten(-1, (heads, -1)).transpose(1, 2)
            for x, W in zip((queries, others, others), matrices, strict=False)
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5  # (batch, heads, target, source)
        if mask is not None:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        weights = torch.softmax(scores, -1)
        if mask is not None:
            weights = weights.masked_fill(~mask, 0.0)
        return (weights @ v).transpose(1, 2).flatten(2) @ matrices[3].T

    return attend


def _ask_layer(answer: Callable, inputs: Inputs) -> Outputs:
    given = {name: tensor(inputs[name]) for name in ("x", "encoder_states", "source_mask")}
    weights = {name: tensor(inputs[name]) for name in LAYER_WEIGHTS}
    names = ("x", "encoder_states") if "upstream" in inputs else ()
    leaves = {name: given[name].requires_grad_() for name in names}
    given |= {name: leaf.clone() for name, leaf in leaves.items()}

    own, cross = (_attention(weights[name], inputs["heads"]) for name in ("own_matrices", "cross_matrices"))

    def feed_forward(x):
        return torch.relu(x @ weights["widen"].T) @ weights["narrow"].T

    norms = [
        partial(F.layer_norm, normalized_shape=gain.shape, weight=gain, bias=bias)
        for gain, bias in zip(weights["gains"], weights["biases"], strict=True)
    ]
    states = call(answer, *given.values(), own, cross, feed_forward, norms)
    outputs: Outputs = {"states": array(states, "the result")}
    if leaves:
        outputs |= gradients(states, inputs["upstream"], leaves)
    outputs["changed"] = changed(inputs, given)
    return outputs


DECODER_LAYER = Question(
    "07.2", "decoder_layer(x, encoder_states, source_mask, own, cross, feed_forward, norms)", _ask_layer
)


# --- 07.3 the label-smoothed loss ---------------------------------------------------------------------------


def _ask_loss(answer: Callable, inputs: Inputs) -> Outputs:
    tensors = {name: tensor(inputs[name]) for name in ("logits", "target")}
    leaves = {"logits": tensors["logits"].requires_grad_()} if "upstream" in inputs else {}
    tensors |= {name: leaf.clone() for name, leaf in leaves.items()}
    loss = call(answer, *tensors.values(), inputs["pad"], inputs["epsilon"])
    if type(loss) is torch.Tensor and loss.ndim == 1 and len(loss) == 1:
        loss = loss[0]
    outputs: Outputs = {"loss": array(loss, "the loss")}
    if leaves:
        outputs |= gradients(loss, inputs["upstream"], leaves)
    outputs["changed"] = changed(inputs, tensors)
    return outputs


SMOOTHED_LOSS = Question("07.3", "smoothed_loss(logits, target, pad, epsilon)", _ask_loss)


# --- 07.4 the warm-up schedule ------------------------------------------------------------------------------


def _ask_rates(answer: Callable, inputs: Inputs) -> Outputs:
    given = inputs["peak"], inputs["warmup"]
    rates = [
        float(number(call(answer, step, *given), f"the rate of step {step}")) for step in inputs["steps"]
    ]
    return {"rates": np.array(rates)}


WARMUP_RATE = Question("07.4", "warmup_rate(step, peak, warmup)", _ask_rates)


# --- 07.5 the inputs of a training step ---------------------------------------------------------------------

STEP_RESULTS = ("target_in", "target_out", "source_mask", "target_mask")


def _ask_step(answer: Callable, inputs: Inputs) -> Outputs:
    """What a padded place may look at is nobody's business: its row of the mask is put to False."""
    given = {name: tensor(inputs[name]) for name in ("source", "target")}
    returned = several(
        call(answer, *given.values(), inputs["source_pad"], inputs["target_pad"]), STEP_RESULTS
    )
    outputs: Outputs = {}
    for name, value in zip(STEP_RESULTS, returned, strict=True):
        found = array(value, name)
        kind = "b" if name.endswith("mask") else "i"
        if found.dtype.kind != kind:
            wanted = {"b": "a mask is boolean (torch.bool)", "i": "word numbers are integers"}[kind]
            raise WrongResult(f"{name} is {found.dtype.name}; {wanted}.")
        outputs[name] = found.astype("float64")
    real = inputs["target"] != inputs["target_pad"]
    asked = real[:, :-1] & real[:, 1:]  # (batch, target - 1)
    if outputs["target_mask"].shape == (len(asked), 1, asked.shape[1], asked.shape[1]):
        outputs["target_mask"] = outputs["target_mask"] * asked[:, None, :, None]
    return outputs | {"changed": changed(inputs, given)}


TRAINING_STEP = Question("07.5", "training_step(source, target, source_pad, target_pad)", _ask_step)


# --- 07.6 attention with a cache ----------------------------------------------------------------------------

CACHE_WEIGHTS = ("places", "W_q", "W_k", "W_v")


def _ask_cached(answer: Callable, inputs: Inputs) -> Outputs:
    """Reads x in chunks, the cache of each call handed to the next."""
    x, heads = tensor(inputs["x"]), inputs["heads"]
    weights = {name: tensor(inputs[name]) for name in CACHE_WEIGHTS}
    batch, _, width = x.shape
    cache = (x.new_zeros(batch, heads, 0, width // heads), x.new_zeros(batch, heads, 0, width // heads))
    outputs: Outputs = {"changed": []}
    for i, chunk in enumerate(x.split(inputs["chunks"], dim=1), start=1):
        kept = [part.clone() for part in cache]
        given = chunk.clone()
        returned = call(answer, given, cache, *weights.values(), heads)
        output, after = several(returned, ("output", "cache"))
        keys, values = several(after, ("keys", "values"))
        found = {"output": output, "keys": keys, "values": values}
        outputs |= {f"{name} at call {i}": array(value, name) for name, value in found.items()}
        same = [torch.equal(a, b) for a, b in zip((given, *cache), (chunk, *kept), strict=True)]
        outputs["changed"] += [
            name for name, kept in zip(("x", "cache", "cache"), same, strict=True) if not kept
        ]
        length = cache[0].shape[2] + chunk.shape[1]
        if any(tuple(part.shape) != (batch, heads, length, width // heads) for part in (keys, values)):
            return outputs  # no further call is possible; judge says why
        cache = (keys, values)
    outputs["changed"] += changed(inputs, weights)
    return outputs


CACHED_ATTENTION = Question("07.6", "cached_attention(x, cache, places, W_q, W_k, W_v, heads)", _ask_cached)


QUESTIONS = (RESIDUAL_STACK, DECODER_LAYER, SMOOTHED_LOSS, WARMUP_RATE, TRAINING_STEP, CACHED_ATTENTION)
