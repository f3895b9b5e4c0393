"""The exercises of lesson 04, Bahdanau attention (Bahdanau, Cho and Bengio 2015), and how they go wrong.

Sources such as "ms-04" name the public bug report or thread that a mistake or a variant was first seen in.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.random import Generator, default_rng

from course_utils.checks.draws import normal, padded, sizes
from course_utils.checks.engine import Exercise, Finding, Mistake, Part, Variant, numeric_gradient
from course_utils.questions import find
from course_utils.questions.asking import (
    Inputs,
    Outputs,
)
from course_utils.questions.lesson04 import CELL_WEIGHTS, LINKS, SCORE_ARGUMENTS, STEP_WEIGHTS

INF = float("inf")


# --- 04.1 masked softmax ------------------------------------------------------------------------------------


def _softmax(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Float64 reference: scores (..., target, source), mask (..., source); a row without words is zeros."""
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
    cases = [{"scores": normal(rng, 1, 1, 3).round(1), "mask": np.array([[True, True, False]])}]

    batch, target, source = sizes(rng, 3)
    cases.append({"scores": 2 * normal(rng, batch, target, source), "mask": padded(rng, batch, source)})

    # As many sentences as target words: a mask on the wrong axis does not raise but hides other words.
    batch, source = sizes(rng, 2, 3)
    cases.append({"scores": 2 * normal(rng, batch, batch, source), "mask": padded(rng, batch, source)})

    # Words hidden in the middle; one sentence twice, with other scores behind the mask: nothing may move.
    target, source = sizes(rng, 2, 3)
    scores = np.repeat(normal(rng, 1, target, source), 2, axis=0)
    mask = np.ones((2, source), bool)
    mask[:, rng.choice(source, 2, replace=False)] = False
    scores[1] += 2 * ~mask[1]
    cases.append({"scores": scores, "mask": mask})

    # Scores whose exponentials are too large, and too small, for float32; the largest is a real word's.
    batch, target, source = sizes(rng, 3)
    mask = padded(rng, batch, source)
    for shift in (500.0, -500.0):
        scores = 3 * normal(rng, batch, target, source)
        scores = np.where(mask[:, None], scores, scores.min(-1, keepdims=True)) + np.float32(shift)
        cases.append({"scores": scores, "mask": mask})
    return cases


def _draw_softmax_edges(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 42])
    cases = [{"scores": normal(rng, 1, 1, 2).round(1), "mask": np.array([[False, False]])}]

    batch, target, source = sizes(rng, 3, 2, 6)
    mask = padded(rng, batch, source)
    scores = normal(rng, batch, target, source)
    cases.append({"scores": scores, "mask": mask, "upstream": normal(rng, batch, target, source)})

    empty = mask.copy()
    empty[0] = False
    cases.append({"scores": scores, "mask": empty, "upstream": normal(rng, batch, target, source)})
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


def _padding_moves_nothing(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    """Where the first two sentences differ in their padding alone, their weights are the same."""
    real = [
        np.where(mask, scores, 0)
        for scores, mask in zip(inputs["scores"], inputs["mask"][:, None], strict=True)
    ]
    twins = len(real) > 1 and (real[0] == real[1]).all() and (inputs["mask"][0] == inputs["mask"][1]).all()
    if twins and (abs(outputs["weights"][0] - outputs["weights"][1]) > 1e-4).any():
        return Finding(
            "The first two sentences differ in their padding alone, and yet their weights differ.",
            "what the scores of hidden words still do.",
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


def _weights_changed_in_place(scores, mask):
    weights = torch.softmax(_filled(scores, mask, torch.finfo(scores.dtype).min), -1)
    return weights.masked_fill_(~_broadcast(mask, weights), 0.0)


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
        "You fill in -inf after the softmax. There a weight that should vanish is 0; -inf belongs before.",
        "the order of the two lines.",
        ("ms-05",),
    ),
    Mistake(
        "not renormalised",
        _not_renormalised,
        "You zero the hidden words after the softmax: what they had taken is lost; rows sum to less than 1.",
        "masking before the softmax, or dividing by the new sum.",
    ),
    Mistake(
        "softmax over the target axis",
        lambda scores, mask: _masked_softmax(scores, mask, dim=1),
        "Your softmax runs over the target words. Each of them shares its attention among the source words.",
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
        "You take exp of the scores as they are: exp(500) is inf, exp(-500) is 0, and both end in NaN.",
        "subtracting the row's largest score first (it changes no weight), or torch.softmax, which does.",
    ),
    Mistake(
        "empty rows are NaN",
        _empty_rows_nan,
        "A sentence with no real word gives NaN: its scores are all -inf, and the softmax divides 0 by 0.",
        "those rows: set their weights to 0.",
        ("ms-09",),
    ),
    Mistake(
        "empty rows are uniform",
        _empty_rows_uniform,
        "A sentence with no real word attends to its padding evenly: a finite fill is the same everywhere.",
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
        "The weights are right, but the gradient of an empty row is NaN: nan_to_num mends one way only.",
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
        "weights changed in place",
        _weights_changed_in_place,
        "You change the result of the softmax in place, and its gradient needs that result as it was.",
        "masked_fill without the underscore, or weights * mask: they make a new tensor.",
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
    question=find("04.1"),
    title="masked softmax",
    minutes=10,
    difficulty=1,
    reference=_softmax_reference,
    axes={"weights": "batch, target, source"},
    parts=(
        Part(
            "the real words share the weight, whatever the scores",
            1,
            _draw_softmax,
            ("weights",),
            "a printed row of your weights beside its row of the mask.",
            (_hidden_words_weigh_nothing, _rows_sum_to_one, _padding_moves_nothing),
        ),
        Part(
            "empty sentences, gradients and half precision",
            1,
            _draw_softmax_edges,
            ("weights", "gradient of scores"),
            "what your function does, line by line, with a row that has no real word.",
            (_hidden_words_weigh_nothing, _rows_sum_to_one),
        ),
    ),
    mistakes=SOFTMAX_MISTAKES,
    variants=SOFTMAX_VARIANTS,
    forbidden=("course_utils.models", "torch.nn.functional.scaled_dot_product_attention", "torch.masked"),
)


# --- 04.2 additive scores -----------------------------------------------------------------------------------


def _additive(
    queries: np.ndarray, keys: np.ndarray, W_q: np.ndarray, W_k: np.ndarray, v: np.ndarray
) -> np.ndarray:
    """Float64 reference: queries (batch, target, query_width), keys (batch, source, key_width)."""
    queries, keys, W_q, W_k, v = (a.astype(np.float64) for a in (queries, keys, W_q, W_k, v))
    asked = np.einsum("btq,aq->bta", queries, W_q)
    offered = np.einsum("bsk,ak->bsa", keys, W_k)
    return np.einsum("btsa,a->bts", np.tanh(asked[:, :, None] + offered[:, None]), v)


def _scores_reference(inputs: Inputs) -> Outputs:
    def scores(given: Inputs) -> np.ndarray:
        return _additive(*(given[name] for name in SCORE_ARGUMENTS))

    expected = {"scores": scores(inputs)}
    if "upstream" in inputs:
        for name in ("queries", "keys"):
            expected[f"gradient of {name}"] = numeric_gradient(scores, inputs, name)
    return expected


def _score_inputs(
    rng: Generator, batch: int, target: int, source: int, query: int, key: int, attention: int
) -> Inputs:
    return {
        "queries": normal(rng, batch, target, query),
        "keys": normal(rng, batch, source, key),
        "W_q": normal(rng, attention, query),
        "W_k": normal(rng, attention, key),
        "v": normal(rng, attention),
    }


def _draw_one_score(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 43])
    tiny = {name: value.round(1) for name, value in _score_inputs(rng, 1, 1, 2, 2, 3, 2).items()}
    source, query, key, attention = sizes(rng, 4)
    width = int(rng.integers(3, 6))  # equal widths: a wrong product of matrices no longer raises
    return [
        tiny,
        _score_inputs(rng, 1, 1, width + 1, width, width, width),
        _score_inputs(rng, 1, 1, source, query, key, attention),
    ]


