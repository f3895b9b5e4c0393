"""The exercises of lesson 03, sequence to sequence (Sutskever, Vinyals and Le 2014), and how they go wrong.

Sources such as "s2s-03" name the public bug report or thread that a mistake or a variant was first seen in.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator, default_rng

from course_utils.checks.draws import normal, padded, sizes
from course_utils.checks.engine import Exercise, Finding, Mistake, Part, Variant, numeric_gradient
from course_utils.questions import find
from course_utils.questions.asking import (
    Inputs,
    Outputs,
)
from course_utils.questions.lesson03 import GRU_WEIGHTS, MODEL, SPECIAL

INF = float("inf")


def _special(rng: Generator, vocabulary: int) -> dict[str, int]:
    """Three different word numbers for <bos>, <eos> and <pad>, so that nobody can count on 1, 2, 0."""
    return dict(zip(SPECIAL, rng.choice(vocabulary, 3, replace=False).tolist(), strict=True))


# --- 03.1 the shift -----------------------------------------------------------------------------------------


def _shift_reference(inputs: Inputs) -> Outputs:
    target, (bos, eos, pad) = inputs["target"], (inputs[name] for name in SPECIAL)
    before = np.full((len(target), target.shape[1] + 1), pad)
    after = before.copy()
    for row, words in enumerate(target):
        words = words[words != pad]
        before[row, : len(words) + 1] = [bos, *words]
        after[row, : len(words) + 1] = [*words, eos]
    return {"target_in": before.astype(np.float64), "target_out": after.astype(np.float64)}


def _padded_words(rng: Generator, lengths: Sequence[int], width: int, vocabulary: int) -> Inputs:
    special = _special(rng, vocabulary)
    words = np.setdiff1d(np.arange(vocabulary), list(special.values()))
    target = np.full((len(lengths), width), special["pad"])
    for row, length in enumerate(lengths):
        target[row, :length] = rng.choice(words, length)
    return {"target": target, **special}


def _draw_shift(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 31])
    batch, width = sizes(rng, 2, 4)
    lengths = rng.integers(1, width, batch)
    lengths[-1] = width
    return [
        _padded_words(rng, [2, 3], 3, 7),
        _padded_words(rng, [3], 3, 7),
        _padded_words(rng, [1, 0, 2], 3, 8),  # a sentence without words still begins and ends
        _padded_words(rng, [2, 1], 4, 8),  # no row fills the batch
        _padded_words(rng, lengths.tolist(), width, 12),
    ]


def _column(target: torch.Tensor, word: int) -> torch.Tensor:
    return target.new_full((len(target), 1), word)


def _shift(target, bos, eos, pad):
    """What most mistakes below start from."""
    lengths = (target != pad).sum(1, keepdim=True)
    target_out = torch.cat([target, _column(target, pad)], 1).scatter(1, lengths, eos)
    return torch.cat([_column(target, bos), target], 1), target_out


def _whole(target, bos, eos, pad):
    """(batch, target + 2): <bos>, the words, <eos>, padding."""
    return torch.cat([_column(target, bos), _shift(target, bos, eos, pad)[1]], 1)


def _not_shifted(target, bos, eos, pad):
    _, target_out = _shift(target, bos, eos, pad)
    return target_out, target_out.clone()


def _shifted_twice(target, bos, eos, pad):
    target_in, target_out = _shift(target, bos, eos, pad)
    return target_in, torch.cat([target_out[:, 1:], _column(target, pad)], 1)


def _one_step_too_far(target, bos, eos, pad):
    whole = _whole(target, bos, eos, pad)
    return whole, torch.cat([whole[:, 1:], _column(target, pad)], 1)


def _end_after_padding(target, bos, eos, pad):
    return _shift(target, bos, eos, pad)[0], torch.cat([target, _column(target, eos)], 1)


def _without_end(target, bos, eos, pad):
    return _shift(target, bos, eos, pad)[0], torch.cat([target, _column(target, pad)], 1)


def _end_over_last_word(target, bos, eos, pad):
    target_in, _ = _shift(target, bos, eos, pad)
    lengths = (target != pad).sum(1, keepdim=True)
    padding = torch.cat([target, _column(target, pad)], 1)
    return target_in, padding.scatter(1, (lengths - 1).clamp(min=0), eos)


def _begins_with_end(target, bos, eos, pad):
    return _shift(target, eos, eos, pad)


def _begins_with_padding(target, bos, eos, pad):
    return _shift(target, pad, eos, pad)[0], _shift(target, bos, eos, pad)[1]


def _usual_numbers(target, bos, eos, pad):
    return _shift(target, 1, 2, 0)


def _length_kept(target, bos, eos, pad):
    target_in, target_out = _shift(target, bos, eos, pad)
    return target_in[:, :-1], target_out[:, :-1]


def _target_written(target, bos, eos, pad):
    target_in, target_out = _shift(target, bos, eos, pad)
    target[:, 1:] = target[:, :-1].clone()
    target[:, 0] = bos
    return target_in, target_out


SHIFT_MISTAKES = (
    Mistake(
        "not shifted",
        _not_shifted,
        "The decoder reads the very words that it should predict. It learns to copy them, and nothing else.",
        "one step between the two: at each place, target_in is the word before the one in target_out.",
        ("s2s-05",),
    ),
    Mistake(
        "shifted twice",
        _shifted_twice,
        "target_out runs two words ahead of target_in: the first word is never asked for.",
        "how often you shift: target_in starts one word earlier than target_out, not two.",
        ("s2s-05",),
    ),
    Mistake(
        "one step too far",
        _one_step_too_far,
        "Your decoder reads <eos> and has to predict what comes after the end, one step too many.",
        "the last column: the longest sentence needs its words and one step more, not two.",
        ("s2s-04",),
    ),
    Mistake(
        "<eos> after the padding",
        _end_after_padding,
        "In short rows, <eos> stands behind the padding. The end comes right after a row's own last word.",
        "each row's own number of words: (target != pad).sum(dim=1).",
    ),
    Mistake(
        "no <eos>",
        _without_end,
        "target_out never asks for <eos>, so the model could not learn to stop.",
        "what the decoder has to predict after the last word.",
    ),
    Mistake(
        "<eos> over the last word",
        _end_over_last_word,
        "Your <eos> overwrites the last word of the sentence.",
        "the place of <eos>: with n words, counted from 0, it is n, not n - 1.",
    ),
    Mistake(
        "starts with <eos>",
        _begins_with_end,
        "Your decoder starts from <eos>. Some models do that; here <bos> is what it reads first.",
        "the first column of target_in.",
    ),
    Mistake(
        "starts with padding",
        _begins_with_padding,
        "Your decoder starts from <pad>. <bos> is what it reads first.",
        "the first column of target_in.",
    ),
    Mistake(
        "in and out swapped",
        lambda *given: _shift(*given)[::-1],
        "You return target_out first. What the decoder reads comes first, what it has to predict second.",
        "the order of the two results, and which of them starts with <bos>.",
    ),
    Mistake(
        "numbers of the special words written in",
        _usual_numbers,
        "You take 1, 2 and 0 for <bos>, <eos> and <pad>. Here they are whatever the arguments say.",
        "the arguments bos, eos and pad.",
    ),
    Mistake(
        "last column cut off",
        _length_kept,
        "Both results are as wide as the target. The longest sentence loses its last word or its <eos>.",
        "the width: n words and one more, for <bos> on one side and <eos> on the other.",
    ),
    Mistake(
        "writes into the target",
        _target_written,
        "You write into the target that you were given. The caller still needs it.",
        "assignments to target[...]: make new tensors instead.",
    ),
)


def _shift_by_slices(target, bos, eos, pad):
    """The common idiom; in short rows <eos> enters the decoder, where nothing is asked of it."""
    whole = _whole(target, bos, eos, pad)
    return whole[:, :-1], whole[:, 1:]


def _shift_by_rows(target, bos, eos, pad):
    rows = [[word for word in row if word != pad] for row in target.tolist()]
    width = target.shape[1] + 1
    fill = [[pad] * (width - 1 - len(row)) for row in rows]
    target_in = [[bos, *row, *rest] for row, rest in zip(rows, fill, strict=True)]
    target_out = [[*row, eos, *rest] for row, rest in zip(rows, fill, strict=True)]
    return torch.tensor(target_in), torch.tensor(target_out)


def _shift_by_where(target, bos, eos, pad):
    longer = F.pad(target, (0, 1), value=pad)
    first = (longer == pad).int().argmax(1, keepdim=True)
    place = torch.arange(longer.shape[1])
    return F.pad(target, (1, 0), value=bos), torch.where(place == first, eos, longer)


SHIFT_VARIANTS = (
    Variant("slices of the whole, <eos> is read in short rows", _shift_by_slices, ("s2s-08",)),
    Variant("row by row, in lists", _shift_by_rows),
    Variant("the first padding becomes <eos>", _shift_by_where),
)

SHIFT_TARGETS = Exercise(
    question=find("03.1"),
    title="shift the target",
    minutes=10,
    difficulty=1,
    reference=_shift_reference,
    axes={"target_in": "batch, target + 1", "target_out": "batch, target + 1"},
    parts=(
        Part(
            "what the decoder reads, and what it has to predict",
            1,
            _draw_shift,
            ("target_in", "target_out"),
            "one short row, word by word: what has been read when this word is predicted?",
        ),
    ),
    mistakes=SHIFT_MISTAKES,
    variants=SHIFT_VARIANTS,
    forbidden=("course_utils.corpus",),
)


# --- 03.2 the loss ------------------------------------------------------------------------------------------


def _losses(logits: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Float64: -log p of each target word, (batch, target)."""
    logits = logits.astype(np.float64)
    top = logits.max(-1, keepdims=True)
    total = np.log(np.exp(logits - top).sum(-1)) + top[..., 0]
    return total - np.take_along_axis(logits, target[..., None], -1)[..., 0]


