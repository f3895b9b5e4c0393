"""The exercises of lesson 04, Bahdanau attention (Bahdanau, Cho and Bengio 2015), and how they go wrong.

Sources such as "ms-04" name the public bug report or thread that a mistake or a variant was first seen in.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.random import Generator, default_rng

from .engine import (
    Exercise,
    Finding,
    Inputs,
    Mistake,
    Outputs,
    Part,
    Variant,
    ask_tensors,
    numeric_gradient,
)

INF = float("inf")


def _sizes(rng: Generator, count: int, low: int = 2, high: int = 8) -> list[int]:
    """`count` sizes, no two of them equal, so that no axis can stand in for another."""
    return [int(n) for n in rng.choice(np.arange(low, high), count, replace=False)]


def _normal(rng: Generator, *shape: int, dtype: str = "float32") -> np.ndarray:
    return rng.normal(size=shape).astype(dtype)


def _padded(rng: Generator, batch: int, source: int) -> np.ndarray:
    """(batch, source): True for the real words, which come first; one sentence at least is padded."""
    lengths = rng.integers(1, source + 1, size=batch)
    lengths[0] = rng.integers(1, source)
    lengths[-1] = source if batch > 1 else lengths[-1]
    return np.arange(source) < lengths[:, None]


# --- 04.1 masked softmax --------------------------------------------------------------------------------------------


def _softmax(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Float64 reference: scores (..., target, source), mask (..., source); rows without a real word are zeros."""
    mask = np.broadcast_to(mask[..., None, :], scores.shape)
    scores = np.where(mask, scores.astype(np.float64), -INF)
    top = np.where(mask.any(-1, keepdims=True), scores.max(-1, keepdims=True, initial=-INF), 0.0)
    parts = np.exp(scores - top)
    total = parts.sum(-1, keepdims=True)
    return parts / np.where(total > 0, total, 1.0)


def _softmax_reference(inputs: Inputs) -> Outputs:
    def weights(given: Inputs) -> np.ndarray:
        return _softmax(given["scores"], given["mask"])

    expected = {"weights": weights(inputs)}
    if "upstream" in inputs:
        expected["gradient of scores"] = numeric_gradient(weights, inputs, "scores")
    return expected


def _draw_softmax(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 41])
    cases = [{"scores": _normal(rng, 1, 1, 3).round(1), "mask": np.array([[True, True, False]])}]

    batch, target, source = _sizes(rng, 3)
    cases.append({"scores": 2 * _normal(rng, batch, target, source), "mask": _padded(rng, batch, source)})

    # As many sentences as target words: a mask on the wrong axis no longer raises, it only hides the wrong words.
    batch, source = _sizes(rng, 2, 3)
    cases.append({"scores": 2 * _normal(rng, batch, batch, source), "mask": _padded(rng, batch, source)})

    # Hidden words in the middle, and the same sentence twice with other scores behind the mask: nothing may move.
    target, source = _sizes(rng, 2, 3)
    scores = np.repeat(_normal(rng, 1, target, source), 2, axis=0)
    mask = np.ones((2, source), bool)
    mask[:, rng.choice(source, 2, replace=False)] = False
    scores[1] += 2 * ~mask[1]
    cases.append({"scores": scores, "mask": mask})

    # Scores whose exponentials are too large, and too small, for float32; the largest is a real word's.
    batch, target, source = _sizes(rng, 3)
    mask = _padded(rng, batch, source)
    for shift in (500.0, -500.0):
        scores = 3 * _normal(rng, batch, target, source)
        scores = np.where(mask[:, None], scores, scores.min(-1, keepdims=True)) + np.float32(shift)
        cases.append({"scores": scores, "mask": mask})
    return cases