def _draw_scores(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 44])
    width, *_ = sizes(rng, 1, 3, 6)
    batch, target, *rest = sizes(rng, 6)
    slow = _score_inputs(rng, 2, 3, 4, 3, 2, 5)
    twins = _score_inputs(rng, 2, 3, 4, 3, 2, 5)  # one sentence, forwards and backwards
    twins["queries"][1], twins["keys"][1] = twins["queries"][0], twins["keys"][0, ::-1]
    return [
        twins,
        _score_inputs(
            rng, 2, 3, 3, 2, 4, 5
        ),  # as many source as target words: swapped axes do not show in the shape
        slow | {"upstream": normal(rng, 2, 3, 4)},
        _score_inputs(rng, batch, target, width, width, width, width),
        _score_inputs(rng, batch, target, *rest),
    ]


def _keys_matter(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    scores = outputs["scores"].astype(np.float64)
    if (scores.max(-1) - scores.min(-1) < 1e-6).all():
        return Finding(
            "Every source word gets the same score, whatever its state.",
            "whether the keys enter the score.",
            output="scores",
        )
    return None


def _words_carry_their_scores(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    """Where the first two sentences are one sentence forwards and backwards, so are their scores."""
    (asks, asks_too), (words, turned), scores = inputs["queries"][:2], inputs["keys"][:2], outputs["scores"]
    twins = (asks == asks_too).all() and (words == turned[::-1]).all()
    if twins and (abs(scores[0] - scores[1][:, ::-1]) > 1e-4).any():
        return Finding(
            "The same words in the reverse order should have the same scores in the reverse order.",
            "what depends on a word's position instead of its state.",
            output="scores",
        )
    return None


def _asked(queries: torch.Tensor, W_q: torch.Tensor) -> torch.Tensor:
    return (queries @ W_q.T).unsqueeze(2)  # (batch, target, 1, attention)


def _offered(keys: torch.Tensor, W_k: torch.Tensor) -> torch.Tensor:
    return (keys @ W_k.T).unsqueeze(1)  # (batch, 1, source, attention)


def _additive_scores(queries, keys, W_q, W_k, v):
    return torch.tanh(_asked(queries, W_q) + _offered(keys, W_k)) @ v


def _keys_ignored(queries, keys, W_q, W_k, v):
    return (torch.tanh(_asked(queries, W_q)) @ v).expand(-1, -1, keys.shape[1])


def _queries_ignored(queries, keys, W_q, W_k, v):
    return (torch.tanh(_offered(keys, W_k)) @ v).expand(-1, queries.shape[1], -1)


def _reshaped(queries, keys, W_q, W_k, v):
    asked = queries @ W_q.reshape(queries.shape[-1], -1)
    offered = keys @ W_k.reshape(keys.shape[-1], -1)
    return torch.tanh(asked.unsqueeze(2) + offered.unsqueeze(1)) @ v


def _first_sentence_only(queries, keys, W_q, W_k, v):
    return _additive_scores(queries, keys[:1], W_q, W_k, v)


def _one_query_for_all(queries, keys, W_q, W_k, v):
    return _additive_scores(queries[:, :1], keys, W_q, W_k, v).expand(-1, queries.shape[1], -1)


SCORE_MISTAKES = (
    Mistake(
        "keys left out",
        _keys_ignored,
        "Your scores come from the queries alone, so every source word gets the same.",
        "where the keys enter: W_k times the key stands inside the tanh.",
        ("bah-02",),
    ),
    Mistake(
        "queries left out",
        _queries_ignored,
        "Your scores come from the keys alone, so every target word asks the same.",
        "where the queries enter: W_q times the query stands inside the tanh.",
    ),
    Mistake(
        "no tanh",
        lambda q, k, W_q, W_k, v: (_asked(q, W_q) + _offered(k, W_k)) @ v,
        "Your scores lack the tanh. Without it the query moves all scores of a row alike: no weight changes.",
        "the line that adds the two projections.",
    ),
    Mistake(
        "tanh before the sum",
        lambda q, k, W_q, W_k, v: (torch.tanh(_asked(q, W_q)) + torch.tanh(_offered(k, W_k))) @ v,
        "You apply tanh to each projection and then add. The sum belongs inside the tanh.",
        "the order of + and tanh: in your order query and key never meet.",
    ),
    Mistake(
        "tanh last",
        lambda q, k, W_q, W_k, v: torch.tanh((_asked(q, W_q) + _offered(k, W_k)) @ v),
        "You apply tanh to the finished score. It belongs before the product with v.",
        "the order of tanh and v.",
    ),
    Mistake(
        "sigmoid instead of tanh",
        lambda q, k, W_q, W_k, v: torch.sigmoid(_asked(q, W_q) + _offered(k, W_k)) @ v,
        "You use a sigmoid where the additive score has a tanh.",
        "the activation function.",
    ),
    Mistake(
        "relu instead of tanh",
        lambda q, k, W_q, W_k, v: torch.relu(_asked(q, W_q) + _offered(k, W_k)) @ v,
        "You use a ReLU where the additive score has a tanh.",
        "the activation function.",
    ),
    Mistake(
        "projections multiplied",
        lambda q, k, W_q, W_k, v: torch.tanh(_asked(q, W_q) * _offered(k, W_k)) @ v,
        "You multiply the two projections. The additive score adds them.",
        "the sign between the two projections.",
    ),
    Mistake(
        "v left out",
        lambda q, k, W_q, W_k, v: torch.tanh(_asked(q, W_q) + _offered(k, W_k)).sum(-1),
        "You sum over the attention axis without the weights v.",
        "the last step: the product with v.",
    ),
    Mistake(
        "W_q and W_k swapped",
        lambda q, k, W_q, W_k, v: _additive_scores(q, k, W_k, W_q, v),
        "You project the queries with W_k and the keys with W_q.",
        "which matrix belongs to which: W_q is (attention, query_width), W_k is (attention, key_width).",
    ),
    Mistake(
        "W not transposed",
        lambda q, k, W_q, W_k, v: _additive_scores(q, k, W_q.T, W_k.T, v),
        "You multiply by W_q and W_k as they are. With queries and keys on the left, they are transposed.",
        "queries @ W_q.T: (…, query_width) times (query_width, attention).",
    ),
    Mistake(
        "reshape instead of a transpose",
        _reshaped,
        "You reshape W to fit. That deals its numbers out anew; a transpose keeps rows and columns together.",
        ".T (or F.linear, which transposes for you).",
    ),
    Mistake(
        "softmax included",
        lambda q, k, W_q, W_k, v: torch.softmax(_additive_scores(q, k, W_q, W_k, v), -1),
        "You return weights. The scores are wanted, before the softmax.",
        "the last line.",
    ),
    Mistake(
        "scaled by the width",
        lambda q, k, W_q, W_k, v: _additive_scores(q, k, W_q, W_k, v) / v.shape[0] ** 0.5,
        "You divide by the square root of the width. That belongs to the dot product, not to this score.",
        "the division.",
    ),
    Mistake(
        "axes swapped",
        lambda q, k, W_q, W_k, v: _additive_scores(q, k, W_q, W_k, v).transpose(1, 2),
        "Your scores are (batch, source, target). Wanted is a row a target word: (batch, target, source).",
        "where you insert the new axes: queries become (batch, target, 1, …), keys (batch, 1, source, …).",
    ),
    Mistake(
        "first sentence for all",
        _first_sentence_only,
        "You score all queries against the first sentence of the batch.",
        "the index of the batch: sentence b's queries meet sentence b's keys.",
    ),
    Mistake(
        "one query for all",
        _one_query_for_all,
        "All target words get the scores of the first one.",
        "the target axis: each of the queries asks for itself.",
    ),
    Mistake(
        "gradient cut",
        lambda q, k, W_q, W_k, v: _additive_scores(q.detach(), k.detach(), W_q, W_k, v),
        "No gradient reaches queries and keys, so the networks that make them could not learn.",
        ".detach(), .data, .numpy(), torch.tensor(...) and torch.no_grad(): each of them cuts the way back.",
    ),
)


def _scores_in_loops(queries, keys, W_q, W_k, v):
    rows = [
        torch.stack([torch.stack([v @ torch.tanh(W_q @ q + W_k @ k) for k in sentence]) for q in asking])
        for asking, sentence in zip(queries, keys, strict=True)
    ]
    return torch.stack(rows)


def _scores_of_concatenation(queries, keys, W_q, W_k, v):
    target, source = queries.shape[1], keys.shape[1]
    pairs = torch.cat(
        [queries[:, :, None].expand(-1, -1, source, -1), keys[:, None].expand(-1, target, -1, -1)], dim=-1
    )
    return torch.tanh(pairs @ torch.cat([W_q, W_k], dim=1).T) @ v


def _scores_with_layers(queries, keys, W_q, W_k, v):
    """nn.Linear with its bias set to zero."""
    layers = [torch.nn.Linear(W.shape[1], W.shape[0]) for W in (W_q, W_k, v[None])]
    for layer, W in zip(layers, (W_q, W_k, v[None]), strict=True):
        layer.weight = torch.nn.Parameter(W)
        torch.nn.init.zeros_(layer.bias)
    return layers[2](torch.tanh(layers[0](queries)[:, :, None] + layers[1](keys)[:, None])).squeeze(-1)


def _scores_by_target(queries, keys, W_q, W_k, v):
    linear = torch.nn.functional.linear
    offered = linear(keys, W_k)
    return torch.stack([torch.tanh(linear(q, W_q)[:, None] + offered) @ v for q in queries.unbind(1)], dim=1)


SCORE_VARIANTS = (
    Variant("three loops", _scores_in_loops),
    Variant("one target word at a time, with linear", _scores_by_target),
    Variant("query and key concatenated", _scores_of_concatenation),
    Variant("nn.Linear with zero biases", _scores_with_layers, ("bah-07",)),
    Variant(
        "einsum",
        lambda q, k, W_q, W_k, v: torch.einsum(
            "btsa,a->bts",
            (
                torch.einsum("btq,aq->bta", q, W_q)[:, :, None] + torch.einsum("bsk,ak->bsa", k, W_k)[:, None]
            ).tanh(),
            v,
        ),
    ),
)

ADDITIVE_SCORES = Exercise(
    question=find("04.2"),
    title="additive scores",
    minutes=15,
    difficulty=2,
    reference=_scores_reference,
    axes={"scores": "batch, target, source"},
    parts=(
        Part(
            "one query against one sentence",
            1,
            _draw_one_score,
            ("scores",),
            "the worked example: do its numbers come out of each of your lines?",
            (_keys_matter,),
        ),
        Part(
            "a batch of sentences, several queries each, and the gradient",
            1,
            _draw_scores,
            ("scores", "gradient of queries", "gradient of keys"),
            "the shapes after each line: which axis is the target's, which the source's?",
            (_keys_matter, _words_carry_their_scores),
        ),
    ),
    mistakes=SCORE_MISTAKES,
    variants=SCORE_VARIANTS,
    forbidden=("course_utils.models",),
)


# --- 04.3 the context of a bidirectional encoder ------------------------------------------------------------


def _turned(backward_states: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Backward states from reading order (last real word first) into sentence order; padding stays."""
    turned = backward_states.copy()
    for sentence, words in zip(turned, mask, strict=True):
        sentence[words] = sentence[words][::-1]
    return turned


def _context_reference(inputs: Inputs) -> Outputs:
    weights = _softmax(inputs["scores"], inputs["mask"])
    turned = _turned(inputs["backward_states"], inputs["mask"])
    states = np.concatenate([inputs["forward_states"], turned], axis=-1).astype(np.float64)
    return {"context": weights @ states, "weights": weights}


def _context_inputs(rng: Generator, batch: int, target: int, source: int, hidden: int) -> Inputs:
    mask = padded(rng, batch, source)
    junk = 100 * (~mask[..., None]).astype("float32")  # whatever stands at padding must not matter
    return {
        "scores": 2 * normal(rng, batch, target, source),
        "forward_states": normal(rng, batch, source, hidden) + junk,
        "backward_states": normal(rng, batch, source, hidden) + junk,
        "mask": mask,
    }


def _draw_context(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 45])
    tiny = {
        name: value.round(1) if value.dtype != bool else value
        for name, value in _context_inputs(rng, 1, 1, 3, 2).items()
    }
    tiny["mask"] = np.array([[True, True, False]])
    batch, target, source, hidden = sizes(rng, 4)
    return [
        tiny,
        _context_inputs(rng, 2, 4, 6, 3),
        _context_inputs(rng, batch, hidden, source, hidden),
        _context_inputs(rng, batch, target, source, hidden),
    ]


def _in_sentence_order(backward_states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    positions = mask.sum(1, keepdim=True) - 1 - torch.arange(mask.shape[1])  # (batch, source)
    return backward_states[torch.arange(len(mask))[:, None], positions.clamp(min=0)]


def _context_of(weights, *directions):
    return weights @ torch.cat(directions, dim=-1), weights


def _interleaved(scores, forward, backward, mask):
    states = torch.stack([forward, _in_sentence_order(backward, mask)], dim=-1).flatten(-2)
    return _context_of(_masked_softmax(scores, mask), states)


def _mean_of_states(scores, forward, backward, mask):
    states = torch.cat([forward, _in_sentence_order(backward, mask)], dim=-1)
    even = _masked_softmax(torch.zeros_like(scores), mask)
    return even @ states, _masked_softmax(scores, mask)


CONTEXT_MISTAKES = (
    Mistake(
        "backward states not turned round",
        lambda s, f, b, m: _context_of(_masked_softmax(s, m), f, b),
        "You join the backward states in reading order: the first word gets the state of the last one.",
        "the order: the first backward state belongs to the last real word.",
    ),
    Mistake(
        "padding turned round with the words",
        lambda s, f, b, m: _context_of(_masked_softmax(s, m), f, b.flip(1)),
        "You turn the whole row round, padding included, so that padding comes before the words.",
        "the real length of each sentence, mask.sum(1): only that many states are turned round.",
    ),
    Mistake(
        "directions added",
        lambda s, f, b, m: _context_of(_masked_softmax(s, m), f + _in_sentence_order(b, m)),
        "You add the two directions. They are joined: h_j has twice the width.",
        "torch.cat along the last axis.",
    ),
    Mistake(
        "forward states only",
        lambda s, f, b, m: _context_of(_masked_softmax(s, m), f),
        "Your context holds the forward states only, so no word knows what follows it.",
        "torch.cat of both directions along the last axis.",
    ),
    Mistake(
        "backward states only",
        lambda s, f, b, m: _context_of(_masked_softmax(s, m), _in_sentence_order(b, m)),
        "Your context holds the backward states only.",
        "torch.cat of both directions along the last axis.",
    ),
    Mistake(
        "backward half first",
        lambda s, f, b, m: _context_of(_masked_softmax(s, m), _in_sentence_order(b, m), f),
        "You put the backward half before the forward half.",
        "the order inside torch.cat: forward first.",
    ),
    Mistake(
        "halves interleaved",
        _interleaved,
        "You interleave the numbers of the two directions. The forward half comes first as a whole.",
        "torch.cat along the last axis, instead of stack and flatten.",
    ),
    Mistake(
        "no mask",
        lambda s, f, b, m: _context_of(torch.softmax(s, -1), f, _in_sentence_order(b, m)),
        "Your weights ignore the mask, so that padding enters the context.",
        "the softmax: padding must have weight 0.",
        ("ms-01", "cm-08"),
    ),
    Mistake(
        "mask inverted",
        lambda s, f, b, m: _context_of(_masked_softmax(s, ~m), f, _in_sentence_order(b, m)),
        "Your weights lie on the padding.",
        "the mask's meaning: True marks a real word.",
        ("cm-08",),
    ),
    Mistake(
        "softmax over the target axis",
        lambda s, f, b, m: _context_of(_masked_softmax(s, m, dim=1), f, _in_sentence_order(b, m)),
        "Your softmax runs over the target words instead of the source words.",
        "the dim of the softmax.",
    ),
    Mistake(
        "states averaged evenly",
        _mean_of_states,
        "Your context is the plain mean of the states: the weights are computed but not used.",
        "context = weights @ states.",
    ),
    Mistake(
        "scores instead of weights",
        lambda s, f, b, m: (s @ torch.cat([f, _in_sentence_order(b, m)], -1), _masked_softmax(s, m)),
        "You multiply the states by the scores. The weights, after the softmax, belong there.",
        "context = weights @ states.",
    ),
    Mistake(
        "results in the other order",
        lambda s, f, b, m: _context_of(_masked_softmax(s, m), f, _in_sentence_order(b, m))[::-1],
        "You return (weights, context); wanted is (context, weights).",
        "the return line.",
    ),
)


def _context_by_sentence(scores, forward, backward, mask):
    contexts, rows = [], []
    for s, f, b, m in zip(scores, forward, backward, mask, strict=True):
        n = int(m.sum())
        states = torch.cat([f[:n], b[:n].flip(0)], dim=-1)
        weights = torch.softmax(s[:, :n], -1)
        contexts.append(weights @ states)
        rows.append(torch.nn.functional.pad(weights, (0, len(m) - n)))
    return torch.stack(contexts), torch.stack(rows)


def _context_by_roll(scores, forward, backward, mask):
    """Turn the whole row round, then move the padding back to the end."""
    turned = torch.stack([row.flip(0).roll(int(m.sum()), 0) for row, m in zip(backward, mask, strict=True)])
    return _context_of(torch.softmax(_filled(scores, mask), -1), forward, turned)


def _context_in_halves(scores, forward, backward, mask):
    weights = _renormalised(scores, mask)
    order = (mask.sum(1, keepdim=True) - 1 - torch.arange(mask.shape[1])) % mask.shape[1]
    turned = backward.gather(1, order[..., None].expand_as(backward))
    return torch.cat([torch.einsum("bts,bsh->bth", weights, half) for half in (forward, turned)], -1), weights


CONTEXT_VARIANTS = (
    Variant("one sentence at a time", _context_by_sentence),
    Variant("flipped and rolled", _context_by_roll, ("ms-11",)),
    Variant("each half on its own, with gather", _context_in_halves, ("ms-04",)),
)

BIDIRECTIONAL_CONTEXT = Exercise(
    question=find("04.3"),
    title="context of a bidirectional encoder",
    minutes=15,
    difficulty=2,
    reference=_context_reference,
    axes={"context": "batch, target, 2 * hidden", "weights": "batch, target, source"},
    parts=(
        Part(
            "states of both directions, weighted word by word",
            1,
            _draw_context,
            ("context", "weights"),
            "one short sentence by hand: which backward state belongs to its first word?",
            (_hidden_words_weigh_nothing, _rows_sum_to_one),
        ),
    ),
    mistakes=CONTEXT_MISTAKES,
    variants=CONTEXT_VARIANTS,
)


# --- 04.4 one decoder step ----------------------------------------------------------------------------------


def _gru(x: np.ndarray, h: np.ndarray, inputs: Inputs) -> np.ndarray:
    """Float64 reference of torch.nn.GRUCell."""
    weight_ih, weight_hh, bias_ih, bias_hh = (inputs[name].astype(np.float64) for name in CELL_WEIGHTS)
    r_x, z_x, n_x = np.split(x @ weight_ih.T + bias_ih, 3, axis=-1)
    r_h, z_h, n_h = np.split(h @ weight_hh.T + bias_hh, 3, axis=-1)
    reset, update = (1 / (1 + np.exp(-gate)) for gate in (r_x + r_h, z_x + z_h))
    return (1 - update) * np.tanh(n_x + reset * n_h) + update * h


def _step_reference(inputs: Inputs) -> Outputs:
    def steps(given: Inputs) -> Outputs:
        outputs: Outputs = {}
        state, states = given["state"].astype(np.float64), given["encoder_states"].astype(np.float64)
        for t, embedding in enumerate(given["embeddings"], start=1):
            scores = _additive(state[:, None], states, *(given[name] for name in STEP_WEIGHTS))
            weights = _softmax(scores, given["mask"])
            context = (weights @ states)[:, 0]
            state = _gru(np.concatenate([embedding, context], axis=-1), state, given)
            outputs |= {
                f"weights at step {t}": weights[:, 0],
                f"context at step {t}": context,
                f"new_state at step {t}": state,
            }
        return outputs

    expected = steps(inputs)
    if "upstream" in inputs:
        last = f"new_state at step {len(inputs['embeddings'])}"
        for name in ("state", "encoder_states"):
            expected[f"gradient of {name}"] = numeric_gradient(lambda given: steps(given)[last], inputs, name)
    return expected


def _step_inputs(
    rng: Generator, steps: int, batch: int, source: int, hidden: int, word: int, width: int, attention: int
) -> Inputs:
    """Non-zero initial state and biases, so that nothing can hide behind a zero; no padding."""
    return {
        "state": normal(rng, batch, hidden),
        "embeddings": normal(rng, steps, batch, word),
        "encoder_states": normal(rng, batch, source, width),
        "mask": np.ones((batch, source), bool),
        "W_q": normal(rng, attention, hidden),
        "W_k": normal(rng, attention, width),
        "v": normal(rng, attention),
        "weight_ih": normal(rng, 3 * hidden, word + width),
        "weight_hh": normal(rng, 3 * hidden, hidden),
        "bias_ih": normal(rng, 3 * hidden),
        "bias_hh": normal(rng, 3 * hidden),
    }


def _with_padding(rng: Generator, inputs: Inputs) -> Inputs:
    return inputs | {"mask": padded(rng, *inputs["mask"].shape)}


def _draw_first_weights(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 46])
    batch, source, hidden, word, width, attention = sizes(rng, 6)
    same = int(rng.integers(3, 6))  # equal widths: what does not fit now fits, and is wrong quietly
    return [
        _step_inputs(rng, 1, 1, 2, 2, 3, 4, 3),
        _step_inputs(rng, 1, 2, same + 1, same, same, same, same),
        _step_inputs(rng, 1, batch, source, hidden, word, width, attention),
    ]


def _draw_context_step(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 47])
    batch, source, hidden, word, width, attention = sizes(rng, 6)
    same = int(rng.integers(3, 6))
    return [
        _with_padding(rng, _step_inputs(rng, 1, 2, 3, 2, 3, 4, 5)),
        _with_padding(rng, _step_inputs(rng, 1, 3, same + 1, same, same, same, same)),
        _with_padding(rng, _step_inputs(rng, 1, batch, source, hidden, word, width, attention)),
    ]


def _draw_steps(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 48])
    batch, source, hidden, word, width, attention = sizes(rng, 6)
    same = int(rng.integers(3, 6))
    small = _with_padding(rng, _step_inputs(rng, 3, 2, 3, 2, 3, 4, 5))
    return [
        _step_inputs(rng, 1, 1, 2, 2, 3, 4, 3),
        small | {"upstream": normal(rng, 2, 2)},
        _with_padding(rng, _step_inputs(rng, 3, 3, same + 1, same, same, same, same)),
        _with_padding(rng, _step_inputs(rng, 3, batch, source, hidden, word, width, attention)),
    ]


def _attend(state, encoder_states, mask, W_q, W_k, v):
    """The context (batch, width) and weights (batch, source) of `state`: right; the mistakes start here."""
    scores = _additive_scores(state[:, None], encoder_states, W_q, W_k, v)
    weights = _masked_softmax(scores, mask)
    return (weights @ encoder_states)[:, 0], weights[:, 0]


def _luong_order(state, embedding, encoder_states, mask, W_q, W_k, v, cell):
    context, _ = _attend(state, encoder_states, mask, W_q, W_k, v)
    new_state = cell(torch.cat([embedding, context], -1), state)
    return new_state, *_attend(new_state, encoder_states, mask, W_q, W_k, v)


def _cell_first(state, embedding, encoder_states, mask, W_q, W_k, v, cell):
    nothing = encoder_states.new_zeros(len(state), encoder_states.shape[-1])
    new_state = cell(torch.cat([embedding, nothing], -1), state)
    return new_state, *_attend(new_state, encoder_states, mask, W_q, W_k, v)


def _feeding(feed: Callable) -> Callable:
    """A step whose cell is fed `feed(embedding, context, encoder_states, mask)`."""

    def step(state, embedding, encoder_states, mask, W_q, W_k, v, cell):
        context, weights = _attend(state, encoder_states, mask, W_q, W_k, v)
        return cell(feed(embedding, context, encoder_states, mask), state), context, weights

    return step


def _attending(attend: Callable) -> Callable:
    """A step that attends with `attend(state, encoder_states, mask, W_q, W_k, v)`."""

    def step(state, embedding, encoder_states, mask, W_q, W_k, v, cell):
        context, weights = attend(state, encoder_states, mask, W_q, W_k, v)
        return cell(torch.cat([embedding, context], -1), state), context, weights

    return step


_right_step = _attending(_attend)


def _mean(encoder_states, mask):
    return encoder_states.masked_fill(~mask[..., None], 0.0).sum(1) / mask.sum(1, keepdim=True)


def _context_of_keys(state, encoder_states, mask, W_q, W_k, v):
    _, weights = _attend(state, encoder_states, mask, W_q, W_k, v)
    return (weights[:, None] @ (encoder_states @ W_k.T))[:, 0], weights


def _even_context(state, encoder_states, mask, W_q, W_k, v):
    return _attend(state, torch.zeros_like(encoder_states), mask, W_q, W_k, v)[1]


def _blind(state, encoder_states, mask, W_q, W_k, v):
    weights = _even_context(state, encoder_states, mask, W_q, W_k, v)
    return (weights[:, None] @ encoder_states)[:, 0], weights


def _word_asks(state, embedding, encoder_states, mask, W_q, W_k, v, cell):
    context, weights = _attend(embedding, encoder_states, mask, W_q, W_k, v)
    return cell(torch.cat([embedding, context], -1), state), context, weights


def _state_and_input_swapped(state, embedding, encoder_states, mask, W_q, W_k, v, cell):
    context, weights = _attend(state, encoder_states, mask, W_q, W_k, v)
    return cell(state, torch.cat([embedding, context], -1)), context, weights


def _old_state_returned(state, *others):
    _, context, weights = _right_step(state, *others)
    return state, context, weights


def _state_detached(state, *others):
    return _right_step(state.detach(), *others)


STEP_MISTAKES = (
    Mistake(
        "attends with the new state",
        _luong_order,
        "You score with the new state s_t. In Bahdanau's model s_{t-1} asks, before the cell runs.",
        "the order: attend with the state you were given, then run the cell. Luong's order is the other.",
        ("bah-04",),
    ),
    Mistake(
        "cell first, with an empty context",
        _cell_first,
        "You run the cell with a context of zeros and attend afterwards, with the new state.",
        "the order: attend with s_{t-1}, then feed that context to the cell, at the first step too.",
        ("bah-04",),
    ),
    Mistake(
        "context not fed to the cell",
        _feeding(lambda e, c, states, mask: torch.cat([e, torch.zeros_like(c)], -1)),
        "The context never reaches the cell: the new state is what a context of zeros would give.",
        "the input of the cell: the embedding joined with the context.",
        ("bah-04",),
    ),
    Mistake(
        "fixed vector fed to the cell",
        _feeding(lambda e, c, states, mask: torch.cat([e, _mean(states, mask)], -1)),
        "The cell gets the mean of the encoder states, the same at every step, instead of the context.",
        "the input of the cell.",
    ),
    Mistake(
        "last encoder state fed to the cell",
        _feeding(lambda e, c, states, mask: torch.cat([e, states[:, -1]], -1)),
        "The cell gets the last encoder state, the same at every step, instead of the context.",
        "the input of the cell.",
    ),
    Mistake(
        "context before the embedding",
        _feeding(lambda e, c, states, mask: torch.cat([c, e], -1)),
        "You join context and embedding in the other order than this cell's weights expect.",
        "the order inside torch.cat: the embedding first.",
    ),
    Mistake(
        "previous word as a distribution",
        _feeding(lambda e, c, states, mask: torch.cat([e.softmax(-1), c], -1)),
        "You apply a softmax to the embedding. The cell wants the embedding of the chosen word as it is.",
        "what you do to `embedding` before the cell.",
        ("bah-05",),
    ),
    Mistake(
        "context of the projected keys",
        _attending(_context_of_keys),
        "Your context is a weighted sum of the projected keys W_k h_j. The states h_j themselves are wanted.",
        "context = weights @ encoder_states.",
        ("bah-03",),
    ),
    Mistake(
        "encoder states left out of the score",
        _attending(_blind),
        "The encoder states do not enter your score, so that all source words weigh the same.",
        "the score: W_k times each encoder state stands inside the tanh.",
        ("bah-02",),
    ),
    Mistake(
        "the word asks",
        _word_asks,
        "You score with the embedding of the previous word. It is the state that asks.",
        "the query that you pass to the score.",
        ("bah-02",),
    ),
    Mistake(
        "no mask",
        _attending(lambda s, H, m, W_q, W_k, v: _attend(s, H, torch.ones_like(m), W_q, W_k, v)),
        "You ignore the mask, so that padding takes weight.",
        "the softmax: padding must have weight 0.",
        ("cm-08",),
    ),
    Mistake(
        "mask inverted",
        _attending(lambda s, H, m, W_q, W_k, v: _attend(s, H, ~m, W_q, W_k, v)),
        "Your weights lie on the padding.",
        "the mask's meaning: True marks a real word.",
        ("cm-08",),
    ),
    Mistake(
        "old state returned",
        _old_state_returned,
        "You return the state that came in, so that every step asks the same question.",
        "the return line: the new state that the cell gave.",
        ("bah-08",),
    ),
    Mistake(
        "state and input swapped",
        _state_and_input_swapped,
        "You hand the cell its state first and its input second.",
        "the call of the cell: cell(input, state).",
    ),
    Mistake(
        "state detached",
        _state_detached,
        "You cut the state off from the step before, so that no gradient flows back through the steps.",
        ".detach(), .data or torch.no_grad() on the state.",
    ),
)


def _step_with_biased_score(state, embedding, encoder_states, mask, W_q, W_k, v, cell):
    """A bias beside v moves all scores of a row alike, and the softmax does not notice."""
    scores = _additive_scores(state[:, None], encoder_states, W_q, W_k, v)[:, 0] + 0.7
    weights = torch.softmax(scores.masked_fill(~mask, -INF), -1)
    context = torch.bmm(weights.unsqueeze(1), encoder_states).squeeze(1)
    return cell(torch.cat((embedding, context), 1), state), context, weights


def _step_with_layers(state, embedding, encoder_states, mask, W_q, W_k, v, cell):
    scores = _scores_with_layers(state[:, None], encoder_states, W_q, W_k, v)
    weights = _renormalised(scores, mask)
    context = torch.einsum("bts,bsw->btw", weights, encoder_states)
    return [cell(torch.cat((embedding, context[:, 0]), 1), state), context[:, 0], weights[:, 0]]


def _step_by_hand(state, embedding, encoder_states, mask, W_q, W_k, v, cell):
    """The GRU written out, its input product split into a word's share and a context's share."""
    context, weights = _attend(state, encoder_states, mask, W_q, W_k, v)
    of_word, of_context = cell.weight_ih.split([embedding.shape[1], context.shape[1]], dim=1)
    x = embedding @ of_word.T + context @ of_context.T + cell.bias_ih
    r_x, z_x, n_x = x.chunk(3, -1)
    r_h, z_h, n_h = (state @ cell.weight_hh.T + cell.bias_hh).chunk(3, -1)
    update = torch.sigmoid(z_x + z_h)
    new = torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h)
    return (1 - update) * new + update * state, context, weights


STEP_VARIANTS = (
    Variant("a bias in the score", _step_with_biased_score, ("bah-07", "ms-11")),
    Variant("nn.Linear with zero biases, a list returned", _step_with_layers, ("bah-07", "ms-04")),
    Variant("the GRU written out", _step_by_hand),
)

DECODER_STEP = Exercise(
    question=find("04.4"),
    title="one Bahdanau decoder step",
    minutes=20,
    difficulty=3,
    reference=_step_reference,
    axes={"weights": "batch, source", "context": "batch, encoder_width", "new_state": "batch, hidden"},
    parts=(
        Part(
            "the old state asks: weights of one step",
            1,
            _draw_first_weights,
            ("weights",),
            "which state enters the score, and what the softmax runs over.",
        ),
        Part(
            "weights and context with padding",
            1,
            _draw_context_step,
            ("weights", "context"),
            "what the weights are multiplied with.",
        ),
        Part(
            "three steps in a row, and the gradient through them",
            1,
            _draw_steps,
            ("weights", "context", "new_state", "gradient of state", "gradient of encoder_states"),
            "what the cell gets, and in which order.",
        ),
    ),
    mistakes=STEP_MISTAKES,
    variants=STEP_VARIANTS,
    forbidden=("course_utils.models.recurrent", "course_utils.models.seq2seq"),
)


# --- 04.5 alignment error rate ------------------------------------------------------------------------------


def _rate_reference(inputs: Inputs) -> Outputs:
    hits = total = 0
    for links, sure, possible in zip(*(inputs[name] for name in LINKS), strict=True):
        links, sure = set(links), set(sure)
        hits += len(links & sure) + len(links & (sure | set(possible)))
        total += len(links) + len(sure)
    return {"rate": np.array(1 - hits / total if total else 0.0)}


def _alignment(
    rng: Generator, *, kept: int, lost: int, allowed: int, open: int, wrong: int
) -> dict[str, list]:
    """One sentence: so many sure links found and lost, possible ones found and left open, wrong links."""
    counts = (kept, lost, allowed, open, wrong)
    while True:  # until (source, target) and (target, source) can not be mistaken for each other
        size = sum(counts)
        pairs = [(int(s), int(t)) for s, t in zip(rng.permutation(size), rng.permutation(size), strict=True)]
        if all((t, s) not in pairs for s, t in pairs[:kept]):
            break
    groups = np.split(np.arange(size), np.cumsum(counts)[:-1])
    a, b, c, d, e = ([pairs[i] for i in group] for group in groups)
    return {"links": sorted(a + c + e), "sure": sorted(a + b), "possible": sorted(c + d)}


def _corpus(*sentences: dict[str, list]) -> Inputs:
    return {name: [sentence[name] for sentence in sentences] for name in LINKS}


def _draw_one_sentence(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 49])
    many = dict(
        zip(("kept", "lost", "allowed", "open", "wrong"), rng.permutation([3, 4, 5, 6, 7]), strict=True)
    )
    return [
        _corpus(_alignment(rng, kept=2, lost=1, allowed=1, open=1, wrong=1)),
        _corpus(_alignment(rng, **{name: int(count) for name, count in many.items()})),
    ]


def _draw_corpus(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 50])
    short = _alignment(rng, kept=1, lost=1, allowed=1, open=1, wrong=2)
    long = _alignment(rng, kept=6, lost=2, allowed=3, open=2, wrong=1)
    unsure = {"links": [(0, 1)], "sure": [], "possible": [(1, 1)]}
    empty = {"links": [], "sure": [], "possible": []}
    twice = {name: list(value) for name, value in short.items()}  # the same pairs of numbers in two sentences
    return [
        _corpus(short, long),
        _corpus(short, twice, long),
        _corpus(long, unsure, empty, short),
        _corpus(empty, empty),
    ]


def _counts(links, sure, possible):
    """Sums over the corpus: links, sure, possible, links that are sure, links that are sure or possible."""
    groups = [(a, s, s | p) for a, s, p in zip(links, sure, possible, strict=True)]
    return [
        sum(len(part(*group)) for group in groups)
        for part in (
            lambda a, s, p: a,
            lambda a, s, p: s,
            lambda a, s, p: p,
            lambda a, s, p: a & s,
            lambda a, s, p: a & p,
        )
    ]


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 1.0


def _rate(links, sure, possible):
    n_links, n_sure, _, n_kept, n_allowed = _counts(links, sure, possible)
    return 1 - _share(n_kept + n_allowed, n_links + n_sure)


def _from_counts(formula: Callable) -> Callable:
    """A rate from the counts: links, sure, possible, links & sure, links & possible."""
    return lambda links, sure, possible: formula(*_counts(links, sure, possible))


def _possible_without_sure(links, sure, possible):
    hits = sum(len(a & s) + len(a & p) for a, s, p in zip(links, sure, possible, strict=True))
    return 1 - _share(hits, sum(map(len, links)) + sum(map(len, sure)))


def _mean_of_rates(links, sure, possible):
    rates = [_rate([a], [s], [p]) for a, s, p in zip(links, sure, possible, strict=True)]
    return sum(rates) / len(rates)


def _pooled(links, sure, possible):
    return _rate(*([set().union(*sets)] for sets in (links, sure, possible)))


def _turned_links(links, sure, possible):
    return _rate([{(t, s) for s, t in sentence} for sentence in links], sure, possible)


def _divides_by_zero(links, sure, possible):
    n_links, n_sure, _, n_kept, n_allowed = _counts(links, sure, possible)
    return 1 - (n_kept + n_allowed) / (n_links + n_sure)


def _possible_written(links, sure, possible):
    for s, p in zip(sure, possible, strict=True):
        p |= s
    return _rate(links, sure, possible)


RATE_MISTAKES = (
    Mistake(
        "agreement instead of error",
        lambda *sets: 1 - _rate(*sets),
        "You return the share that agrees. The error rate is 1 minus that.",
        "the 1 - at the start of the equation.",
    ),
    Mistake(
        "F1 of the sure links",
        _from_counts(lambda a, s, p, a_s, a_p: 1 - _share(2 * a_s, a + s)),
        "You count the sure links twice and the possible ones never: that is 1 - F1 against the sure links.",
        "the second term of the numerator: links that are sure or possible.",
    ),
    Mistake(
        "F1 of the possible links",
        _from_counts(lambda a, s, p, a_s, a_p: 1 - _share(2 * a_p, a + p)),
        "You measure against the possible links only, which asks for links that nobody is sure of.",
        "the equation: the sure links stand in the numerator and in the denominator.",
    ),
    Mistake(
        "possible without sure",
        _possible_without_sure,
        "Your possible set lacks the sure links. Each of them is possible too: a right one counts twice.",
        "the set P of the equation: sure | possible.",
    ),
    Mistake(
        "1 - precision",
        _from_counts(lambda a, s, p, a_s, a_p: 1 - _share(a_p, a)),
        "You measure precision only: missing sure links cost nothing.",
        "the equation: the sure links stand in the numerator and in the denominator.",
    ),
    Mistake(
        "1 - recall",
        _from_counts(lambda a, s, p, a_s, a_p: 1 - _share(a_s, s)),
        "You measure recall only: wrong links cost nothing.",
        "the equation: the links stand in the denominator too.",
    ),
    Mistake(
        "possible links in the denominator",
        _from_counts(lambda a, s, p, a_s, a_p: 1 - _share(a_s + a_p, a + p)),
        "You divide by |A| + |P|. A possible link that was left out must cost nothing: it is |A| + |S|.",
        "the denominator.",
    ),
    Mistake(
        "Jaccard distance",
        _from_counts(lambda a, s, p, a_s, a_p: 1 - _share(a_s, a + s - a_s)),
        "You divide the intersection by the union. That is the Jaccard distance, another measure.",
        "the equation.",
    ),
    Mistake(
        "precision and recall averaged",
        _from_counts(lambda a, s, p, a_s, a_p: 1 - (_share(a_p, a) + _share(a_s, s)) / 2),
        "You average precision and recall. The rate adds their counts first and divides once.",
        "the equation: one fraction.",
    ),
    Mistake(
        "source and target swapped",
        _turned_links,
        "You compare (target, source) links with (source, target) links.",
        "the order inside the pairs: it is (source, target) in all three.",
    ),
    Mistake(
        "mean of the sentences' rates",
        _mean_of_rates,
        "You average the rates of the sentences, so that a short sentence weighs as much as a long one.",
        "where you divide: add the counts of all sentences first, and divide once.",
    ),
    Mistake(
        "sentences poured together",
        _pooled,
        "You join the links of all sentences in one set: (0, 0) of two sentences becomes a single link.",
        "the union: count sentence by sentence, and add the counts.",
    ),
    Mistake(
        "first sentence only",
        lambda links, sure, possible: _rate(links[:1], sure[:1], possible[:1]),
        "Your rate is that of the first sentence.",
        "a return inside the loop, or an index [0].",
    ),
    Mistake(
        "in percent",
        lambda *sets: 100 * _rate(*sets),
        "You return percent. Wanted is a number from 0 to 1.",
        "the factor 100.",
    ),
    Mistake(
        "divides by zero",
        _divides_by_zero,
        "A corpus with neither links nor sure links divides by zero. There the rate is 0.0.",
        "the denominator, before you divide.",
    ),
    Mistake(
        "writes into the sets",
        _possible_written,
        "You write into the sets that you were given (|= changes a set). The caller still needs them.",
        "a new set, sure | possible, instead of |=.",
    ),
)


def _rate_with_tagged_links(links, sure, possible):
    """One set for the whole corpus, each link with the number of its sentence."""
    a, s, p = (
        {(n, *link) for n, group in enumerate(sets) for link in group} for sets in (links, sure, possible)
    )
    return 1 - (len(a & s) + len(a & (s | p))) / (len(a) + len(s)) if a or s else 0


def _rate_of_means(links, sure, possible):
    n_links, n_sure, _, n_kept, n_allowed = np.array(_counts(links, sure, possible), dtype=float)
    whole = n_links + n_sure
    if whole == 0:
        return np.float64(0)
    precision, recall = n_allowed / max(n_links, 1), n_kept / max(n_sure, 1)
    return 1 - (precision * n_links + recall * n_sure) / whole


RATE_VARIANTS = (
    Variant("links tagged with their sentence, 0 as an int", _rate_with_tagged_links),
    Variant("weighted precision and recall, a numpy number", _rate_of_means),
    Variant("a tensor without axes", lambda *sets: torch.tensor(_rate(*sets), dtype=torch.float64)),
    Variant("rounded to nine places", lambda *sets: round(_rate(*sets), 9), ("env-25",)),
)

ALIGNMENT_ERROR_RATE = Exercise(
    question=find("04.5"),
    title="alignment error rate",
    minutes=15,
    difficulty=2,
    reference=_rate_reference,
    axes={"rate": ""},
    parts=(
        Part(
            "one sentence",
            1,
            _draw_one_sentence,
            ("rate",),
            "the four counts of the equation: print each and count by hand.",
        ),
        Part(
            "a whole corpus",
            1,
            _draw_corpus,
            ("rate",),
            "what you add up over the sentences, and where you divide.",
        ),
    ),
    mistakes=RATE_MISTAKES,
    variants=RATE_VARIANTS,
    forbidden=("course_utils.metrics",),
)

EXERCISES = [MASKED_SOFTMAX, ADDITIVE_SCORES, BIDIRECTIONAL_CONTEXT, DECODER_STEP, ALIGNMENT_ERROR_RATE]