def _loss_reference(inputs: Inputs) -> Outputs:
    def mean(given: Inputs) -> np.ndarray:
        return _losses(given["logits"], given["target"])[given["mask"]].mean()

    expected = {"loss": np.array(mean(inputs))}
    if "upstream" in inputs:
        expected["gradient of logits"] = numeric_gradient(mean, inputs, "logits")
    return expected


def _loss_inputs(rng: Generator, batch: int, target: int, vocabulary: int, scale: float = 1.0) -> Inputs:
    """Padding has numbers of real words, and real words may have the number 0: only the mask tells."""
    mask = padded(rng, batch, target)
    numbers = rng.integers(0, vocabulary, (batch, target))
    numbers[0, 0], numbers[0, -1] = 0, 1
    return {
        "logits": (scale * normal(rng, batch, target, vocabulary)).astype("float32"),
        "target": numbers,
        "mask": mask,
    }


def _draw_loss(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 32])
    tiny = {
        "logits": normal(rng, 1, 3, 3).round(1),
        "target": np.array([[0, 2, 1]]),
        "mask": np.array([[True, True, False]]),
    }
    batch, target, vocabulary = sizes(rng, 3)
    square = int(rng.integers(3, 6))  # as many words as places: a softmax along the wrong axis does not raise
    return [
        tiny,
        _loss_inputs(rng, 2, 3, 4),
        _loss_inputs(rng, batch, target, vocabulary),
        _loss_inputs(rng, 3, square, square),
    ]


def _draw_loss_edges(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 33])
    upstream = {"upstream": np.array(rng.uniform(0.5, 2), "float32")}
    return [
        _loss_inputs(rng, 1, 3, 2) | upstream,
        _loss_inputs(rng, 3, 4, 5) | upstream,
        _loss_inputs(rng, 2, 4, 3, scale=100.0),
        _loss_inputs(rng, 4, 3, 6, scale=300.0),
    ]


def _padding_costs_nothing(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    gradient = outputs.get("gradient of logits")
    if gradient is not None and (abs(gradient[~inputs["mask"]]) > 1e-7).any():
        return Finding(
            "The gradient of the logits is not 0 at padding: the model is taught something there.",
            "which places enter the sum.",
            output="gradient of logits",
        )
    return None


def _token_losses(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """(batch, target)"""
    return F.cross_entropy(logits.mT, target, reduction="none")


def _loss(logits, target, mask):
    return _token_losses(logits, target)[mask].mean()


def _mean_over_all(logits, target, mask):
    return (_token_losses(logits, target) * mask).mean()


def _mean_of_row_means(logits, target, mask):
    rows = (_token_losses(logits, target) * mask).sum(1) / mask.sum(1)
    return rows.mean()


def _per_sentence(logits, target, mask):
    return (_token_losses(logits, target) * mask).sum() / len(target)


def _double_softmax(logits, target, mask):
    return _loss(logits.softmax(-1), target, mask)


def _nll_of_probabilities(logits, target, mask):
    return F.nll_loss(logits.softmax(-1)[mask], target[mask])


def _nll_of_logits(logits, target, mask):
    return F.nll_loss(logits[mask], target[mask])


def _log_of_softmax(logits, target, mask):
    return F.nll_loss(torch.log(logits.softmax(-1))[mask], target[mask])


def _log_with_epsilon(logits, target, mask):
    return F.nll_loss(torch.log(logits.softmax(-1) + 1e-9)[mask], target[mask])


def _viewed(logits, target, mask):
    batch, length, vocabulary = logits.shape
    return F.cross_entropy(logits.reshape(batch, vocabulary, length), target, reduction="none")[mask].mean()


def _number_0_ignored(logits, target, mask):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=0)


def _shifted_once_more(logits, target, mask):
    if target.shape[1] < 2 or not mask[:, 1:].any():
        return logits.sum() * 0
    return _loss(logits[:, :-1], target[:, 1:], mask[:, 1:])


def _softmax_over_places(logits, target, mask):
    scores = logits.log_softmax(1).gather(2, target[..., None]).squeeze(2)
    return -scores[mask].mean()


LOSS_MISTAKES = (
    Mistake(
        "padding counted",
        lambda logits, target, mask: _token_losses(logits, target).mean(),
        "Padding is counted as if it were words: the loss depends on how much of it a batch needs.",
        "where the mask enters.",
        ("s2s-09",),
    ),
    Mistake(
        "masked, then divided by all places",
        _mean_over_all,
        "You zero the loss at padding, and then divide by all places, padding included.",
        "the divisor: the number of real words, mask.sum().",
        ("s2s-09",),
    ),
    Mistake(
        "mean of the sentences' means",
        _mean_of_row_means,
        "You average each sentence and then the averages: a word of a short sentence weighs more.",
        "where you divide: sum over all real words of the batch, and divide once.",
        ("s2s-10",),
    ),
    Mistake(
        "sum instead of mean",
        lambda logits, target, mask: _token_losses(logits, target)[mask].sum(),
        "You return the sum. Wanted is the mean over the real words.",
        "the division.",
    ),
    Mistake(
        "divided by the number of sentences",
        _per_sentence,
        "You divide by the number of sentences, so long sentences have a larger loss. Divide by the words.",
        "the divisor.",
    ),
    Mistake(
        "softmax twice",
        _double_softmax,
        "You apply a softmax before cross_entropy, which applies its own: the loss has a floor far above 0.",
        "what cross_entropy wants: the logits as they are.",
        ("s2s-12",),
    ),
    Mistake(
        "nll_loss of probabilities",
        _nll_of_probabilities,
        "You give probabilities to nll_loss, which wants their logarithms: your loss is negative.",
        "log_softmax before nll_loss, or cross_entropy of the logits.",
        ("s2s-12",),
    ),
    Mistake(
        "nll_loss of logits",
        _nll_of_logits,
        "You give the logits to nll_loss as they are. It wants logarithms of probabilities.",
        "log_softmax before nll_loss, or cross_entropy of the logits.",
        ("s2s-12",),
    ),
    Mistake(
        "log of a softmax",
        _log_of_softmax,
        "You take the logarithm of a softmax. A probability too small for float32 is 0 there, and its log "
        "is infinite.",
        "log_softmax, which never leaves the logarithms (or cross_entropy, which uses it).",
    ),
    Mistake(
        "log of a softmax and an epsilon",
        _log_with_epsilon,
        "You add an epsilon inside the logarithm. It caps the loss, and what is capped learns nothing.",
        "log_softmax, which needs no epsilon (or cross_entropy, which uses it).",
    ),
    Mistake(
        "reshape instead of a transpose",
        _viewed,
        "You reshape the logits to (batch, vocabulary, target). That deals the numbers out anew.",
        "logits.transpose(1, 2), or flatten(0, 1) for logits and target alike.",
    ),
    Mistake(
        "softmax over the places",
        _softmax_over_places,
        "Your softmax runs over the places of the sentence. It belongs over the vocabulary.",
        "the dim of the softmax: logits are (batch, target, vocabulary).",
    ),
    Mistake(
        "word number 0 left out",
        _number_0_ignored,
        "You leave out the places where the target is 0. Here 0 is a word like any other; the mask decides.",
        "ignore_index: where the mask is False, and nowhere else.",
    ),
    Mistake(
        "mask inverted",
        lambda logits, target, mask: _loss(logits, target, ~mask) if (~mask).any() else logits.sum() * 0,
        "You average over the padding, and leave the words out.",
        "the mask's meaning: True marks a real word.",
    ),
    Mistake(
        "shifted once more",
        _shifted_once_more,
        "You compare each row of logits with the word after its own. The two are aligned already.",
        "slices such as logits[:, :-1] and target[:, 1:]: the shift is done, in what the decoder reads.",
        ("s2s-05",),
    ),
    Mistake(
        "perplexity",
        lambda *given: _loss(*given).exp(),
        "You return the perplexity, which is exp(loss).",
        "the last line.",
    ),
    Mistake(
        "in bits",
        lambda *given: _loss(*given) / math.log(2),
        "Your loss is in bits (log base 2). Wanted are nats, the natural logarithm.",
        "the logarithm.",
    ),
    Mistake(
        "gradient cut",
        lambda logits, target, mask: _loss(logits.detach(), target, mask),
        "No gradient reaches the logits, so nothing could learn from this loss.",
        ".detach(), .data, .item(), torch.tensor(...) and torch.no_grad(): each of them cuts the way back.",
    ),
)


def _loss_ignoring(logits, target, mask):
    return F.cross_entropy(logits.flatten(0, 1), target.masked_fill(~mask, -100).flatten())


def _loss_of_log_softmax(logits, target, mask):
    """log_softmax before cross_entropy: superfluous and right, since it changes nothing the second time."""
    return F.cross_entropy(logits.log_softmax(-1)[mask], target[mask])


def _loss_by_hand(logits, target, mask):
    given = logits.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return ((logits.logsumexp(-1) - given) * mask).sum() / mask.sum()


def _loss_in_loops(logits, target, mask):
    rows, places = mask.nonzero(as_tuple=True)
    each = [-logits[b, t].log_softmax(0)[target[b, t]] for b, t in zip(rows, places, strict=True)]
    return torch.stack(each).mean()


LOSS_VARIANTS = (
    Variant("ignore_index", _loss_ignoring),
    Variant("log_softmax before cross_entropy", _loss_of_log_softmax, ("s2s-13",)),
    Variant("logsumexp by hand", _loss_by_hand),
    Variant("word by word", _loss_in_loops),
    Variant("times the mask, divided by its sum", lambda a, t, m: (_token_losses(a, t) * m).sum() / m.sum()),
)

PADDED_LOSS = Exercise(
    question=find("03.2"),
    title="loss without padding",
    minutes=15,
    difficulty=2,
    reference=_loss_reference,
    axes={"loss": ""},
    parts=(
        Part(
            "the mean over the real words",
            1,
            _draw_loss,
            ("loss",),
            "the loss of each word, printed beside the mask.",
        ),
        Part(
            "gradients, and logits of any size",
            1,
            _draw_loss_edges,
            ("loss", "gradient of logits"),
            "what your function does with logits of 300 and -300.",
            (_padding_costs_nothing,),
        ),
    ),
    mistakes=LOSS_MISTAKES,
    variants=LOSS_VARIANTS,
    forbidden=("course_utils.training",),
)


# --- 03.3 the encoder's state -------------------------------------------------------------------------------


def _states(inputs: Inputs) -> np.ndarray:
    """Float64: the state after the last real word of each row, (batch, hidden)."""
    weight_ih, weight_hh, bias_ih, bias_hh = (inputs[name].astype(np.float64) for name in GRU_WEIGHTS)
    h = np.zeros((len(inputs["mask"]), weight_hh.shape[1]))
    for x, real in zip(inputs["embedded"].swapaxes(0, 1), inputs["mask"].T, strict=True):
        r_x, z_x, n_x = np.split(x.astype(np.float64) @ weight_ih.T + bias_ih, 3, axis=-1)
        r_h, z_h, n_h = np.split(h @ weight_hh.T + bias_hh, 3, axis=-1)
        reset, update = (1 / (1 + np.exp(-gate)) for gate in (r_x + r_h, z_x + z_h))
        stepped = (1 - update) * np.tanh(n_x + reset * n_h) + update * h
        h = np.where(real[:, None], stepped, h)
    return h


def _state_reference(inputs: Inputs) -> Outputs:
    expected = {"state": _states(inputs)}
    if "upstream" in inputs:
        expected["gradient of embedded"] = numeric_gradient(_states, inputs, "embedded")
    return expected


def _state_inputs(rng: Generator, mask: np.ndarray, width: int, hidden: int) -> Inputs:
    """Padding is embedded as some word would be, and the biases are not 0, so that no step is idle."""
    return {
        "embedded": normal(rng, *mask.shape, width),
        "mask": mask,
        "weight_ih": normal(rng, 3 * hidden, width),
        "weight_hh": normal(rng, 3 * hidden, hidden),
        "bias_ih": normal(rng, 3 * hidden),
        "bias_hh": normal(rng, 3 * hidden),
    }


def _mask_of(lengths: Sequence[int], width: int) -> np.ndarray:
    return np.arange(width) < np.array(lengths)[:, None]


def _draw_state(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 34])
    batch, source, width, hidden = sizes(rng, 4, 3)
    square = int(rng.integers(3, 6))  # as many rows as words: swapped axes do not show in a shape
    return [
        _state_inputs(rng, _mask_of([2, 3], 3), 1, 2),
        _state_inputs(rng, padded(rng, batch, source), width, hidden),
        _state_inputs(rng, _mask_of([1, square, 2, *range(3, square)], square), 2, 3),  # not sorted
    ]