def _draw_softmax_edges(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 42])
    cases = [{"scores": _normal(rng, 1, 1, 2).round(1), "mask": np.array([[False, False]])}]

    batch, target, source = _sizes(rng, 3)
    mask = _padded(rng, batch, source)
    scores = _normal(rng, batch, target, source)
    cases.append({"scores": scores, "mask": mask, "upstream": _normal(rng, batch, target, source)})

    empty = mask.copy()
    empty[0] = False
    cases.append({"scores": scores, "mask": empty, "upstream": _normal(rng, batch, target, source)})
    cases.append({"scores": scores.astype("float64"), "mask": empty})
    cases.append({"scores": scores.astype("float16"), "mask": mask})
    return cases


def _hidden_words_weigh_nothing(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    weights = outputs["weights"]
    hidden = np.broadcast_to(~inputs["mask"][:, None, :], weights.shape)
    if (abs(weights[hidden]) > 1e-6).any():
        return Finding("A word that the mask hides gets weight.", "where the mask enters.", output="weights")
    return None


def _rows_sum_to_one(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    weights = outputs["weights"].astype(np.float64)
    real = np.broadcast_to(inputs["mask"].any(-1)[:, None], weights.shape[:2])
    if (abs(weights.sum(-1) - 1)[real] > 1e-2).any():
        return Finding(
            "The weights over the source words of one target word do not sum to 1.",
            "the axis that you normalise over.",
            output="weights",
        )
    return None


def _broadcast(mask: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    return mask[:, None, :].expand_as(scores)


def _filled(scores: torch.Tensor, mask: torch.Tensor, value: float = -INF) -> torch.Tensor:
    return scores.masked_fill(~_broadcast(mask, scores), value)


def _zeroed(weights: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return weights.masked_fill(~_broadcast(mask, weights), 0.0)


def _masked_softmax(scores: torch.Tensor, mask: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """What most mistakes below start from: right, and safe for empty rows."""
    fill = torch.finfo(scores.dtype).min
    return _zeroed(torch.softmax(_filled(scores, mask, fill), dim), mask)


def _mask_multiplied(scores, mask):
    return torch.softmax(scores * mask[:, None, :], -1)


def _mask_added(scores, mask):
    return torch.softmax(scores + mask[:, None, :].to(scores.dtype), -1)


def _zero_times_infinity(scores, mask):
    return torch.softmax(scores + (1 - mask[:, None, :].to(scores.dtype)) * -INF, -1)


def _filled_after(scores, mask):
    return _filled(torch.softmax(scores, -1), mask)


def _not_renormalised(scores, mask):
    return torch.softmax(scores, -1) * mask[:, None, :]


def _mask_on_targets(scores, mask):
    return torch.softmax(scores.masked_fill(~mask[:, :, None], -INF), -1)


def _mask_without_target_axis(scores, mask):
    return torch.softmax(scores.masked_fill(~mask, -INF), -1)


def _exponentials_overflow(scores, mask):
    parts = torch.exp(scores) * mask[:, None, :]
    return parts / parts.sum(-1, keepdim=True)


def _empty_rows_nan(scores, mask):
    return torch.softmax(_filled(scores, mask), -1)


def _empty_rows_uniform(scores, mask):
    return torch.softmax(_filled(scores, mask, torch.finfo(scores.dtype).min), -1)


def _fill_too_large_for_half(scores, mask):
    return _zeroed(torch.softmax(_filled(scores, mask, -1e9), -1), mask)


def _gradient_nan(scores, mask):
    hide = torch.zeros_like(scores).masked_fill(~_broadcast(mask, scores), -INF)
    return torch.softmax(scores + hide, -1).nan_to_num(0.0)


def _writes_into_scores(scores, mask):
    hidden = ~_broadcast(mask, scores)
    scores.masked_fill_(hidden, torch.finfo(scores.dtype).min)
    return torch.softmax(scores, -1).masked_fill(hidden, 0.0)


SOFTMAX_MISTAKES = (
    Mistake(
        "mask inverted",
        lambda scores, mask: _masked_softmax(scores, ~mask),
        "Your weights lie on the padding, and the real words get none.",
        "the mask's meaning: True marks a real word. masked_fill fills where its mask is True.",
        ("cm-08", "sd-06"),
    ),
    Mistake(
        "no mask",
        lambda scores, mask: torch.softmax(scores, -1),
        "Your weights are those of a softmax without any mask.",
        "whether the masked scores are what reaches the softmax (masked_fill returns a new tensor).",
        ("cm-08",),
    ),
    Mistake(
        "mask multiplied into the scores",
        _mask_multiplied,
        "You multiply the scores by the mask. A hidden word then has the score 0, and exp(0) = 1 is weight.",
        "the value a hidden word needs before the softmax, so that its exponential is 0.",
        ("ms-01",),
    ),
    Mistake(
        "mask added as 0 and 1",
        _mask_added,
        "You add the mask to the scores as 0 and 1, which moves them by 1 and hides nothing.",
        "what must be added so that the exponential becomes 0 (or use masked_fill).",
        ("ms-08",),
    ),
    Mistake(
        "zero times infinity",
        _zero_times_infinity,
        "You multiply the flipped mask by -inf. At real words that is 0 * -inf, which is NaN.",
        "masked_fill or torch.where, which choose a value instead of multiplying.",
        ("ms-06",),
    ),
    Mistake(
        "-inf after the softmax",
        _filled_after,
        "You fill in -inf after the softmax. A weight that should vanish is 0; -inf belongs before the softmax.",
        "the order of the two lines.",
        ("ms-05",),
    ),
    Mistake(
        "not renormalised",
        _not_renormalised,
        "You zero the hidden words after the softmax: what they had taken is lost, and rows sum to less than 1.",
        "masking before the softmax, or dividing by the new sum.",
        ("ms-03",),
    ),
    Mistake(
        "softmax over the target axis",
        lambda scores, mask: _masked_softmax(scores, mask, dim=1),
        "Your softmax runs over the target words. Each target word shares its attention among the source words.",
        "the dim of the softmax: scores are (batch, target, source).",
    ),
    Mistake(
        "softmax over the batch",
        lambda scores, mask: _masked_softmax(scores, mask, dim=0),
        "Your softmax runs over the batch, so that sentences take weight from one another.",
        "the dim of the softmax: scores are (batch, target, source).",
    ),
    Mistake(
        "mask on the target axis",
        _mask_on_targets,
        "Your mask lies along the target axis: it hides target words instead of source words.",
        "where you insert the new axis: (batch, source) has to become (batch, 1, source).",
        ("cm-05",),
    ),
    Mistake(
        "mask without a target axis",
        _mask_without_target_axis,
        "Your mask has no axis for the target words, so its batch axis is lined up with them.",
        "where to insert an axis of size 1: (batch, source) has to become (batch, 1, source).",
        ("cm-05",),
    ),
    Mistake(
        "exponentials overflow",
        _exponentials_overflow,
        "You take the exponential of the scores as they are: exp(500) is inf, exp(-500) is 0, and both end in NaN.",
        "subtracting the row's largest score first (it changes no weight), or torch.softmax, which does.",
    ),
    Mistake(
        "empty rows are NaN",
        _empty_rows_nan,
        "A sentence with no real word at all gives NaN: its scores are all -inf, and the softmax divides 0 by 0.",
        "those rows: set their weights to 0.",
        ("ms-09",),
    ),
    Mistake(
        "empty rows are uniform",
        _empty_rows_uniform,
        "A sentence with no real word attends to its padding evenly: a finite fill is the same at all its words.",
        "those rows: set the weights of hidden words to 0 after the softmax as well.",
        ("ms-09",),
    ),
    Mistake(
        "fill too large for half precision",
        _fill_too_large_for_half,
        "Half precision ends at -65504, so a fill such as -1e9 does not fit into it.",
        'float("-inf") or torch.finfo(scores.dtype).min.',
        ("env-02",),
    ),
    Mistake(
        "NaN in the gradient",
        _gradient_nan,
        "The weights are right, but the gradient of an empty row is NaN: nan_to_num mends only the way forward.",
        "a fill that never makes NaN, such as torch.finfo(scores.dtype).min, and zeros afterwards.",
        ("ms-09",),
    ),
    Mistake(
        "gradient cut",
        lambda scores, mask: _masked_softmax(scores.detach(), mask),
        "No gradient reaches the scores, so nothing before them could learn.",
        ".detach(), .data, .numpy(), torch.tensor(...) and torch.no_grad(): each of them cuts the way back.",
    ),
    Mistake(
        "writes into the scores",
        _writes_into_scores,
        "You write into the scores that you were given. The caller still needs them.",
        "operations that end in an underscore (masked_fill_) and assignments to scores[...].",
    ),
)


def _renormalised(scores, mask):
    weights = torch.softmax(scores, -1) * mask[:, None, :]
    return weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)


def _renormalised_with_epsilon(scores, mask):
    weights = torch.softmax(scores.float(), -1) * mask[:, None, :]
    return (weights / (weights.sum(-1, keepdim=True) + 1e-9)).to(scores.dtype)


def _by_hand(scores, mask):
    mask = mask.unsqueeze(1)
    top = torch.where(mask, scores, torch.finfo(scores.dtype).min).max(-1, keepdim=True).values.detach()
    top = torch.maximum(top, scores.detach().min())  # finite in a row without any real word
    parts = torch.where(mask, torch.exp(scores - top), 0.0)
    total = parts.sum(-1, keepdim=True)
    return parts / torch.where(total > 0, total, torch.ones_like(total))


def _row_by_row(scores, mask):
    rows = [
        [torch.where(m, torch.softmax(torch.where(m, row, -1e4), -1), 0.0) for row in sentence]
        for sentence, m in zip(scores, mask, strict=True)
    ]
    return torch.stack([torch.stack(sentence) for sentence in rows])


SOFTMAX_VARIANTS = (
    Variant("softmax, mask, divide by the sum", _renormalised, ("ms-04",)),
    Variant("the same with an epsilon, in float32", _renormalised_with_epsilon, ("ms-04", "env-02")),
    Variant("-inf, NaN replaced", lambda s, m: torch.softmax(_filled(s, m), -1).nan_to_num(0.0), ("ms-11",)),
    Variant("finfo.min, then zeros", lambda s, m: _masked_softmax(s, m), ("ms-11",)),
    Variant("-1e4", lambda s, m: _zeroed(torch.softmax(_filled(s, m, -1e4), -1), m), ("ms-11",)),
    Variant("float32 comes back for half", lambda s, m: _masked_softmax(_at_least_single(s), m), ("env-02",)),
    Variant("largest score subtracted by hand", _by_hand),
    Variant("a loop over the rows", _row_by_row),
)


def _at_least_single(scores: torch.Tensor) -> torch.Tensor:
    return scores.float() if scores.dtype == torch.float16 else scores


MASKED_SOFTMAX = Exercise(
    id="04.1",
    title="masked softmax",
    signature="masked_softmax(scores, mask)",
    minutes=15,
    difficulty=1,
    ask=ask_tensors(["scores", "mask"], ["weights"], wrt=["scores"]),
    reference=_softmax_reference,
    axes={"weights": "batch, target, source"},
    parts=(
        Part(
            "the real words share the weight, whatever the scores",
            1,
            _draw_softmax,
            ("weights",),
            (_hidden_words_weigh_nothing, _rows_sum_to_one),
        ),
        Part(
            "empty sentences, gradients and half precision",
            1,
            _draw_softmax_edges,
            ("weights", "gradient of scores"),
            (_hidden_words_weigh_nothing, _rows_sum_to_one),
        ),
    ),
    mistakes=SOFTMAX_MISTAKES,
    variants=SOFTMAX_VARIANTS,
    forbidden=("course_utils.models", "torch.nn.functional.scaled_dot_product_attention", "torch.masked"),
)

EXERCISES = [MASKED_SOFTMAX]
