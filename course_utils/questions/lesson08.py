"""How the exercises of lesson 08 are asked: after the Transformer."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator

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
    several,
    tensor,
)

IGNORED = -100


def _numbers(value: object, name: str) -> np.ndarray:
    """The word numbers of an integer tensor, as the floats in which a case without floats is judged."""
    found = array(value, name)
    if found.dtype.kind not in "iu":
        raise WrongResult(f"{name} is {found.dtype.name}; word numbers are integers (torch.int64).")
    return found.astype(np.float64)


# --- 08.1 BERT's corruption ---------------------------------------------------------------------------------


def _ask_corruption(answer: Callable, inputs: Inputs) -> Outputs:
    """Three draws: one, the same once more, and one from another seed."""
    outputs: Outputs = {}
    written: list[str] = []
    for draw, seed in (("", 0), (" again", 0), (" of another seed", 1)):
        given = {name: tensor(inputs[name]) for name in ("tokens", "words")}
        generator = torch.Generator().manual_seed(inputs["seed"] + seed)
        returned = call(answer, *given.values(), inputs["mask_id"], inputs["rate"], generator)
        for name, value in zip(
            ("corrupted", "labels"), several(returned, ("corrupted", "labels")), strict=True
        ):
            outputs[name + draw] = _numbers(value, name)
        written += changed(inputs, given)
    corrupted, labels = outputs["corrupted"], outputs["labels"]
    for name in ("corrupted", "labels"):
        if outputs[name].shape != inputs["tokens"].shape:
            raise WrongResult(
                f"{name} has the shape {outputs[name].shape}, expected is {inputs['tokens'].shape}: "
                "(batch, length)."
            )
    restored = np.where(labels == IGNORED, corrupted, labels)
    return outputs | {"restored": restored, "changed": sorted(set(written))}


BERT_CORRUPTION = Question("08.1", "corrupt_words(tokens, words, mask_id, rate, generator)", _ask_corruption)


# --- 08.2 causal loss ---------------------------------------------------------------------------------------

CAUSAL_LOSS = Question(
    "08.2",
    "causal_loss(logits, tokens, mask)",
    ask_tensors(["logits", "tokens", "mask"], ["loss"], wrt=["logits"]),
)


# --- 08.3 span corruption -----------------------------------------------------------------------------------

SPANS = ("source", "target_in", "target_out")


def _ask_spans(answer: Callable, inputs: Inputs) -> Outputs:
    given = {name: tensor(inputs[name]) for name in ("tokens", "hidden", "sentinels")}
    returned = several(call(answer, *given.values(), inputs["start"], inputs["end"]), SPANS)
    outputs: Outputs = {name: _numbers(value, name) for name, value in zip(SPANS, returned, strict=True)}
    return outputs | {"changed": changed(inputs, given)}


SPAN_CORRUPTION = Question("08.3", "corrupt_spans(tokens, hidden, sentinels, start, end)", _ask_spans)


# --- 08.4 four masks ----------------------------------------------------------------------------------------


def _ask_mask(answer: Callable, inputs: Inputs) -> Outputs:
    """The mask as numbers; rows of padding are cleared, since nobody reads them (cm-10)."""
    real = tensor(inputs["real"])
    value = call(answer, inputs["kind"], real, inputs["size"])
    found = array(value, "mask")
    batch, length = inputs["real"].shape
    if found.ndim == 4 and found.shape[1] == 1:  # an axis for the heads
        found = found[:, 0]
    if found.shape == (batch, 1, length):  # the same for every row that asks
        found = np.broadcast_to(found, (batch, length, length))
    outputs: Outputs = {"kind": found.dtype.name, "changed": changed(inputs, {"real": real})}
    if found.shape == (batch, length, length):
        words, padding = inputs["real"][:, :, None], ~inputs["real"][:, None]
        outputs["cleared rows"] = bool(
            ((found != 0) & words & padding).any() and not found[~inputs["real"]].any()
        )
        found = np.where(words, found, 0)
    return outputs | {"mask": np.array(found, dtype=np.float64)}


FOUR_MASKS = Question("08.4", "attention_mask(kind, real, size)", _ask_mask)


# --- 08.5 attention in blocks -------------------------------------------------------------------------------

KEPT = 3  # blocks that an answer may hold at once: the last, the present, and one to spare


def _blocks_of(inputs: Inputs) -> list[list[np.ndarray]]:
    ends = np.cumsum(inputs["blocks"])[:-1]
    whole = (inputs["key"], inputs["value"], inputs["mask"])
    return [list(parts) for parts in zip(*(np.split(part, ends, axis=1) for part in whole), strict=True)]


class _Stream:
    """Hands out blocks one by one, and counts how many of them the reader still holds."""

    def __init__(self, blocks: list[list[np.ndarray]]):
        self.blocks, self.refs, self.most = blocks, [], 0

    def __iter__(self) -> Iterator[tuple[torch.Tensor, ...]]:
        for block in self.blocks:
            alive = sum(any(ref() is not None for ref in refs) for refs in self.refs)
            self.most = max(self.most, alive)
            yield self._fresh(block)

    def _fresh(self, block: list[np.ndarray]) -> tuple[torch.Tensor, ...]:
        parts = tuple(tensor(part) for part in block)
        self.refs.append([weakref.ref(part) for part in parts[:2]])
        return parts


def _ask_blocks(answer: Callable, inputs: Inputs) -> Outputs:
    query = tensor(inputs["query"])
    stream = _Stream(_blocks_of(inputs))
    outputs: Outputs = {"output": array(call(answer, query, iter(stream)), "output")}
    outputs["kept"] = stream.most > KEPT
    outputs["changed"] = changed(inputs, {"query": query})
    if "upstream" in inputs:
        leaves = {name: tensor(inputs[name]).requires_grad_() for name in ("query", "key", "value")}
        cut = [
            part.split(inputs["blocks"], dim=1)
            for part in (leaves["key"], leaves["value"], tensor(inputs["mask"]))
        ]
        result = call(answer, leaves["query"].clone(), iter(list(zip(*cut, strict=True))))
        outputs |= gradients(result, inputs["upstream"], leaves)
    return outputs


ATTENTION_IN_BLOCKS = Question("08.5", "attention_in_blocks(query, blocks)", _ask_blocks)


# --- 08.6 linear attention ----------------------------------------------------------------------------------

STATE = ("memory", "total")


def _ask_linear(answer: Callable, inputs: Inputs) -> Outputs:
    """Reads the sequence in pieces, each from the state that the last one returned."""
    leaves = {name: tensor(inputs[name]) for name in ("query", "key", "value", *STATE)}
    if "upstream" in inputs:
        leaves = {name: leaf.requires_grad_() for name, leaf in leaves.items()}
    query, key, value = (leaves[name].split(inputs["pieces"], dim=1) for name in ("query", "key", "value"))
    state = tuple(leaves[name].clone() for name in STATE)
    found, written = [], []
    for number, piece in enumerate(zip(query, key, value, strict=True), start=1):
        given = [part.clone() for part in (*piece, *state)]
        output, after = several(call(answer, *given[:3], tuple(given[3:])), ("output", "state"))
        found.append(output)
        names = ("query", "key", "value", *STATE)
        before = dict(zip(names, (array(part, "input") for part in (*piece, *state)), strict=True))
        written += changed(before, dict(zip(names, given, strict=True)))
        state = several(after, STATE)
        for name, part, old in zip(STATE, state, given[3:], strict=True):
            shape = array(part, name).shape
            if shape != tuple(old.shape):
                raise WrongResult(
                    f"After piece {number}, {name} has the shape {shape}, expected is {tuple(old.shape)}."
                )
        array(output, "output")
        if output.ndim != 3:
            raise WrongResult(
                f"output has the shape {tuple(output.shape)}; (batch, length, value) is wanted."
            )
    whole = torch.cat(found, dim=1)
    outputs: Outputs = {"output": array(whole, "output"), "changed": sorted(set(written))}
    outputs |= {name: array(part, name) for name, part in zip(STATE, state, strict=True)}
    if "upstream" in inputs:
        outputs |= gradients(whole, inputs["upstream"], leaves)
    return outputs


LINEAR_ATTENTION = Question("08.6", "linear_attention(query, key, value, state)", _ask_linear)


QUESTIONS = (BERT_CORRUPTION, CAUSAL_LOSS, SPAN_CORRUPTION, FOUR_MASKS, ATTENTION_IN_BLOCKS, LINEAR_ATTENTION)