def _draw_state_edges(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 35])
    twins = _state_inputs(rng, _mask_of([2, 2, 4], 4), 2, 3)
    twins["embedded"][1, :2] = twins["embedded"][0, :2]  # one sentence, with other things behind its end
    gradient = _state_inputs(rng, _mask_of([3, 1, 4, 2], 4), 2, 3) | {"upstream": normal(rng, 4, 3)}
    return [
        _state_inputs(rng, _mask_of([2], 4), 1, 2),
        _state_inputs(rng, _mask_of([3], 5), 2, 4),
        twins,
        _state_inputs(rng, _mask_of([2, 3], 6), 3, 2),  # no row fills the batch
        gradient,
    ]


def _padding_changes_no_state(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    """Where the first two rows differ behind their end alone, they have one state."""
    real = [np.where(m[:, None], x, 0) for x, m in zip(inputs["embedded"], inputs["mask"], strict=True)]
    twins = len(real) > 1 and (real[0] == real[1]).all() and (inputs["mask"][0] == inputs["mask"][1]).all()
    if twins and (abs(outputs["state"][0] - outputs["state"][1]) > 1e-4).any():
        return Finding(
            "The first two rows hold the same sentence with different padding, and yet their states differ.",
            "how many steps the GRU takes in each row.",
            output="state",
        )
    return None


def _lengths(mask: torch.Tensor) -> torch.Tensor:
    return mask.sum(1)


def _picked(states: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """states (batch, source, hidden) at one place a row, kept within the sentence: (batch, hidden)."""
    return states[torch.arange(len(states)), place.clamp(0, states.shape[1] - 1)]


def _state_after(shift: int) -> Callable:
    return lambda x, mask, gru: _picked(gru(x)[0], _lengths(mask) - 1 + shift)


_last_state = _state_after(0)


def _rows_left_sorted(x, mask, gru):
    lengths, order = _lengths(mask).sort(descending=True, stable=True)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x[order], lengths, batch_first=True)
    return gru(packed)[1][0]


def _squeezed(x, mask, gru):
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        x, _lengths(mask), batch_first=True, enforce_sorted=False
    )
    return gru(packed)[1].squeeze()


def _axes_swapped(x, mask, gru):
    states = gru(x.transpose(0, 1))[0]  # (source, batch, hidden), read across the batch
    return states[_lengths(mask) - 1, torch.arange(len(x))]


def _all_words_averaged(x, mask, gru):
    return (gru(x)[0] * mask[..., None]).sum(1) / _lengths(mask)[:, None]


def _largest_of_each(x, mask, gru):
    return gru(x)[0].masked_fill(~mask[..., None], -INF).max(1).values


STATE_MISTAKES = (
    Mistake(
        "state after the padding",
        lambda x, mask, gru: gru(x)[0][:, -1],
        "You return the state after the padding. In short rows the GRU has read on, over what is no word.",
        "each row's own last word: its place is mask.sum(dim=1) - 1.",
        ("s2s-03",),
    ),
    Mistake(
        "padding zeroed and read",
        lambda x, mask, gru: gru(x * mask[..., None])[0][:, -1],
        "You put zeros in the place of the padding and let the GRU read them. A step on zeros is a step too.",
        "which state you take, instead of what the GRU reads.",
        ("s2s-03",),
    ),
    Mistake(
        "states of padding zeroed",
        lambda x, mask, gru: (gru(x)[0] * mask[..., None])[:, -1],
        "You zero the states at padding and take the last column: short rows come out as zeros.",
        "each row's own last word: its place is mask.sum(dim=1) - 1.",
    ),
    Mistake(
        "one word too early",
        _state_after(-1),
        "You return the state before the last word.",
        "the place, counted from 0: with n words, the last one is at n - 1.",
    ),
    Mistake(
        "one word too late",
        _state_after(1),
        "You return the state one step behind the last word.",
        "the place, counted from 0: with n words, the last one is at n - 1.",
    ),
    Mistake(
        "one length for all rows",
        lambda x, mask, gru: gru(x)[0][:, int(mask[0].sum()) - 1],
        "You take all rows at the length of the first.",
        "the index: each row has its own length.",
    ),
    Mistake(
        "rows left sorted",
        _rows_left_sorted,
        "You sort the rows by length for packing, and return the states in that order.",
        "the way back: the inverse of the order, or enforce_sorted=False, which does both.",
    ),
    Mistake(
        "batch axis squeezed away",
        _squeezed,
        "squeeze() without a dim takes out every axis of size 1, the batch too when it has one row.",
        "squeeze(0), or an index [0], for the axis of layers alone.",
        ("s2s-16",),
    ),
    Mistake(
        "batch and words swapped",
        _axes_swapped,
        "You transpose the input, but this GRU is batch first: it reads across the rows of the batch.",
        "batch_first=True: embedded goes in as it is, (batch, source, width).",
    ),
    Mistake(
        "reads from the end",
        lambda x, mask, gru: gru(x.flip(1))[0][:, -1],
        "You turn the rows around. Here the sentence is read from its first word to its last.",
        "flip: it brings the padding to the front, too.",
    ),
    Mistake(
        "mean of the states",
        _all_words_averaged,
        "You return the mean over the words. Wanted is the state after the last one.",
        "which state you take.",
    ),
    Mistake(
        "largest of the states",
        _largest_of_each,
        "You return the largest value over the words. Wanted is the state after the last one.",
        "which state you take.",
    ),
    Mistake(
        "padding counted instead of words",
        lambda x, mask, gru: _picked(gru(x)[0], (~mask).sum(1) - 1),
        "Your lengths count the padding.",
        "the mask's meaning: True marks a real word.",
    ),
    Mistake(
        "gradient cut",
        lambda x, mask, gru: _last_state(x.detach(), mask, gru).detach(),
        "No gradient reaches the embeddings, so the encoder could not learn.",
        ".detach(), .data and torch.no_grad(): each of them cuts the way back.",
    ),
)


def _packed(x, mask, gru):
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        x, _lengths(mask), batch_first=True, enforce_sorted=False
    )
    return gru(packed)[1].squeeze(0)


def _packed_by_hand(x, mask, gru):
    lengths, order = _lengths(mask).sort(descending=True)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x[order], lengths, batch_first=True)
    return gru(packed)[1][-1][order.argsort()]


def _frozen(x, mask, gru):
    """A loop that keeps the old state where there is no word."""
    h = x.new_zeros(1, len(x), gru.hidden_size)
    for t in range(x.shape[1]):
        _, stepped = gru(x[:, t : t + 1], h.contiguous())
        h = torch.where(mask[:, t, None], stepped, h)
    return h[0]


def _each_alone(x, mask, gru):
    return torch.stack([gru(row[keep])[0][-1] for row, keep in zip(x, mask, strict=True)])


def _last_place_as_weights(x, mask, gru):
    last = mask & ~F.pad(mask[:, 1:], (0, 1))
    return torch.einsum("bs,bsh->bh", last.to(x.dtype), gru(x)[0])


STATE_VARIANTS = (
    Variant("packed, any order", _packed),
    Variant("packed, sorted and put back", _packed_by_hand),
    Variant("a loop that freezes finished rows", _frozen),
    Variant("each row alone", _each_alone),
    Variant("a sum with the last place as weights", _last_place_as_weights),
    Variant("the state at the last word", _last_state),
)

ENCODER_STATE = Exercise(
    question=find("03.3"),
    title="the state after the last word",
    minutes=15,
    difficulty=2,
    reference=_state_reference,
    axes={"state": "batch, hidden"},
    parts=(
        Part(
            "one state for each sentence",
            1,
            _draw_state,
            ("state",),
            "the states of one short row: which of them has read its last word, and nothing more?",
        ),
        Part(
            "padding can change nothing, a batch of one, gradients",
            1,
            _draw_state_edges,
            ("state", "gradient of embedded"),
            "a sentence alone and the same one with padding: they must have one state.",
            (_padding_changes_no_state,),
        ),
    ),
    mistakes=STATE_MISTAKES,
    variants=STATE_VARIANTS,
    forbidden=("course_utils.models",),
)


# --- a small language model, out of arrays ------------------------------------------------------------------


def _model(rng: Generator, vocabulary: int, hidden: int, *, ends: float = 0.0) -> Inputs:
    """A recurrent model of `vocabulary` words whose every choice depends on its state; `ends` moves <eos>."""
    special = _special(rng, vocabulary)
    bias = normal(rng, vocabulary)
    bias[special["eos"]] += ends
    return {
        **special,
        "embedding": 1.5 * normal(rng, vocabulary, hidden),
        "recurrent": normal(rng, hidden, hidden),
        "output": 1.5 * normal(rng, vocabulary, hidden),
        "bias": bias,
    }


def _read(inputs: Inputs, tokens: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Float64: log-probabilities (rows, vocabulary) of the next word, and the new state (rows, hidden)."""
    state = np.tanh(state @ inputs["recurrent"].T + inputs["embedding"][tokens])
    logits = state @ inputs["output"].T + inputs["bias"]
    logits[:, [inputs["pad"], inputs["bos"]]] = -INF
    return logits - np.log(np.exp(logits).sum(1, keepdims=True)), state


def _in_float64(inputs: Inputs) -> Inputs:
    return inputs | {name: inputs[name].astype(np.float64) for name in (*MODEL, "state")}


# --- 03.4 greedy decoding -----------------------------------------------------------------------------------


def _greedy(inputs: Inputs) -> tuple[np.ndarray, float]:
    """The tokens (batch, longest), and the smallest gap between a best word and the second best."""
    inputs = _in_float64(inputs)
    state, batch = inputs["state"], len(inputs["state"])
    tokens, open, gap = np.full(batch, inputs["bos"]), np.ones(batch, bool), INF
    columns = []
    while open.any() and len(columns) < inputs["max_length"]:
        scores, state = _read(inputs, tokens, state)
        tokens = np.where(open, scores.argmax(1), inputs["pad"])
        second, best = np.sort(scores, axis=1)[:, -2:].T
        gap = min(gap, (best - second)[open].min())
        columns.append(tokens)
        open = open & (tokens != inputs["eos"])
    return np.stack(columns, axis=1), float(gap)


def _greedy_reference(inputs: Inputs) -> Outputs:
    return {"tokens": _greedy(inputs)[0].astype(np.float64)}


def _drawn(make: Callable[[], Inputs], wanted: Callable[[Inputs], bool]) -> Inputs:
    """The first case out of `make` that is as wanted."""
    return next(inputs for inputs in iter(make, None) if wanted(inputs))


@cache
def _draw_greedy(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 36])

    def case(batch: int, vocabulary: int, hidden: int, max_length: int) -> Callable[[], Inputs]:
        return lambda: {
            "max_length": max_length,
            "state": normal(rng, batch, hidden),
            **_model(rng, vocabulary, hidden),
        }

    def ends(inputs: Inputs, shortest: int, longest: int) -> bool:
        """Rows of different lengths, the last to end not the first, all before max_length."""
        tokens, gap = _greedy(inputs)
        lengths = (tokens != inputs["pad"]).sum(1)
        finished = (tokens == inputs["eos"]).any(1).all() and lengths.max() < inputs["max_length"] - 1
        apart = len(tokens) == 1 or len(set(lengths)) > 1
        varied = all(len(set(row[:length])) > 2 for row, length in zip(tokens, lengths, strict=True))
        in_range = shortest <= lengths.min() and longest >= lengths.max()
        return bool(finished and apart and varied and in_range and gap > 1e-3)

    return [
        _drawn(case(1, 6, 2, 6), lambda inputs: ends(inputs, 3, 4)),
        _drawn(case(2, 7, 2, 8), lambda inputs: ends(inputs, 3, 6)),
        _drawn(case(4, 9, 5, 10), lambda inputs: ends(inputs, 3, 8)),
    ]


@cache
def _draw_greedy_limits(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 37])

    def case(batch: int, vocabulary: int, hidden: int, max_length: int, ends: float) -> Callable[[], Inputs]:
        return lambda: {
            "max_length": max_length,
            "state": normal(rng, batch, hidden),
            **_model(rng, vocabulary, hidden, ends=ends),
        }

    def cut(inputs: Inputs) -> bool:
        """Some rows end in time, others do not."""
        tokens, gap = _greedy(inputs)
        ended = (tokens == inputs["eos"]).any(1)
        return bool(ended.any() and not ended.all() and (tokens[:, 1] != inputs["eos"]).all() and gap > 1e-3)

    def endless(inputs: Inputs) -> bool:
        tokens, gap = _greedy(inputs)
        return bool(len(set(tokens[0])) > 1 and gap > 1e-3)

    return [
        _drawn(case(1, 6, 3, 4, ends=-50.0), endless),
        _drawn(case(3, 8, 4, 6, ends=0.0), cut),
        _drawn(case(2, 7, 3, 1, ends=-50.0), lambda inputs: _greedy(inputs)[1] > 1e-3),
    ]


def _no_needless_steps(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    if outputs["needless steps"]:
        return Finding(
            f"You go on for {outputs['needless steps'] + 1} steps after every row has ended.",
            "when the loop stops: as soon as all rows have written <eos>.",
            output="tokens",
        )
    return None


def _greedy_answer(
    step,
    state,
    bos,
    eos,
    pad,
    max_length,
    *,
    feed=lambda word, ended, start: word,
    fill=None,
    done=lambda ended: bool(ended.all()),
    carry=True,
    limit=lambda longest: longest,
    shape=lambda word: word,
):
    """What most mistakes below start from: right as it stands."""
    token = start = torch.full((len(state),), bos)
    ended = torch.zeros(len(state), dtype=torch.bool)
    columns = []
    while len(columns) < limit(max_length):
        scores, stepped = step(token, state)
        state = stepped if carry else state
        word = shape(scores.argmax(-1))
        word = torch.where(ended, pad if fill is None else fill(word, eos), word)
        columns.append(word)
        ended = ended | (word == eos)
        token = feed(word, ended, start)
        if done(ended):
            break
    return torch.stack(columns, dim=1)


def _greedy_with(**options) -> Callable:
    return lambda step, state, bos, eos, pad, max_length: _greedy_answer(
        step, state, bos, eos, pad, max_length, **options
    )


def _waits_for_all_at_once(step, state, bos, eos, pad, max_length):
    token, columns = torch.full((len(state),), bos), []
    while len(columns) < max_length:
        scores, state = step(token, state)
        token = scores.argmax(-1)
        columns.append(token)
        if (token == eos).all():
            break
    return torch.stack(columns, dim=1)


def _end_dropped(step, state, bos, eos, pad, max_length):
    tokens = _greedy_answer(step, state, bos, eos, pad, max_length)
    return tokens.masked_fill(tokens == eos, pad)


def _start_included(step, state, bos, eos, pad, max_length):
    tokens = _greedy_answer(step, state, bos, eos, pad, max_length)
    return torch.cat([torch.full((len(state), 1), bos), tokens], 1)


def _calls_on(step, state, bos, eos, pad, max_length):
    """All steps, and what is too much is cut off."""
    tokens = _greedy_answer(step, state, bos, eos, pad, max_length, done=lambda ended: False)
    return tokens[:, : int((tokens != pad).sum(1).max())]


GREEDY_MISTAKES = (
    Mistake(
        "stops with the first row",
        _greedy_with(done=lambda ended: bool(ended.any())),
        "You stop when one row has ended. The others are cut off in mid-sentence.",
        "the condition of your loop: all rows, not any.",
    ),
    Mistake(
        "no memory of rows that have ended",
        _waits_for_all_at_once,
        "You stop when all rows write <eos> at the same step, and let those that have ended write on.",
        "a mask of the rows that have ended: it keeps what was true at an earlier step.",
    ),
    Mistake(
        "words after the end",
        _greedy_with(fill=lambda word, eos: word),
        "After its <eos>, a row of yours goes on with words. From there on it is padding.",
        "rows that have ended: keep a mask of them, and write <pad> there.",
    ),
    Mistake(
        "<eos> instead of padding",
        _greedy_with(fill=lambda word, eos: torch.full_like(word, eos)),
        "You fill up ended rows with <eos>. One <eos> ends a row, and <pad> follows.",
        "what you write into rows that have ended.",
    ),
    Mistake(
        "<eos> dropped",
        _end_dropped,
        "Your rows lack their <eos>. It belongs to the tokens: it says that the sentence is complete.",
        "when a row counts as ended: after its <eos> has been written.",
    ),
    Mistake(
        "<bos> included",
        _start_included,
        "Your tokens begin with <bos>, which the decoder reads and never writes.",
        "what you collect: the words that came out.",
    ),
    Mistake(
        "state not handed on",
        _greedy_with(carry=False),
        "Every step of yours starts from the state before the first word.",
        "the state that step returns: the next step wants it.",
    ),
    Mistake(
        "<bos> read at every step",
        _greedy_with(feed=lambda word, ended, start: start),
        "Every step of yours reads <bos>. From the second step on, the decoder reads the word it wrote last.",
        "the token that you hand to step.",
    ),
    Mistake(
        "one word too many",
        _greedy_with(limit=lambda longest: longest + 1),
        "You take one step more than max_length.",
        "the range of your loop: the first word counts too, and so does <eos>.",
        ("s2s-04",),
    ),
    Mistake(
        "one word too few",
        _greedy_with(limit=lambda longest: max(longest - 1, 1)),
        "You stop one word short of max_length.",
        "the range of your loop: <bos> is not one of the max_length words.",
    ),
    Mistake(
        "no upper bound",
        _greedy_with(limit=lambda longest: INF),
        "Your loop waits for <eos>, and this model never writes one.",
        "max_length: it has to end the loop as well.",
        ("dec-02",),
    ),
    Mistake(
        "always max_length columns",
        _greedy_with(done=lambda ended: False),
        "You go on to max_length when every row has ended long ago.",
        "when the loop stops: as soon as all rows have written <eos>.",
    ),
    Mistake(
        "calls on for nothing",
        _calls_on,
        "Your tokens are right, but you take all max_length steps and throw away what is too much.",
        "when the loop stops: as soon as all rows have written <eos>.",
    ),
    Mistake(
        "batch axis squeezed away",
        _greedy_with(feed=lambda word, ended, start: word.squeeze()),
        "squeeze() without a dim takes the batch axis out when the batch has one row.",
        "argmax(dim=-1), which gives (batch,): nothing is left to squeeze.",
        ("s2s-16",),
    ),
    Mistake(
        "best row for each word",
        _greedy_with(shape=lambda word: word.max().expand(len(word))),
        "All rows of yours get the same word.",
        "the dim of argmax: a row chooses among the words of the vocabulary.",
    ),
    Mistake(
        "rows and columns swapped",
        lambda *given: _greedy_answer(*given).T,
        "Your tokens are (words, batch). Wanted is one row a sentence.",
        "the dim of torch.stack.",
    ),
)


def _greedy_preallocated(step, state, bos, eos, pad, max_length):
    tokens = torch.full((len(state), max_length), pad)
    token, open = torch.full((len(state),), bos), torch.ones(len(state), dtype=torch.bool)
    for t in range(max_length):
        scores, state = step(token, state)
        token = scores.max(dim=1).indices
        tokens[open, t] = token[open]
        open &= token != eos
        if not open.any():
            return tokens[:, : t + 1]
    return tokens


def _greedy_row_by_row(step, state, bos, eos, pad, max_length):
    rows = []
    for row in state.split(1):
        rows.append([])
        token = torch.tensor([bos])
        while len(rows[-1]) < max_length and eos not in rows[-1]:
            scores, row = step(token, row)
            token = scores.argmax(-1)
            rows[-1].append(int(token))
    return torch.tensor([row + [pad] * (max(map(len, rows)) - len(row)) for row in rows])


def _greedy_open_rows_only(step, state, bos, eos, pad, max_length):
    """Ended rows leave the batch."""
    tokens = torch.full((len(state), max_length), pad)
    rows, token, t = torch.arange(len(state)), torch.full((len(state),), bos), 0
    while t < max_length and len(rows):
        scores, state = step(token, state)
        token = scores.topk(1).indices[:, 0]
        tokens[rows, t] = token
        t, going = t + 1, token != eos
        rows, token, state = rows[going], token[going], state[going]
    return tokens[:, :t]


GREEDY_VARIANTS = (
    Variant("written into a full table, then cut", _greedy_preallocated),
    Variant("row by row", _greedy_row_by_row),
    Variant("ended rows leave the batch", _greedy_open_rows_only),
    Variant("<eos> is fed to ended rows", _greedy_with(feed=lambda w, e, s: torch.where(e, s, w))),
    Variant("32-bit word numbers", lambda *given: _greedy_answer(*given).int()),
)

GREEDY_DECODE = Exercise(
    question=find("03.4"),
    title="greedy decoding of a batch",
    minutes=20,
    difficulty=2,
    reference=_greedy_reference,
    axes={"tokens": "batch, longest row"},
    parts=(
        Part(
            "rows that end at different steps",
            1,
            _draw_greedy,
            ("tokens",),
            "what each row has written, step by step, and which rows have ended.",
            (_no_needless_steps,),
        ),
        Part(
            "max_length, and a model that never ends",
            1,
            _draw_greedy_limits,
            ("tokens",),
            "how many words your loop writes when no <eos> comes.",
            (_no_needless_steps,),
        ),
    ),
    mistakes=GREEDY_MISTAKES,
    variants=GREEDY_VARIANTS,
    forbidden=("course_utils.decoding",),
)


# --- 03.5 beam search ---------------------------------------------------------------------------------------


def _search(
    inputs: Inputs,
    *,
    width: int = 0,
    places: str = "refilled",
    stop: str = "never",
    reorder: bool = True,
    open_too: bool = False,
) -> tuple[list[int], float, float]:
    """(tokens, score, gap) of a beam search in float64; the gap is the narrowest decision on the way.

    Beam searches differ in what a sentence that ends does to the places of the beam: they are "refilled",
    there are fewer ("fewer"), it stays in its place while it is among the best ("kept"), or ended sentences
    are collected beside `width` open ones ("beside"). And in when they stop: never before max_length or the
    last open beginning, when `width` sentences have ended ("full"), with the "first", or when none that is
    open can win any more ("hopeless"). With `open_too`, beginnings that are cut off compete at the end.
    """
    width, alpha, longest = width or inputs["width"], inputs["alpha"], inputs["max_length"]
    inputs = _in_float64(inputs)
    beams = [(0.0, [])]
    state, ended, gap = inputs["state"], [], INF
    for _ in range(longest):
        tokens = np.array([words[-1] if words else inputs["bos"] for _, words in beams])
        steps, state = _read(inputs, tokens, state)
        candidates = [
            (total + steps[parent, word], [*words, word], parent)
            for parent, (total, words) in enumerate(beams)
            for word in np.flatnonzero(steps[parent] > -INF).tolist()
        ]
        if places == "kept":
            candidates += [(total, words, -1) for total, words in ended]
        candidates.sort(key=lambda candidate: -candidate[0])
        room = width - len(ended) * (places == "fewer")
        if places == "beside":
            opened = [n for n, (_, words, _) in enumerate(candidates) if words[-1] != inputs["eos"]]
            room = opened[width - 1] + 1 if len(opened) >= width else len(candidates)
        if room < len(candidates):
            gap = min(gap, candidates[room - 1][0] - candidates[room][0])
        kept = candidates[:room]
        stopped = [(total, words) for total, words, _ in kept if words[-1] == inputs["eos"]]
        ended = stopped if places == "kept" else ended + stopped
        kept = [candidate for candidate in kept if candidate[1][-1] != inputs["eos"]]
        beams = [(total, words) for total, words, _ in kept]
        best = max((total / len(words) ** alpha for total, words in ended), default=-INF)
        enough = {"never": False, "full": len(ended) >= width, "first": bool(ended)}
        hopeless = stop == "hopeless" and beams and best >= beams[0][0] / longest**alpha
        if not beams or hopeless or enough.get(stop, False) or room <= 0:
            break
        parents = [parent for _, _, parent in kept] if reorder else [n % len(state) for n in range(len(kept))]
        state = state[parents]
    choice = ended + beams if open_too else ended or beams
    scores = sorted(((total / len(words) ** alpha, words) for total, words in choice), reverse=True)
    gap = min([gap, *(scores[0][0] - score for score, _ in scores[1:2])])
    return scores[0][1], scores[0][0], gap


def _beam_reference(inputs: Inputs) -> Outputs:
    tokens, score, _ = _search(inputs)
    return {"tokens": np.array(tokens, dtype=np.float64), "score": np.array(score)}


def _agreed(inputs: Inputs, tokens: list[int]) -> bool:
    """Do the usual kinds of beam search find this sentence, with no decision near a tie?"""
    kinds = [
        {"places": places, "stop": stop}
        for places in ("refilled", "fewer", "kept", "beside")
        for stop in ("never", "full", "hopeless")
    ]
    searches = (_search(inputs, **kind) for kind in kinds)
    return all(found == tokens and gap > 1e-3 for found, _, gap in searches)


def _other(inputs: Inputs, tokens: list[int], **options) -> bool:
    """Does a search with these options find another sentence?"""
    return _search(inputs, **options)[0] != tokens


def _ends(inputs: Inputs, tokens: list[int]) -> bool:
    return tokens[-1] == inputs["eos"] and 2 < len(tokens) < inputs["max_length"]


def _beats_greedy(inputs: Inputs, tokens: list[int]) -> bool:
    return _other(inputs, tokens, width=1) and _other(inputs, tokens, reorder=False)


def _longer_wins(inputs: Inputs, tokens: list[int]) -> bool:
    """Another sentence ends first, and another has the greatest probability."""
    return (
        _other(inputs, tokens, stop="first")
        and _other(inputs | {"alpha": 0.0}, tokens)
        and _other(inputs, tokens, reorder=False)
    )


def _cut_off_scores(inputs: Inputs, tokens: list[int]) -> bool:
    """A beginning that max_length cuts off would score better than the best sentence that ended."""
    return _other(inputs, tokens, open_too=True)


def _beam_case(
    rng: Generator,
    vocabulary: int,
    hidden: int,
    *wanted: Callable[[Inputs, list[int]], bool],
    ends: float = 0.0,
    **options,
) -> Inputs:
    def make() -> Inputs:
        return {**options, "state": normal(rng, 1, hidden), **_model(rng, vocabulary, hidden, ends=ends)}

    def fits(inputs: Inputs) -> bool:
        tokens = _search(inputs)[0]
        return all(holds(inputs, tokens) for holds in (*wanted, _agreed))

    return _drawn(make, fits)


@cache
def _draw_beam(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 38])
    return [
        _beam_case(rng, 6, 2, _ends, _beats_greedy, width=2, max_length=5, alpha=0.0),
        _beam_case(rng, 7, 3, _ends, _beats_greedy, width=3, max_length=7, alpha=0.0),
        _beam_case(rng, 9, 4, _ends, _beats_greedy, width=4, max_length=8, alpha=0.0),
    ]


@cache
def _draw_beam_lengths(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 39])
    return [
        _beam_case(rng, 6, 2, _ends, _longer_wins, width=2, max_length=6, alpha=1.0),
        _beam_case(rng, 5, 2, _ends, width=6, max_length=5, alpha=1.0),  # two words and <eos>, six places
        _beam_case(rng, 6, 3, _beats_greedy, ends=-50.0, width=3, max_length=4, alpha=1.0),
        _beam_case(rng, 8, 3, _ends, _longer_wins, width=3, max_length=6, alpha=0.7),
        _beam_case(rng, 7, 3, _ends, _cut_off_scores, width=3, max_length=5, alpha=1.0),
    ]


def _sentence_matches_score(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    """Read the tokens once more: their log-probability has to be the one that the score was made of."""
    tokens = outputs["tokens"]
    if tokens.ndim != 1 or not len(tokens) or not np.isin(tokens, np.arange(len(inputs["bias"]))).all():
        return None
    tokens, inputs = tokens.astype(int), _in_float64(inputs)
    state, total = inputs["state"], 0.0
    for before, word in zip([inputs["bos"], *tokens], tokens, strict=False):
        steps, state = _read(inputs, np.array([before]), state)
        total += steps[0, word]
    if not abs(total / len(tokens) ** inputs["alpha"] - outputs["score"]) < 1e-3:
        return Finding(
            "Your score is not the one of your tokens: the model gives this sentence the log-probability "
            f"{total:.4f}, which with {len(tokens)} tokens and alpha {inputs['alpha']:g} makes "
            f"{total / len(tokens) ** inputs['alpha']:.4f}.",
            "which total and which state belong to which beginning.",
            output="score",
        )
    return None


def _beam_answer(
    step,
    state,
    bos,
    eos,
    width,
    max_length,
    alpha,
    *,
    starts=1,
    strict=False,
    reorder=lambda state, parent: state[parent],
    normalise=lambda total, length, alpha: total / length**alpha,
    report=None,
    stop=lambda ended, width: False,
    choose=lambda ended, open: ended or open,
    parted=lambda index, vocabulary, width: (index // vocabulary, index % vocabulary),
    keep=lambda words, eos: words,
    goes_on=False,
    limit=lambda longest: longest,
    branching=True,
):
    """What most mistakes below start from: right as it stands. Ended sentences leave, places are refilled."""
    totals, words = torch.zeros(starts), [[] for _ in range(starts)]
    state, token, ended = state.expand(starts, -1), torch.full((starts,), bos), []
    length = 0
    while length < limit(max_length) and len(words):
        length += 1
        scores, state = step(token, state)
        candidates = totals[:, None] + scores
        if not branching and length > 1:  # each beginning goes on with its best word alone
            candidates = candidates.where(scores == scores.max(1, keepdim=True).values, -INF)
        flat = candidates.flatten()
        flat, index = flat.topk(width if strict else min(width, len(flat)))
        index, flat = index[flat > -INF], flat[flat > -INF]
        parent, word = parted(index, scores.shape[1], width)
        words = [[*words[p], w] for p, w in zip(parent.tolist(), word.tolist(), strict=True)]
        done = word == eos
        ended += [(float(flat[n]), words[n]) for n in done.nonzero().flatten().tolist()]
        going = (torch.ones_like(done) if goes_on else ~done).nonzero().flatten()
        words = [words[n] for n in going.tolist()]
        totals, token = flat[going], word[going]
        if stop(ended, width) or not len(going):
            break
        state = reorder(state, parent[going])
    open = [(float(total), said) for total, said in zip(totals, words, strict=True)]
    best = max(choose(ended, open), key=lambda found: normalise(found[0], len(found[1]), alpha))
    score = (report or normalise)(best[0], len(best[1]), alpha)
    return torch.tensor(keep(best[1], eos)), score


def _beam_with(**options) -> Callable:
    return lambda *given: _beam_answer(*given, **options)


def _left_over(state: torch.Tensor, parent: torch.Tensor) -> torch.Tensor:
    """All beginnings go on from the state that was computed last."""
    return state[-1:].expand(len(parent), -1)


def _not_reordered(state: torch.Tensor, parent: torch.Tensor) -> torch.Tensor:
    return state[torch.arange(len(parent)) % len(state)]


BEAM_MISTAKES = (
    Mistake(
        "greedy",
        lambda step, state, bos, eos, width, *rest: _beam_answer(step, state, bos, eos, 1, *rest),
        "You find what greedy search finds. (A beam that starts as several equal copies does that: each "
        "step picks one word as often as there are copies.)",
        "the first step: a single beginning, or totals of [0, -inf, -inf, ...].",
        ("beam-01",),
    ),
    Mistake(
        "state not reordered",
        _beam_with(reorder=_not_reordered),
        "The states keep their places while the beginnings change theirs: each beginning goes on from the "
        "state of another.",
        "after topk: state = state[parent], at every step.",
        ("beam-03", "beam-04"),
    ),
    Mistake(
        "state left over",
        _beam_with(reorder=_left_over),
        "All beginnings go on from the state of the one that was computed last.",
        "where you keep the states: each beginning has its own.",
        ("beam-05",),
    ),
    Mistake(
        "stops at the first end",
        _beam_with(stop=lambda ended, width: bool(ended)),
        "You stop when the first sentence ends. A longer one may still score better.",
        "when nothing open can win any more: until then, go on.",
        ("beam-06",),
    ),
    Mistake(
        "no length normalisation",
        _beam_with(normalise=lambda total, length, alpha: total),
        "You compare log-probabilities. Each word makes them smaller, so that short sentences win.",
        "the comparison: total / length ** alpha.",
    ),
    Mistake(
        "normalised for the choice, not for the score",
        _beam_with(report=lambda total, length, alpha: total),
        "Your sentence is right, but its score is the bare log-probability.",
        "what you return: total / length ** alpha.",
    ),
    Mistake(
        "<bos> counted in the length",
        _beam_with(normalise=lambda total, length, alpha: total / (length + 1) ** alpha),
        "Your lengths are one too large: <bos> is no word of the sentence.",
        "what you count: the words and the <eos>.",
        ("beam-08",),
    ),
    Mistake(
        "<eos> not counted in the length",
        _beam_with(normalise=lambda total, length, alpha: total / max(length - 1, 1) ** alpha),
        "Your lengths are one too small: <eos> counts, since its probability is in the total.",
        "what you count: the words and the <eos>.",
        ("beam-08",),
    ),
    Mistake(
        "multiplied by the length",
        _beam_with(normalise=lambda total, length, alpha: total * length**alpha),
        "You multiply by length ** alpha. Log-probabilities are negative: long sentences suffer twice.",
        "the sign of the exponent: total / length ** alpha.",
    ),
    Mistake(
        "beam larger than the vocabulary",
        _beam_with(strict=True),
        "There may be fewer candidates than places in the beam, and topk cannot choose more than there are.",
        "the number of candidates: topk(min(width, candidates)).",
        ("beam-09",),
    ),
    Mistake(
        "cut-off sentences compete",
        _beam_with(choose=lambda ended, open: ended + open),
        "A beginning that max_length cut off wins over sentences that ended.",
        "the choice at the end: open beginnings count only where nothing has ended.",
    ),
    Mistake(
        "parent and word mixed up",
        _beam_with(
            parted=lambda index, vocabulary, width: (
                index % width % max(1, int(index.max()) // vocabulary + 1),
                index // width % vocabulary,
            )
        ),
        "You take the flat index apart by the width. A row holds as many candidates as there are words.",
        "parent = index // vocabulary, word = index % vocabulary.",
    ),
    Mistake(
        "no branching after the first word",
        _beam_with(branching=False),
        "Each beginning goes on with its best word alone, so after the first word nothing competes.",
        "the candidates: every beginning with every word, and topk over all of them.",
    ),
    Mistake(
        "<eos> dropped",
        _beam_with(keep=lambda words, eos: [word for word in words if word != eos]),
        "Your sentence lacks its <eos>, which belongs to the tokens.",
        "what you return.",
    ),
    Mistake(
        "ended sentences go on",
        _beam_with(goes_on=True, choose=lambda ended, open: open),
        "Your sentences go on after their <eos>.",
        "sentences that end: put them aside, and let only open beginnings go on.",
    ),
    Mistake(
        "one word too many",
        _beam_with(limit=lambda longest: longest + 1),
        "You take one step more than max_length.",
        "the range of your loop: <eos> is one of the max_length tokens.",
        ("s2s-04",),
    ),
    Mistake(
        "no upper bound",
        _beam_with(limit=lambda longest: INF),
        "Your loop waits for <eos>, and this model never writes one.",
        "max_length: it has to end the loop as well.",
        ("dec-02",),
    ),
)


def _hypotheses_as_objects(step, state, bos, eos, width, max_length, alpha):
    """Each beginning carries its own state, and asks the model alone; ended ones keep their place."""
    beam = [(0.0, [], state)]
    for _ in range(max_length):
        if all(words[-1:] == [eos] for _, words, _ in beam):
            break
        grown = []
        for total, words, own in beam:
            if words[-1:] == [eos]:
                grown.append((total, words, own))
                continue
            scores, after = step(torch.tensor([words[-1] if words else bos]), own)
            for word, value in enumerate(scores[0].tolist()):
                if value > -INF:
                    grown.append((total + value, [*words, word], after))
        beam = sorted(grown, key=lambda one: one[0], reverse=True)[:width]
    ended = [one for one in beam if one[1][-1] == eos] or beam
    total, words, _ = max(ended, key=lambda one: one[0] / len(one[1]) ** alpha)
    return torch.tensor(words), torch.tensor(total / len(words) ** alpha)


def _places_given_up(step, state, bos, eos, width, max_length, alpha):
    """A sentence that ends takes its place in the beam with it."""
    left, ended, open = width, [], [(0.0, [])]
    totals, token = torch.zeros(1), torch.tensor([bos])
    for _ in range(max_length):
        scores, state = step(token, state)
        flat = (totals[:, None] + scores).flatten()
        totals, index = flat.topk(min(left, int((flat > -INF).sum())))
        parent, token = index // scores.shape[1], index % scores.shape[1]
        grown = [[*open[p][1], w] for p, w in zip(parent.tolist(), token.tolist(), strict=True)]
        going = token != eos
        ended += [
            (t, words) for t, words, on in zip(totals.tolist(), grown, going.tolist(), strict=True) if not on
        ]
        left -= int((~going).sum())
        open = [(t, words) for t, words, on in zip(totals.tolist(), grown, going.tolist(), strict=True) if on]
        totals, token, state = totals[going], token[going], state.index_select(0, parent[going])
        if left == 0 or not open:
            break
    total, words = max(ended or open, key=lambda one: one[0] / len(one[1]) ** alpha)
    return torch.tensor(words), total / len(words) ** alpha


def _copies_but_one_dead(step, state, bos, eos, width, max_length, alpha):
    """A full beam from the start, all but one of its totals -inf, as in course_utils.decoding."""
    token, state = torch.full((width,), bos), state.repeat(width, 1)
    totals = torch.full((width,), -INF)
    totals[0] = 0.0
    tokens, best, best_score = torch.zeros(width, 0, dtype=torch.long), None, -INF
    for length in range(1, max_length + 1):
        scores, state = step(token, state)
        totals, index = (totals[:, None] + scores).flatten().topk(width)
        parent, token = index // scores.shape[1], index % scores.shape[1]
        tokens, state = torch.cat([tokens[parent], token[:, None]], 1), state[parent]
        for n in (token == eos).nonzero().flatten().tolist():
            score = float(totals[n]) / length**alpha
            if score > best_score:
                best, best_score = tokens[n], score
        totals = totals.masked_fill(token == eos, -INF)
        if best_score >= float(totals.max()) / max_length**alpha:
            break
    if best is None:
        best, best_score = tokens[0], float(totals[0]) / max_length**alpha
    return best, best_score


BEAM_VARIANTS = (
    Variant("ended sentences keep their place", _hypotheses_as_objects, ("beam-11",)),
    Variant("ended sentences give up their place", _places_given_up, ("beam-11",)),
    Variant("places are refilled, copies without a chance at first", _copies_but_one_dead),
    Variant("places are refilled, one beginning at first", _beam_answer),
    Variant("stops when the beam's width has ended", _beam_with(stop=lambda done, width: len(done) >= width)),
)

BEAM_SEARCH = Exercise(
    question=find("03.5"),
    title="beam search",
    minutes=30,
    difficulty=3,
    reference=_beam_reference,
    axes={"tokens": "words and <eos>", "score": ""},
    parts=(
        Part(
            "the most probable of what a beam finds",
            1,
            _draw_beam,
            ("tokens", "score"),
            "the beginnings and their totals after each step, printed for the smallest case.",
            (_sentence_matches_score,),
        ),
        Part(
            "length normalisation, few words, no end",
            1,
            _draw_beam_lengths,
            ("tokens", "score"),
            "every sentence that ends, with its total, its length and its score.",
            (_sentence_matches_score,),
        ),
    ),
    mistakes=BEAM_MISTAKES,
    variants=BEAM_VARIANTS,
    forbidden=("course_utils.decoding",),
)


# --- 03.6 BLEU's two factors --------------------------------------------------------------------------------


def _ngrams(words: Sequence[str], n: int) -> Counter:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def _precision(candidate, references, n, *, limit=max, total=None):
    """Clipped precision; `limit` of the counts in the references is what a count is clipped to."""
    found = _ngrams(candidate, n)
    counts = [_ngrams(words, n) for words in references]
    clipped = sum(min(count, limit(c[gram] for c in counts)) for gram, count in found.items())
    whole = total(found, counts) if total else found.total()
    return clipped / whole if whole else 0.0


def _closest(candidate, references):
    return min((abs(len(words) - len(candidate)), len(words)) for words in references)[1]


def _penalty(candidate, length: float) -> float:
    if not candidate:
        return 0.0
    return min(1.0, math.exp(1 - length / len(candidate)))


def _factors(candidate, references, n):
    return _precision(candidate, references, n), _penalty(candidate, _closest(candidate, references))


def _factors_reference(inputs: Inputs) -> Outputs:
    precision, penalty = _factors(*(inputs[name] for name in ("candidate", "references", "n")))
    return {"precision": np.array(precision), "penalty": np.array(penalty)}


def _draw_factors(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 310])
    words = np.array(["the", "a", "cat", "dog", "sat", "on", "mat", "near"])

    def sentence(length: int, kinds: int = len(words)) -> tuple[str, ...]:
        return tuple(rng.choice(words[:kinds], length).tolist())

    def case(candidate, *references, n: int) -> Inputs:
        return {"candidate": candidate, "references": references, "n": n}

    papineni = ("the", "cat", "is", "on", "the", "mat"), ("there", "is", "a", "cat", "on", "the", "mat")
    return [
        case(("the",) * 7, *papineni, n=1),
        case(("the", "cat", "sat"), ("the", "cat", "sat", "on", "the", "mat"), n=2),  # no penalty by chance
        case(("a", "a", "dog", "sat"), ("a", "cat", "sat"), n=1),  # a word too often, and one of its own
        case(("cat", "the", "mat"), ("the", "cat", "sat"), n=2),  # the right words the other way round
        case(sentence(9, 3), sentence(7, 3), sentence(10, 3), n=1),  # the closest is longer
        case(sentence(9, 3), sentence(7, 3), sentence(11, 3), n=2),  # two are as close: the shorter one
        case(sentence(8, 3), sentence(5, 3), sentence(6, 3), sentence(13, 3), n=2),
        case(sentence(12, 3), sentence(28, 3), n=3),  # the difference, 16, would pass for a length
        case(sentence(6, 4), sentence(14, 4), sentence(9, 4), n=1),
        case(papineni[0], papineni[0], n=4),  # a perfect translation
        case(sentence(2), sentence(4), n=3),  # no n-gram fits into the candidate
        case((), sentence(3), n=1),
    ]


def _factors_in_range(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    for name in ("precision", "penalty"):
        if not -1e-9 <= outputs[name] <= 1 + 1e-9:
            return Finding(
                f"The {name} is {float(outputs[name]):.4g}; both factors lie between 0 and 1.",
                "the division, and the smaller of 1 and the exponential.",
                output=name,
            )
    return None


def _with_precision(precision: Callable) -> Callable:
    def answer(candidate, references, n):
        return precision(candidate, references, n), _factors(candidate, references, n)[1]

    return answer


def _with_length(length: Callable) -> Callable:
    """The penalty with another reference length."""

    def answer(candidate, references, n):
        return _precision(candidate, references, n), _penalty(candidate, length(candidate, references))

    return answer


def _with_penalty(penalty: Callable) -> Callable:
    """Another penalty of the candidate's length c and the reference's r."""

    def answer(candidate, references, n):
        c, r = len(candidate), _closest(candidate, references)
        return _precision(candidate, references, n), penalty(c, r) if c else 0.0

    return answer


def _letters(candidate, references, n):
    candidate, references = " ".join(candidate), [" ".join(words) for words in references]
    return _precision(candidate, references, n)


def _orders_pooled(candidate, references, n):
    orders = range(1, n + 1)
    whole = sum(_ngrams(candidate, order).total() for order in orders)
    found = sum(
        _precision(candidate, references, order) * _ngrams(candidate, order).total() for order in orders
    )
    return found / whole if whole else 0.0


def _bags(candidate, references, n):
    def grams(words):
        return Counter(tuple(sorted(words[i : i + n])) for i in range(len(words) - n + 1))

    counts, found = [grams(words) for words in references], grams(candidate)
    clipped = sum(min(count, max(c[gram] for c in counts)) for gram, count in found.items())
    return clipped / found.total() if found else 0.0


def _last_ngram_lost(candidate, references, n):
    return _precision(candidate[: len(candidate) - 1], [words[:-1] for words in references], n)


def _not_clipped(candidate, references, n):
    found, known = _ngrams(candidate, n), set().union(*(_ngrams(words, n) for words in references))
    return sum(count for gram, count in found.items() if gram in known) / max(found.total(), 1)


def _each_once(candidate, references, n):
    found, known = set(_ngrams(candidate, n)), set().union(*(_ngrams(words, n) for words in references))
    return len(found & known) / max(len(found), 1)


def _divides_by_zero(candidate, references, n):
    found, counts = _ngrams(candidate, n), [_ngrams(words, n) for words in references]
    clipped = sum(min(count, max(c[gram] for c in counts)) for gram, count in found.items())
    return clipped / found.total(), _penalty(candidate, _closest(candidate, references))


def _empty_candidate_raises(candidate, references, n):
    length = _closest(candidate, references)
    return _precision(candidate, references, n), min(1.0, math.exp(1 - length / len(candidate)))


FACTOR_MISTAKES = (
    Mistake(
        "not clipped",
        _with_precision(_not_clipped),
        "You do not clip: a word that a reference has once counts as often as the candidate repeats it.",
        "each n-gram's count: at most what a single reference has of it.",
        ("bleu-09",),
    ),
    Mistake(
        "clipped by the sum over the references",
        _with_precision(lambda c, r, n: _precision(c, r, n, limit=sum)),
        "You clip by what all references have together. It is the largest count in any single one.",
        "the limit: the maximum over the references, not their sum.",
        ("bleu-09",),
    ),
    Mistake(
        "clipped by the poorest reference",
        _with_precision(lambda c, r, n: _precision(c, r, n, limit=min)),
        "You clip by the smallest count in the references. One reference that has it is enough.",
        "the limit: the maximum over the references.",
    ),
    Mistake(
        "each n-gram once",
        _with_precision(_each_once),
        "You count every n-gram once. A candidate that says a word twice has two of it.",
        "sets: they forget how often something occurs; Counter does not.",
    ),
    Mistake(
        "recall",
        _with_precision(lambda c, r, n: _precision(c, r, n, total=lambda found, counts: counts[0].total())),
        "You divide by the n-grams of a reference, which makes it a recall.",
        "the divisor: the n-grams of the candidate.",
    ),
    Mistake(
        "first reference only",
        lambda c, r, n: _factors(c, r[:1], n),
        "You look at the first reference alone.",
        "the loop over the references (a zip of candidate and references stops early).",
        ("bleu-07",),
    ),
    Mistake(
        "references taken for words",
        lambda c, r, n: (_precision(c, [[tuple(w) for w in r]], n), _penalty(c, len(r))),
        "You take the list of references for one sentence. Each of its entries is a list of words.",
        "the nesting: one candidate, a list of references, each a list of words.",
        ("bleu-07",),
    ),
    Mistake(
        "n-grams of letters",
        _with_precision(_letters),
        "You count letters: a string was cut into n-grams where a list of words should be.",
        "what you slice: candidate[i : i + n] of the list, not of a joined string.",
        ("bleu-06",),
    ),
    Mistake(
        "shorter n-grams counted too",
        _with_precision(_orders_pooled),
        "You count the n-grams of all lengths up to n. Here only those of length n are asked for.",
        "the loop over the lengths.",
    ),
    Mistake(
        "order inside the n-gram ignored",
        _with_precision(_bags),
        'You ignore the order inside an n-gram. "the cat" and "cat the" are different ones.',
        "sorted, set or frozenset around the n-gram: a tuple keeps the order.",
    ),
    Mistake(
        "last n-gram lost",
        _with_precision(_last_ngram_lost),
        "You leave out the last n-gram of each sentence.",
        "the range: there are len(words) - n + 1 n-grams.",
    ),
    Mistake(
        "smallest difference as a length",
        _with_length(lambda c, r: min(abs(len(words) - len(c)) for words in r)),
        "Your penalty uses the smallest difference of lengths. It needs the length of the closest reference.",
        "min with key=: the reference whose length is closest, and then its length.",
        ("bleu-01",),
    ),
    Mistake(
        "shortest reference",
        _with_length(lambda c, r: min(map(len, r))),
        "Your penalty uses the shortest reference. It needs the one whose length is closest.",
        "which reference you compare the length with.",
        ("bleu-03",),
    ),
    Mistake(
        "longest reference",
        _with_length(lambda c, r: max(map(len, r))),
        "Your penalty uses the longest reference. It needs the one whose length is closest.",
        "which reference you compare the length with.",
    ),
    Mistake(
        "mean length of the references",
        _with_length(lambda c, r: sum(map(len, r)) / len(r)),
        "Your penalty uses the mean length of the references. It needs the closest one.",
        "which length you compare with.",
    ),
    Mistake(
        "the longer of two that are as close",
        _with_length(lambda c, r: min((abs(len(words) - len(c)), -len(words)) for words in r)[1] * -1),
        "Where two references are as close, you take the longer one. It is the shorter one then.",
        "the tie.",
    ),
    Mistake(
        "ratio inverted",
        _with_penalty(lambda c, r: 1.0 if c > r else math.exp(1 - c / r)),
        "Your ratio is upside down: short candidates are rewarded.",
        "exp(1 - r / c): the candidate's length stands below.",
        ("bleu-02",),
    ),
    Mistake(
        "penalty above 1",
        _with_penalty(lambda c, r: math.exp(1 - r / c)),
        "Your penalty rewards long candidates. It is 1 for those that are not too short.",
        "the smaller of 1 and the exponential.",
    ),
    Mistake(
        "no penalty",
        _with_penalty(lambda c, r: 1.0),
        "Your penalty is always 1, so that a candidate of two sure words would be perfect.",
        "exp(1 - r / c) for a candidate shorter than its reference.",
        ("bleu-10",),
    ),
    Mistake(
        "ratio instead of an exponential",
        _with_penalty(lambda c, r: min(1.0, c / r)),
        "Your penalty is the ratio of the lengths. BLEU's falls faster: exp(1 - r / c).",
        "the equation.",
    ),
    Mistake(
        "in percent",
        lambda c, r, n: (100 * _precision(c, r, n), _penalty(c, _closest(c, r))),
        "Your precision is in percent. Wanted is a number from 0 to 1.",
        "the factor 100.",
        ("bleu-11",),
    ),
    Mistake(
        "divides by zero",
        _divides_by_zero,
        "A candidate shorter than n words has no n-gram. Its precision is 0, by agreement.",
        "the divisor, before you divide.",
    ),
    Mistake(
        "empty candidate",
        _empty_candidate_raises,
        "A candidate without words divides by zero in the penalty. Its penalty is 0.",
        "the length of the candidate, before you divide.",
    ),
)


def _factors_with_intersection(candidate, references, n):
    """Counter's own operations: | is the maximum of counts, & the minimum."""
    allowed = Counter()
    for words in references:
        allowed |= Counter(zip(*(words[i:] for i in range(n)), strict=False))
    found = Counter(zip(*(candidate[i:] for i in range(n)), strict=False))
    precision = (found & allowed).total() / max(1, found.total())
    c = len(candidate)
    r = min((len(words) for words in references), key=lambda length: (abs(length - c), length))
    return precision, 0 if c == 0 else 1 if c >= r else math.exp(1 - r / c)


def _factors_with_strings(candidate, references, n):
    grams = [" ".join(candidate[i : i + n]) for i in range(max(0, len(candidate) - n + 1))]
    used, hits = Counter(), 0
    known = [[" ".join(words[i : i + n]) for i in range(len(words) - n + 1)] for words in references]
    for gram in grams:
        used[gram] += 1
        hits += used[gram] <= max(reference.count(gram) for reference in known)
    return np.float64(hits / len(grams) if grams else 0), np.float64(_factors(candidate, references, n)[1])


FACTOR_VARIANTS = (
    Variant("intersection of counters, whole numbers", _factors_with_intersection),
    Variant("n-grams as joined strings, numpy numbers", _factors_with_strings),
    Variant(
        "a hair above 1",
        lambda c, r, n: tuple(factor * (1 + 1e-12) for factor in _factors(c, r, n)),
        ("bleu-11",),
    ),
    Variant(
        "tensors without axes",
        lambda c, r, n: tuple(torch.tensor(factor, dtype=torch.float64) for factor in _factors(c, r, n)),
    ),
)

BLEU_FACTORS = Exercise(
    question=find("03.6"),
    title="BLEU's two factors",
    minutes=15,
    difficulty=2,
    reference=_factors_reference,
    axes={"precision": "", "penalty": ""},
    parts=(
        Part(
            "clipped precision and brevity penalty",
            1,
            _draw_factors,
            ("precision", "penalty"),
            "the counts of each n-gram, and the two lengths: count them by hand for the smallest case.",
            (_factors_in_range,),
        ),
    ),
    mistakes=FACTOR_MISTAKES,
    variants=FACTOR_VARIANTS,
    forbidden=("course_utils.metrics", "sacrebleu", "nltk"),
)

EXERCISES = [SHIFT_TARGETS, PADDED_LOSS, ENCODER_STATE, GREEDY_DECODE, BEAM_SEARCH, BLEU_FACTORS]
