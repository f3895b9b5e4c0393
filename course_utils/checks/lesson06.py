"""The exercises of lesson 06, self-attention (Vaswani et al. 2017), and how they go wrong.

Sources such as "mha-02" name the public bug report or thread that a mistake or a variant was first seen in.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.random import Generator, default_rng

from course_utils.checks.draws import normal, sizes
from course_utils.checks.engine import Exercise, Finding, Mistake, Part, Variant, numeric_gradient
from course_utils.questions import find
from course_utils.questions.asking import (
    Inputs,
    Outputs,
)
from course_utils.questions.lesson06 import DOT_ARGUMENTS, MASKS, MULTI_TENSORS, layers

INF = float("inf")
Tensor = torch.Tensor


# --- 06.1 scaled dot-product attention ----------------------------------------------------------------------


def _attention(query: np.ndarray, key: np.ndarray, value: np.ndarray, mask: np.ndarray) -> tuple:
    """Float64 reference: output and weights; a row that may attend to nothing is zeros."""
    query, key, value = (a.astype(np.float64) for a in (query, key, value))
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1])
    top = np.where(mask, scores, -INF).max(-1, keepdims=True)
    parts = np.where(mask, np.exp(np.where(mask, scores - np.where(top == -INF, 0, top), -INF)), 0.0)
    total = parts.sum(-1, keepdims=True)
    weights = parts / np.where(total > 0, total, 1.0)
    return weights @ value, weights


def _dot_reference(inputs: Inputs) -> Outputs:
    output, weights = _attention(*(inputs[name] for name in DOT_ARGUMENTS))
    expected = {"output": output, "weights": weights}
    if "upstream" in inputs:

        def outputs(given: Inputs) -> np.ndarray:
            return _attention(*(given[name] for name in DOT_ARGUMENTS))[0]

        for name in DOT_ARGUMENTS[:3]:
            expected[f"gradient of {name}"] = numeric_gradient(outputs, inputs, name)
    return expected


def _dot_inputs(
    rng: Generator, batch: int, target: int, source: int, width: int, value: int, dtype: str = "float32"
) -> Inputs:
    return {
        "query": normal(rng, batch, target, width, dtype=dtype),
        "key": normal(rng, batch, source, width, dtype=dtype),
        "value": normal(rng, batch, source, value, dtype=dtype),
        "mask": np.ones((batch, target, source), bool),
    }


def _widths(rng: Generator) -> int:
    """A width for which the root, the width and 1 are clearly different factors."""
    return int(rng.choice([3, 5, 6, 7]))


def _hidden(rng: Generator, *shape: int) -> np.ndarray:
    """A mask that hides and shows something in every row, each row its own."""
    mask = rng.random(shape) < 0.5
    mask[..., 0] |= ~mask.any(-1)
    mask[..., 1] &= ~mask.all(-1)
    return mask


def _draw_dot(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 61])
    tiny = _dot_inputs(rng, 1, 1, 2, 3, 1)
    tiny = {name: a.round(1) if a.dtype != bool else a for name, a in tiny.items()}
    batch, target, source, value = sizes(rng, 4)
    same = _widths(rng)  # as many keys as they are wide: a product without a transpose does not raise
    return [
        tiny,
        _dot_inputs(rng, 2, 4, same, same, same),
        _dot_inputs(rng, batch, target, source, _widths(rng), value),
    ]


def _draw_dot_masks(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 62])
    tiny = _dot_inputs(rng, 1, 2, 3, 3, 1)
    tiny = {name: a.round(1) if a.dtype != bool else a for name, a in tiny.items()}
    tiny["mask"] = np.array([[[True, False, True], [False, True, True]]])
    cases = [tiny]

    # As many queries as keys: a mask that lies on its side does not raise.
    square = _dot_inputs(rng, 2, 5, 5, _widths(rng), 3)
    cases.append(square | {"mask": _hidden(rng, 2, 5, 5)})

    # Exponentials that no float64 can hold.
    large = _dot_inputs(rng, 2, 3, 4, 5, 3, "float64")
    large = large | {"query": 60 * large["query"], "key": 60 * large["key"], "mask": _hidden(rng, 2, 3, 4)}
    cases.append(large)

    mask = _hidden(rng, 2, 3, 4)
    gradient = _dot_inputs(rng, 2, 3, 4, 5, 2) | {"mask": mask, "upstream": normal(rng, 2, 3, 2)}
    empty = mask.copy()
    empty[0, 1] = False
    cases += [gradient | {"mask": empty}, gradient]
    return cases


def _hidden_weigh_nothing(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    if (abs(outputs["weights"][expected["weights"] == 0]) > 1e-6).any() and not inputs["mask"].all():
        return Finding(
            "A position that the mask hides gets weight.", "where the mask enters.", output="weights"
        )
    return None


def _rows_sum_to_one(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    totals = outputs["weights"].astype(np.float64).sum(-1)
    if (abs(totals - expected["weights"].sum(-1)) > 1e-4).any():
        return Finding(
            "The weights of a query do not sum to 1 over the keys (0 where nothing may be attended to).",
            "the axis that you normalise over, and where the mask enters.",
            output="weights",
        )
    return None


def _masked_softmax(scores: Tensor, mask: Tensor, dim: int = -1) -> Tensor:
    """What the mistakes below start from: right, and safe for empty rows."""
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(~mask, lowest), dim).masked_fill(~mask, 0.0)


def _scores(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.mT / query.shape[-1] ** 0.5


def _sum(weights: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    return weights @ value, weights


def _from_scores(scores: Callable) -> Callable:
    """Attention whose scores are `scores(query, key, value)`."""
    return lambda q, k, v, m: _sum(_masked_softmax(scores(q, k, v), m), v)


def _from_softmax(softmax: Callable) -> Callable:
    """Attention whose weights are `softmax(scores, mask)`."""
    return lambda q, k, v, m: _sum(softmax(_scores(q, k), m), v)


_right_attention = _from_softmax(_masked_softmax)


def _exponentials_overflow(scores, mask):
    parts = torch.exp(scores) * mask
    return parts / parts.sum(-1, keepdim=True).clamp(min=1e-30)


def _gradient_nan(scores, mask):
    hide = torch.zeros_like(scores).masked_fill(~mask, -INF)
    return torch.softmax(scores + hide, -1).nan_to_num(0.0)


def _only_empty_rows_zeroed(scores, mask):
    """Rows without a key by torch.where; safe forwards and backwards."""
    some = mask.any(-1, keepdim=True)
    weights = torch.softmax(torch.where(some, scores.masked_fill(~mask, -INF), 0.0), -1)
    return torch.where(some, weights, 0.0)


DOT_MISTAKES = (
    Mistake(
        "not scaled",
        _from_scores(lambda q, k, v: q @ k.mT),
        "Your scores are not divided by the square root of the width of a key, so the softmax is too sharp.",
        "the division by sqrt(d_k), before the softmax.",
        ("sd-03",),
    ),
    Mistake(
        "divided by the width",
        _from_scores(lambda q, k, v: q @ k.mT / q.shape[-1]),
        "You divide the scores by d_k. The root is missing: by sqrt(d_k).",
        "the scale.",
        ("sd-03",),
    ),
    Mistake(
        "multiplied by the root",
        _from_scores(lambda q, k, v: q @ k.mT * q.shape[-1] ** 0.5),
        "Your scores come out multiplied by sqrt(d_k). A scale of d_k ** -0.5 is a factor, not a divisor.",
        "the scale: is it d_k ** 0.5 to divide by, or d_k ** -0.5 to multiply with?",
        ("sd-02",),
    ),
    Mistake(
        "scaled by the value's width",
        _from_scores(lambda q, k, v: q @ k.mT / v.shape[-1] ** 0.5),
        "You divide by the root of the width of the values. It is the width of queries and keys, d_k.",
        "which tensor the width is taken from.",
    ),
    Mistake(
        "scaled by the number of keys",
        _from_scores(lambda q, k, v: q @ k.mT / k.shape[1] ** 0.5),
        "You divide by the root of how many keys there are. It is how wide they are, d_k.",
        "which axis the width is taken from: the last one.",
    ),
    Mistake(
        "scaled after the softmax",
        lambda q, k, v, m: _sum(_masked_softmax(q @ k.mT, m) / q.shape[-1] ** 0.5, v),
        "You divide the weights. The scores are divided, before the softmax.",
        "the order of the two lines.",
    ),
    Mistake(
        "keys not transposed",
        _from_scores(lambda q, k, v: q @ k / q.shape[-1] ** 0.5),
        "You multiply with the keys as they are. Each query meets each key where the keys are transposed.",
        "query @ key.transpose(-2, -1), or key.mT: (target, width) times (width, source).",
    ),
    Mistake(
        "keys transposed in all axes",
        _from_scores(lambda q, k, v: q @ k.permute(2, 1, 0) / q.shape[-1] ** 0.5),
        "You turn all axes of the keys round, the batch too. Only the last two trade places.",
        "key.transpose(-2, -1), or key.mT; .T is for matrices.",
    ),
    Mistake(
        "keys reshaped",
        _from_scores(lambda q, k, v: q @ k.reshape(k.shape[0], k.shape[2], k.shape[1]) / q.shape[-1] ** 0.5),
        "You reshape the keys to fit. That deals their numbers out anew; a transpose keeps keys together.",
        "key.transpose(-2, -1), or key.mT.",
    ),
    Mistake(
        "softmax over the queries",
        _from_softmax(lambda s, m: _masked_softmax(s, m, dim=1)),
        "Your softmax runs over the queries. Each query shares its attention among the keys.",
        "the dim of the softmax: scores are (batch, target, source).",
    ),
    Mistake(
        "softmax over the batch",
        _from_softmax(lambda s, m: _masked_softmax(s, m, dim=0)),
        "Your softmax runs over the batch, so that sentences take weight from one another.",
        "the dim of the softmax: scores are (batch, target, source).",
    ),
    Mistake(
        "sum of the keys",
        lambda q, k, v, m: _right_attention(q, k, k, m),
        "Your output is a weighted sum of the keys. Keys are what is asked; values are what is given.",
        "the last product: weights @ value.",
    ),
    Mistake(
        "scores instead of weights",
        lambda q, k, v, m: (_scores(q, k) @ v, _masked_softmax(_scores(q, k), m)),
        "You multiply the values by the scores. The weights, after the softmax, belong there.",
        "output = weights @ value.",
    ),
    Mistake(
        "results in the other order",
        lambda q, k, v, m: _right_attention(q, k, v, m)[::-1],
        "You return (weights, output); wanted is (output, weights).",
        "the return line.",
    ),
    Mistake(
        "mask inverted",
        _from_softmax(lambda s, m: _masked_softmax(s, ~m)),
        "Your weights lie on what the mask hides. True means: may attend.",
        "masked_fill fills where its mask is True, so it wants ~mask.",
        ("sd-06", "cm-08"),
    ),
    Mistake(
        "mask inverted, with -inf",
        _from_softmax(lambda s, m: torch.softmax(s.masked_fill(m, -INF), -1)),
        "Your weights lie on what the mask hides; where it hides nothing they are NaN. True: may attend.",
        "masked_fill fills where its mask is True, so it wants ~mask.",
        ("sd-06", "cm-08"),
    ),
    Mistake(
        "no mask",
        _from_softmax(lambda s, m: torch.softmax(s, -1)),
        "Your weights are those of a softmax without any mask.",
        "whether the masked scores are what reaches the softmax (masked_fill returns a new tensor).",
    ),
    Mistake(
        "mask multiplied into the scores",
        _from_softmax(lambda s, m: torch.softmax(s * m, -1)),
        "You multiply the scores by the mask. A hidden position then scores 0, and exp(0) = 1 is weight.",
        "the value a hidden position needs before the softmax, so that its exponential is 0.",
        ("ms-01",),
    ),
    Mistake(
        "mask added as 0 and 1",
        _from_softmax(lambda s, m: torch.softmax(s + m.to(s.dtype), -1)),
        "You add the mask to the scores as 0 and 1, which moves them by 1 and hides nothing.",
        "what must be added so that the exponential becomes 0 (or use masked_fill).",
        ("ms-08",),
    ),
    Mistake(
        "zero times infinity",
        _from_softmax(lambda s, m: torch.softmax(s + (1 - m.to(s.dtype)) * -INF, -1)),
        "You multiply the flipped mask by -inf. Where nothing is hidden that is 0 * -inf, which is NaN.",
        "masked_fill or torch.where, which choose a value instead of multiplying.",
        ("ms-06",),
    ),
    Mistake(
        "mask after the softmax",
        _from_softmax(lambda s, m: torch.softmax(s, -1) * m),
        "You zero hidden positions after the softmax: what they had taken is lost; rows sum to less than 1.",
        "masking before the softmax, or dividing by the new sum.",
    ),
    Mistake(
        "mask on its side",
        _from_softmax(lambda s, m: _masked_softmax(s, m.mT)),
        "Your mask is transposed: it hides target t from source s instead of source s from target t.",
        "the axes of the mask: it is (batch, target, source), as the scores are.",
    ),
    Mistake(
        "first mask for all",
        _from_softmax(lambda s, m: _masked_softmax(s, m[:1])),
        "All sentences get the mask of the first one.",
        "an index into the mask: it goes in as a whole.",
    ),
    Mistake(
        "exponentials overflow",
        _from_softmax(_exponentials_overflow),
        "You take exp of the scores as they are. A score of 1,000 is infinite then, and inf / inf is NaN.",
        "subtracting the row's largest score first (it changes no weight), or torch.softmax, which does.",
    ),
    Mistake(
        "empty rows are NaN",
        _from_softmax(lambda s, m: torch.softmax(s.masked_fill(~m, -INF), -1)),
        "A query that may attend to nothing gives NaN: its scores are all -inf; the softmax divides 0 by 0.",
        "those rows: their weights are 0.",
        ("ms-09",),
    ),
    Mistake(
        "empty rows are uniform",
        _from_softmax(lambda s, m: torch.softmax(s.masked_fill(~m, torch.finfo(s.dtype).min), -1)),
        "A query that may attend to nothing attends to everything: a finite fill is the same everywhere.",
        "those rows: set hidden weights to 0 after the softmax as well.",
        ("ms-09",),
    ),
    Mistake(
        "NaN in the gradient",
        _from_softmax(_gradient_nan),
        "The output is right, but the gradient of an empty row is NaN: nan_to_num mends one way only.",
        "a fill that never makes NaN, such as torch.finfo(scores.dtype).min, and zeros afterwards.",
        ("ms-09",),
    ),
    Mistake(
        "gradient cut",
        lambda q, k, v, m: _right_attention(q.detach(), k.detach(), v.detach(), m),
        "No gradient reaches queries, keys and values, so nothing before them could learn.",
        ".detach(), .data, .numpy(), torch.tensor(...) and torch.no_grad(): each of them cuts the way back.",
    ),
)


def _attention_row_by_row(query, key, value, mask):
    outputs, rows = [], []
    for q, k, v, m in zip(query, key, value, mask, strict=True):
        scores = torch.stack([(k @ row) / math.sqrt(k.shape[1]) for row in q])
        rows.append(_only_empty_rows_zeroed(scores, m))
        outputs.append(rows[-1] @ v)
    return torch.stack(outputs), torch.stack(rows)


def _renormalised(scores, mask):
    weights = torch.softmax(scores, -1) * mask
    return weights / weights.sum(-1, keepdim=True).clamp(
        min=1e-300 if scores.dtype == torch.float64 else 1e-30
    )


def _by_torch(query, key, value, mask):
    """torch's own, with its weights read off by the values of an identity."""
    eye = torch.eye(key.shape[1], dtype=key.dtype).expand(len(key), -1, -1)
    fused = torch.nn.functional.scaled_dot_product_attention
    return fused(query, key, value, mask), fused(query, key, eye, mask)


DOT_VARIANTS = (
    Variant(
        "query scaled first",
        lambda q, k, v, m: _sum(_masked_softmax((q * q.shape[-1] ** -0.5) @ k.mT, m), v),
        ("sd-07",),
    ),
    Variant(
        "query and key scaled by the fourth root",
        lambda q, k, v, m: _sum(
            _masked_softmax((q / q.shape[-1] ** 0.25) @ (k / k.shape[-1] ** 0.25).mT, m), v
        ),
        ("sd-07",),
    ),
    Variant("empty rows replaced before the softmax", _from_softmax(_only_empty_rows_zeroed), ("ms-09",)),
    Variant("one sentence at a time", _attention_row_by_row),
    Variant("-1e9, then zeros", lambda q, k, v, m: _sum(_filled(_scores(q, k), m, -1e9), v), ("ms-11",)),
    Variant(
        "einsum",
        lambda q, k, v, m: (
            torch.einsum("bts,bsv->btv", _masked_softmax(_einsum_scores(q, k), m), v),
            _masked_softmax(_einsum_scores(q, k), m),
        ),
    ),
    Variant("torch's own", _by_torch, ("sd-06",)),
)


def _filled(scores: Tensor, mask: Tensor, value: float) -> Tensor:
    return torch.softmax(scores.masked_fill(~mask, value), -1) * mask


def _einsum_scores(query: Tensor, key: Tensor) -> Tensor:
    return torch.einsum("btw,bsw->bts", query, key) / math.sqrt(query.shape[-1])


SCALED_DOT_PRODUCT = Exercise(
    question=find("06.1"),
    title="scaled dot-product attention with masks",
    minutes=15,
    difficulty=2,
    reference=_dot_reference,
    axes={"output": "batch, target, value_width", "weights": "batch, target, source"},
    parts=(
        Part(
            "scores, scale, softmax, weighted sum: nothing hidden",
            1,
            _draw_dot,
            ("weights", "output"),
            "the worked example: do its numbers come out of each of your lines?",
            (_rows_sum_to_one,),
        ),
        Part(
            "masks, empty rows, large scores and the gradient",
            1,
            _draw_dot_masks,
            ("weights", "output", "gradient of query", "gradient of key", "gradient of value"),
            "a printed row of your weights beside its row of the mask.",
            (_hidden_weigh_nothing, _rows_sum_to_one),
        ),
    ),
    mistakes=DOT_MISTAKES,
    variants=DOT_VARIANTS,
    forbidden=("course_utils.models", "torch.nn.functional.scaled_dot_product_attention"),
)


# --- 06.2 padding and causal masks --------------------------------------------------------------------------


def _masks_reference(inputs: Inputs) -> Outputs:
    source, target = (inputs[name] != inputs[f"{name}_pad"] for name in ("source", "target"))
    past = np.tri(target.shape[1], dtype=bool)
    masks = (
        source[:, :, None] & source[:, None],
        target[:, :, None] & target[:, None] & past,
        target[:, :, None] & source[:, None],
    )
    return {name: mask.astype(np.float64) for name, mask in zip(MASKS, masks, strict=True)}


def _sentences(rng: Generator, real: np.ndarray, pad: int, other_pad: int) -> np.ndarray:
    """Token ids, `pad` where nothing is real. The other side's pad id is an ordinary word here."""
    words = rng.choice([word for word in range(9) if word != pad], real.shape)
    words = np.where(rng.random(real.shape) < 0.3, other_pad, words)
    first = real.argmax(1)
    words[np.arange(len(real)), first] = other_pad  # in every sentence, where the causal mask shows it
    return np.where(real, words, pad)


def _right_padded(lengths, size: int) -> np.ndarray:
    return np.arange(size) < np.asarray(lengths)[:, None]


def _mask_inputs(rng: Generator, source: np.ndarray, target: np.ndarray) -> Inputs:
    source_pad, target_pad = (int(n) for n in rng.choice(9, 2, replace=False))
    return {
        "source": _sentences(rng, source, source_pad, target_pad),
        "target": _sentences(rng, target, target_pad, source_pad),
        "source_pad": source_pad,
        "target_pad": target_pad,
    }


def _draw_padding(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 63])
    tiny = _mask_inputs(rng, _right_padded([2], 3), _right_padded([2], 2))
    return [
        tiny,
        _mask_inputs(rng, _right_padded([4, 2, 5], 5), _right_padded([5, 3, 4], 5)),  # equal lengths
        _mask_inputs(rng, _right_padded([1, 6], 6), _right_padded([2, 4], 4)),
        _mask_inputs(rng, _right_padded([0, 3], 4)[:, ::-1], _right_padded([2, 3], 3)),  # one without a word
    ]


def _draw_causal(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 64])
    return [
        _mask_inputs(rng, _right_padded([2], 2), _right_padded([3], 3)),
        _mask_inputs(rng, _right_padded([2], 2), _right_padded([2], 3)[:, ::-1]),  # padded in front
        _mask_inputs(rng, _right_padded([5, 2, 4], 5), _right_padded([3, 5, 1], 5)[:, ::-1]),
        _mask_inputs(rng, _right_padded([4, 6], 6), _right_padded([5, 3], 5)),
    ]


def _masks_of_booleans(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    for name, kind in zip(MASKS, outputs["kinds"], strict=True):
        if kind != "bool":
            return Finding(
                f"{name} holds numbers ({kind}). A mask is boolean here; attention functions add numbers.",
                "comparisons, &, | and ~, which give booleans; .bool() turns 0 and 1 into them.",
                output=name,
            )
    return None


def _no_future(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    if (np.triu(outputs["decoder_mask"], 1) != 0).any():
        return Finding(
            "In the decoder's mask a position sees a later one: the model could copy the answer.",
            "the causal part: row t may see the columns 0 to t.",
            output="decoder_mask",
        )
    return None


def _itself(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    diagonal = np.diagonal(outputs["decoder_mask"], axis1=1, axis2=2)
    if (diagonal[inputs["target"] != inputs["target_pad"]] == 0).any():
        return Finding(
            "In the decoder's mask a real token does not see itself.",
            "the diagonal.",
            output="decoder_mask",
        )
    return None


def _past(length: int, diagonal: int = 0) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool).tril(diagonal)


def _masks(source, target, source_pad, target_pad, *, past: Callable = _past) -> tuple[Tensor, ...]:
    """The three masks: right; the mistakes start here."""
    keys = (source != source_pad)[:, None]  # (batch, 1, source)
    own = (target != target_pad)[:, None] & past(target.shape[1])  # (batch, target, target)
    return keys, own, keys.expand(-1, target.shape[1], -1)


def _changing(change: Callable) -> Callable:
    """The right masks, changed by `change(encoder, decoder, cross, source_is_real, target_is_real)`."""
    return lambda s, t, s_pad, t_pad: change(*_masks(s, t, s_pad, t_pad), s != s_pad, t != t_pad)


def _by_lengths(source, target, source_pad, target_pad):
    def first(tokens, pad):
        lengths = (tokens != pad).sum(1, keepdim=True)
        return (torch.arange(tokens.shape[1]) < lengths)[:, None]

    keys = first(source, source_pad)
    return keys, first(target, target_pad) & _past(target.shape[1]), keys


def _additive(source, target, source_pad, target_pad):
    masks = _masks(source, target, source_pad, target_pad)
    return tuple(torch.zeros(mask.shape).masked_fill(~mask, -INF) for mask in masks)


def _on_queries(source, target, source_pad, target_pad):
    s, t = (source != source_pad)[:, :, None], (target != target_pad)[:, :, None]
    return s.expand(-1, -1, source.shape[1]), t & _past(target.shape[1]), t.expand(-1, -1, source.shape[1])


MASK_MISTAKES = (
    Mistake(
        "own token hidden",
        lambda *tokens: _masks(*tokens, past=lambda n: _past(n, -1)),
        "Your causal mask hides the diagonal: no token sees itself, and the first one sees nothing at all.",
        "the diagonal: torch.tril keeps it, and torch.triu hides strictly above it with diagonal=1.",
        ("cm-02",),
    ),
    Mistake(
        "causal mask turned round",
        lambda *tokens: _masks(*tokens, past=lambda n: _past(n).T),
        "Your causal mask shows the future and hides the past.",
        "row t is the query: it may see the columns 0 to t, the lower triangle (torch.tril).",
        ("sd-06",),
    ),
    Mistake(
        "one token of the future",
        lambda *tokens: _masks(*tokens, past=lambda n: _past(n, 1)),
        "Your causal mask shows the next token too, which is the one to be predicted.",
        "the diagonal argument of torch.tril or torch.triu.",
    ),
    Mistake(
        "no causal mask",
        lambda *tokens: _masks(*tokens, past=lambda n: torch.ones(n, n, dtype=torch.bool)),
        "Your decoder mask has no causal part: every token sees the whole sentence.",
        "decoder_mask: padding & causal.",
    ),
    Mistake(
        "causal only",
        _changing(lambda e, d, c, s, t: (e, _past(d.shape[1]).expand_as(d), c)),
        "Your decoder mask ignores padding. Padding at the end is in the future; padding in front is not.",
        "decoder_mask: padding & causal.",
    ),
    Mistake(
        "or instead of and",
        _changing(lambda e, d, c, s, t: (e, t[:, None] | _past(d.shape[1]), c)),
        "You join padding and causal mask with or. A token may be seen if both allow it.",
        "the sign between the two: &.",
    ),
    Mistake(
        "padding on the query axis",
        _on_queries,
        "Your padding masks lie along the queries: they blank rows of padding and leave its columns visible.",
        "where you insert the new axis: (batch, keys) has to become (batch, 1, keys).",
        ("cm-05",),
    ),
    Mistake(
        "source pad for both",
        lambda s, t, s_pad, t_pad: _masks(s, t, s_pad, s_pad),
        "Your target masks are made with the source's pad id.",
        "which pad belongs to which sentence.",
        ("cm-06",),
    ),
    Mistake(
        "pads swapped",
        lambda s, t, s_pad, t_pad: _masks(s, t, t_pad, s_pad),
        "You look for the target's pad in the source and for the source's in the target.",
        "which pad belongs to which sentence.",
        ("cm-06",),
    ),
    Mistake(
        "cross-attention with the target's mask",
        _changing(lambda e, d, c, s, t: (e, d, d)),
        "Your cross mask is the decoder's own. In cross-attention the keys are the source's words.",
        "cross_mask: a row for each target word, a column for each source word.",
        ("cm-07",),
    ),
    Mistake(
        "cross-attention with the target's padding",
        _changing(lambda e, d, c, s, t: (e, d, t[:, None])),
        "Your cross mask hides the target's padding. In cross-attention the keys are the source's words.",
        "cross_mask: the source's padding, for every target word.",
        ("cm-07",),
    ),
    Mistake(
        "causal cross-attention",
        _changing(lambda e, d, c, s, t: (e, d, c & torch.ones(c.shape, dtype=torch.bool).tril())),
        "Your cross mask is causal. The source is known as a whole; only the target has a future.",
        "cross_mask: the source's padding alone.",
        ("cm-12",),
    ),
    Mistake(
        "no cross mask",
        _changing(lambda e, d, c, s, t: (e, d, torch.ones_like(c))),
        "Your cross mask lets the target read the source's padding.",
        "cross_mask: the source's padding, for every target word.",
        ("cm-07",),
    ),
    Mistake(
        "causal encoder",
        _changing(lambda e, d, c, s, t: (e & _past(e.shape[-1]), d, c)),
        "Your encoder mask is causal. The source is known as a whole, so its words see one another.",
        "encoder_mask: the source's padding alone.",
    ),
    Mistake(
        "masks inverted",
        _changing(lambda e, d, c, s, t: (~e, ~d, ~c)),
        "Your masks are True where something is hidden. Here True means: may attend.",
        "the comparison with pad (!=), and tril rather than triu. (nn.MultiheadAttention: the opposite.)",
        ("cm-08", "sd-06"),
    ),
    Mistake(
        "padding inverted",
        lambda s, t, s_pad, t_pad: (
            (s == s_pad)[:, None],
            (t == t_pad)[:, None] & _past(t.shape[1]),
            (s == s_pad)[:, None],
        ),
        "Your padding masks are True at padding. Here True means: a real token, may be attended to.",
        "the comparison with pad: !=.",
        ("cm-08",),
    ),
    Mistake(
        "padding taken to stand last",
        _by_lengths,
        "You count the real tokens and take them to stand first. Padding may stand in front as well.",
        "tokens != pad says of each token whether it is real; no lengths are needed.",
    ),
    Mistake(
        "0 and 1",
        lambda *tokens: tuple(mask.long() for mask in _masks(*tokens)),
        "Your masks hold 0 and 1 as whole numbers; a function that takes them for scores adds or multiplies.",
        "comparisons, & and ~, which give booleans; .bool() makes them of 0 and 1.",
        ("ms-08",),
    ),
    Mistake(
        "0 and 1 as floats",
        lambda *tokens: tuple(mask.float() for mask in _masks(*tokens)),
        "Your masks hold 0.0 and 1.0. Attention functions add floats to the scores, which hides nothing.",
        "comparisons, & and ~, which give booleans; .bool() makes them of 0 and 1.",
        ("ms-08",),
    ),
    Mistake(
        "0 and -inf",
        _additive,
        "Your masks are to be added (0 and -inf). Boolean ones are wanted: True means may attend.",
        "comparisons, & and ~, which give booleans.",
        ("cm-03",),
    ),
)


def _masks_by_triu(source, target, source_pad, target_pad):
    length = target.shape[1]
    future = torch.triu(torch.ones(length, length), diagonal=1).bool()
    source_hidden = source.eq(source_pad).unsqueeze(1)
    return ~source_hidden, ~(target.eq(target_pad).unsqueeze(1) | future), ~source_hidden


def _masks_from_infinity(source, target, source_pad, target_pad):
    length = target.shape[1]
    future = torch.triu(torch.full((length, length), -INF), diagonal=1) == -INF
    keys = (source != source_pad)[:, None, None]
    return keys, (target != target_pad)[:, None, None] & ~future, keys


def _masks_by_position(source, target, source_pad, target_pad):
    here = torch.arange(target.shape[1])
    real = torch.ne(target, target_pad)
    mask = torch.stack([row[None] * (here[None] <= here[:, None]) for row in real])
    keys = torch.ne(source, source_pad)[:, None].repeat(1, source.shape[1], 1)
    return [keys, mask, keys[:, :1].repeat(1, target.shape[1], 1)]


MASK_VARIANTS = (
    Variant("axes of size 1 are left", lambda *tokens: _masks(*tokens)),
    Variant("rows of padding cleared too", _changing(
        lambda e, d, c, s, t: (e & s[:, :, None], d & t[:, :, None], c & t[:, :, None])), ("cm-10",)),
    Variant("triu of what is hidden", _masks_by_triu, ("cm-03",)),
    Variant("triu of -inf, an axis for the heads", _masks_from_infinity, ("cm-03",)),
    Variant("positions compared, a list", _masks_by_position, ("cm-10", "cm-12")),
)  # fmt: skip

ATTENTION_MASKS = Exercise(
    question=find("06.2"),
    title="padding and causal masks",
    minutes=15,
    difficulty=2,
    reference=_masks_reference,
    axes={
        "encoder_mask": "batch, source, source",
        "decoder_mask": "batch, target, target",
        "cross_mask": "batch, target, source",
    },
    parts=(
        Part(
            "padding: what the encoder and the cross-attention may see",
            1,
            _draw_padding,
            ("encoder_mask", "cross_mask"),
            "rows are those who ask, columns those who are asked.",
            (_masks_of_booleans,),
        ),
        Part(
            "causal and padding in the decoder",
            1,
            _draw_causal,
            ("decoder_mask",),
            "one short sentence by hand, with its padding in front.",
            (_masks_of_booleans, _no_future, _itself),
        ),
    ),
    mistakes=MASK_MISTAKES,
    variants=MASK_VARIANTS,
    forbidden=("course_utils.models",),
)


# --- 06.3 split and merge heads -----------------------------------------------------------------------------


def _by_head_reference(inputs: Inputs) -> Outputs:
    x, mix = inputs["x"].astype(np.float64), inputs["attend_mixes"].astype(np.float64)
    own = x.shape[2] // inputs["heads"]
    parts = [x[:, :, head * own : (head + 1) * own] for head in range(inputs["heads"])]
    return {
        "heads": np.stack(parts, axis=1),
        "merged": np.concatenate([m @ part for m, part in zip(mix, parts, strict=True)], axis=-1),
    }


def _by_head_inputs(rng: Generator, batch: int, length: int, heads: int, own: int, *, count=False) -> Inputs:
    shape = (batch, length, heads * own)
    x = np.arange(np.prod(shape), dtype="float32").reshape(shape) if count else normal(rng, *shape)
    return {"x": x, "heads": heads, "attend_mixes": normal(rng, heads, length, length)}


def _draw_by_head(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 65])
    batch, length, heads, own = sizes(rng, 4)
    few, many = sizes(rng, 2, 2, 6)
    return [
        _by_head_inputs(rng, 1, 3, 2, 2, count=True),
        _by_head_inputs(rng, few, many, few, many + 1),  # as many sentences as heads
        _by_head_inputs(rng, many, few, few, many + 1),  # as long as there are heads
        _by_head_inputs(rng, batch, length, heads, own),
    ]


def _split(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _merge(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def _split_without_transpose(x: Tensor, heads: int) -> Tensor:
    return x.reshape(x.shape[0], heads, x.shape[1], -1)


def _split_interleaved(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (-1, heads)).permute(0, 3, 1, 2)


def _merge_without_transpose(x: Tensor) -> Tensor:
    return x.reshape(x.shape[0], x.shape[2], -1)


def _merge_as_heads_first(x: Tensor) -> Tensor:
    return x.permute(1, 2, 0, 3).reshape(x.shape[0], x.shape[2], -1)


def _merge_interleaved(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).flatten(2)


def _through(split: Callable = _split, merge: Callable = _merge) -> Callable:
    return lambda x, heads, attend: merge(attend(split(x, heads)))


BY_HEAD_MISTAKES = (
    Mistake(
        "split without a transpose",
        _through(_split_without_transpose),
        "You reshape straight to (batch, heads, length, own): each head gets some words, not some columns.",
        "two steps: first (batch, length, heads, own), which cuts the columns, then a transpose.",
        ("mha-02", "mha-06"),
    ),
    Mistake(
        "reshaped both ways",
        _through(_split_without_transpose, _merge_without_transpose),
        "You reshape there and back without a transpose. The way back hides it, but heads hold wrong words.",
        "two steps: first (batch, length, heads, own), which cuts the columns, then a transpose.",
        ("mha-02", "mha-06"),
    ),
    Mistake(
        "columns dealt out in turn",
        _through(_split_interleaved),
        "Head h gets every so-manieth column. Its columns are neighbours: head 0 has the first ones.",
        "the order in which the width is cut: (heads, own), not (own, heads).",
    ),
    Mistake(
        "columns dealt out and collected in turn",
        _through(_split_interleaved, _merge_interleaved),
        "You deal the columns out in turn and collect them in turn. Head 0 should have the first ones.",
        "the order in which the width is cut: (heads, own), not (own, heads).",
    ),
    Mistake(
        "heads left behind the words",
        lambda x, heads, attend: attend(x.unflatten(-1, (heads, -1))).flatten(2),
        "You hand over (batch, length, heads, own). Wanted is (batch, heads, length, own).",
        "a transpose of the two middle axes, there and back.",
    ),
    Mistake(
        "heads before the batch",
        lambda x, heads, attend: (
            attend(_split(x, heads).transpose(0, 1)).transpose(0, 1).transpose(1, 2).flatten(2)
        ),
        "You hand over (heads, batch, length, own). Wanted is (batch, heads, length, own).",
        "the order of the first two axes.",
        ("mha-04",),
    ),
    Mistake(
        "heads taken for their width",
        lambda x, heads, attend: _merge(attend(_split(x, x.shape[2] // heads))),
        "You cut heads that are `heads` wide. There are `heads` of them, each width // heads wide.",
        "which number is how many, and which is how wide.",
    ),
    Mistake(
        "merged without a transpose",
        _through(merge=_merge_without_transpose),
        "You merge by a reshape alone: each row of your result holds several words of one head.",
        "the way back: the transpose first, then the join of the last two axes.",
        ("mha-02",),
    ),
    Mistake(
        "merged as (heads, batch, ...)",
        _through(merge=_merge_as_heads_first),
        "You merge as if the heads stood before the batch. It fits for one sentence, and mixes up several.",
        "the axes of what attend returns: (batch, heads, length, own).",
        ("mha-04", "mha-06"),
    ),
    Mistake(
        "merged in turn",
        _through(merge=_merge_interleaved),
        "You merge column by column in turn. Each head's columns stay together, head 0 first.",
        "the order of the last two axes before you join them: heads, own.",
    ),
    Mistake(
        "heads added",
        lambda x, heads, attend: attend(_split(x, heads)).sum(1),
        "You add the heads. They are joined side by side, into the width that x has.",
        "the way back: (batch, length, heads, own), and then its last two axes become one.",
    ),
    Mistake(
        "what attend returns is lost",
        lambda x, heads, attend: (attend(_split(x, heads)), x)[1],
        "You return x. What attend returns is to be merged.",
        "what you hand on after the call.",
    ),
    Mistake(
        "view of a transposed tensor",
        lambda x, heads, attend: attend(_split(x, heads)).transpose(1, 2).view(x.shape),
        "A transpose leaves the numbers where they are in memory, and view can only read on in order.",
        ".reshape(...), .flatten(2), or .contiguous() before .view(...).",
        ("mha-11",),
    ),
)


def _by_head_in_loops(x, heads, attend):
    own = x.shape[2] // heads
    out = attend(torch.stack([x[..., h * own : (h + 1) * own] for h in range(heads)], dim=1))
    return torch.cat([out[:, h] for h in range(heads)], dim=-1)


def _by_head_contiguous(x, heads, attend):
    batch, length, width = x.shape
    out = attend(x.view(batch, length, heads, width // heads).permute(0, 2, 1, 3))
    return out.permute(0, 2, 1, 3).contiguous().view(batch, length, width)


BY_HEAD_VARIANTS = (
    Variant("columns in a loop", _by_head_in_loops),
    Variant("view, permute, contiguous", _by_head_contiguous, ("mha-11",)),
    Variant("unflatten and flatten", _through(), ("mha-11",)),
    Variant(
        "chunk, stack, cat",
        lambda x, heads, attend: torch.cat(list(attend(torch.stack(x.chunk(heads, -1), 1)).unbind(1)), -1),
    ),
)

BY_HEAD = Exercise(
    question=find("06.3"),
    title="split and merge heads",
    minutes=10,
    difficulty=2,
    reference=_by_head_reference,
    axes={"heads": "batch, heads, length, own", "merged": "batch, length, width"},
    parts=(
        Part(
            "split: what each head gets",
            1,
            _draw_by_head,
            ("heads",),
            "the tiny example: print what you hand to attend.",
        ),
        Part(
            "merge: the heads side by side again",
            1,
            _draw_by_head,
            ("merged",),
            "the tiny example: print what attend returns, and then what you make of it.",
        ),
    ),
    mistakes=BY_HEAD_MISTAKES,
    variants=BY_HEAD_VARIANTS,
    forbidden=("course_utils.models",),
)


# --- 06.4 multi-head attention ------------------------------------------------------------------------------


def _multi_head_arrays(given: Inputs) -> tuple[np.ndarray, np.ndarray]:
    """Float64 reference, head by head: output and weights."""
    x, memory, mask, *matrices = (given[name] for name in MULTI_TENSORS)
    W_in, b_in, W_out, b_out = (a.astype(np.float64) for a in matrices)
    width, heads = x.shape[2], given["heads"]
    parts = zip((x, memory, memory), np.split(W_in, 3), np.split(b_in, 3), strict=True)
    query, key, value = (states.astype(np.float64) @ W.T + b for states, W, b in parts)
    found = []
    for head in range(heads):
        own = slice(head * width // heads, (head + 1) * width // heads)
        found.append(_attention(query[..., own], key[..., own], value[..., own], mask))
    joined = np.concatenate([output for output, _ in found], axis=-1)
    return joined @ W_out.T + b_out, np.stack([weights for _, weights in found], axis=1)


def _multi_head_reference(inputs: Inputs) -> Outputs:
    output, weights = _multi_head_arrays(inputs)
    expected = {"weights": weights, "output": output}
    if "upstream" in inputs:
        for name in ("x", "memory"):
            expected[f"gradient of {name}"] = numeric_gradient(
                lambda given: _multi_head_arrays(given)[0], inputs, name
            )
    return expected


def _multi_head_inputs(rng: Generator, batch: int, target: int, source: int, heads: int, own: int) -> Inputs:
    """Without a mask; self-attention where source is 0. Biases are not zero, and no matrix is symmetric."""
    width = heads * own
    x = normal(rng, batch, target, width)
    memory = normal(rng, batch, source, width) if source else x.copy()
    return {
        "x": x,
        "memory": memory,
        "mask": np.ones((batch, target, memory.shape[1]), bool),
        "W_in": normal(rng, 3 * width, width) / np.float32(math.sqrt(width)),
        "b_in": normal(rng, 3 * width),
        "W_out": normal(rng, width, width) / np.float32(math.sqrt(width)),
        "b_out": normal(rng, width),
        "heads": heads,
    }


def _draw_self(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 66])
    batch, target = sizes(rng, 2, 4, 8)
    return [
        _multi_head_inputs(rng, 1, 3, 0, 1, 3),
        _multi_head_inputs(rng, 1, 3, 0, 2, 3),
        _multi_head_inputs(rng, 2, 3, 0, 2, 5),  # as many sentences as heads
        _multi_head_inputs(rng, batch, target, 0, 3, int(rng.choice([2, 5]))),
    ]


def _draw_cross(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 67])
    batch, target, source = sizes(rng, 3, 4, 8)

    def masked(inputs: Inputs) -> Inputs:
        return inputs | {"mask": _hidden(rng, *inputs["mask"].shape)}

    gradient = masked(_multi_head_inputs(rng, 2, 2, 3, 2, 3)) | {"upstream": normal(rng, 2, 2, 6)}
    empty = gradient["mask"].copy()
    empty[0, 1] = False
    return [
        masked(_multi_head_inputs(rng, 1, 2, 3, 2, 2)),
        masked(_multi_head_inputs(rng, 2, 4, 4, 2, 3)),  # what is wrong on one side does not raise
        masked(_multi_head_inputs(rng, batch, target, source, 3, int(rng.choice([2, 5])))),
        gradient | {"mask": empty},
    ]


def _project(x: Tensor, W_in: Tensor, b_in: Tensor, part: int) -> Tensor:
    return x @ W_in.chunk(3)[part].T + b_in.chunk(3)[part]


def _multi(
    *,
    parts: tuple[int, int, int] = (0, 1, 2),
    split: Callable = _split,
    merge: Callable = _merge,
    attend: Callable = _right_attention,
    project: Callable = _project,
) -> Callable:
    """Multi-head attention, right by default, with steps that mistakes replace.

    parts: where query, key and value stand in W_in. attend takes the heads and a mask with an axis for them.
    """

    def answer(x, memory, mask, W_in, b_in, W_out, b_out, heads):
        states = (x, memory, memory)
        q, k, v = (split(project(s, W_in, b_in, p), heads) for s, p in zip(states, parts, strict=True))
        found, weights = attend(q, k, v, mask[:, None])
        return merge(found) @ W_out.T + b_out, weights

    return answer


_right_multi = _multi()


def _changed_inputs(change: Callable) -> Callable:
    """The right answer to other inputs: `change` gets all of them and returns those to go on with."""
    return lambda *inputs: _right_multi(*change(*inputs))


def _across_sentences(x, memory, mask, W_in, b_in, W_out, b_out, heads):
    """Batch and length confused: every position attends to its place in the other sentences."""
    q, k, v = (
        _split(_project(s.transpose(0, 1), W_in, b_in, p), heads) for p, s in enumerate((x, memory, memory))
    )
    found, weights = _sum(torch.softmax(_scores(q, k), -1), v)
    return (_merge(found) @ W_out.T + b_out).transpose(0, 1), weights


def _scaled_by(width_of: Callable) -> Callable:
    return _multi(attend=lambda q, k, v, m: _sum(_masked_softmax(q @ k.mT / width_of(q) ** 0.5, m), v))


def _values_from_x(x, memory, mask, W_in, b_in, W_out, b_out, heads):
    q, k, v = (_split(_project(s, W_in, b_in, p), heads) for p, s in enumerate((x, memory, x)))
    found, weights = _right_attention(q, k, v, mask[:, None])
    return _merge(found) @ W_out.T + b_out, weights


def _mask_without_heads(x, memory, mask, W_in, b_in, W_out, b_out, heads):
    q, k, v = (_split(_project(s, W_in, b_in, p), heads) for p, s in enumerate((x, memory, memory)))
    scores = _scores(q, k).masked_fill(~mask, torch.finfo(q.dtype).min)
    found, weights = _sum(torch.softmax(scores, -1) * mask, v)
    return _merge(found) @ W_out.T + b_out, weights


def _averaged_weights(*inputs):
    output, weights = _right_multi(*inputs)
    return output, weights.mean(1)


def _no_projection_at_the_end(x, memory, mask, W_in, b_in, W_out, b_out, heads):
    eye = torch.eye(len(W_out), dtype=W_out.dtype)
    return _right_multi(x, memory, mask, W_in, b_in, eye, torch.zeros_like(b_out), heads)


def _view_of_transposed(x: Tensor) -> Tensor:
    return x.transpose(1, 2).view(x.shape[0], x.shape[2], -1)


MULTI_MISTAKES = (
    Mistake(
        "one head only",
        lambda *inputs: _right_multi(*inputs[:-1], 1),
        "Your attention has a single head, as wide as x.",
        "the split into heads: it comes after the projections and before the scores.",
        ("mha-06",),
    ),
    Mistake(
        "heads split without a transpose",
        _multi(split=_split_without_transpose),
        "You reshape straight to (batch, heads, length, own): each head gets some words, not some columns.",
        "the split: first (batch, length, heads, own), which cuts the columns, then a transpose.",
        ("mha-02", "mha-06"),
    ),
    Mistake(
        "reshaped both ways",
        _multi(split=_split_without_transpose, merge=_merge_without_transpose),
        "You split and merge by reshapes alone. Each head gets some words instead of some columns.",
        "the split: first (batch, length, heads, own), which cuts the columns, then a transpose.",
        ("mha-02", "mha-06"),
    ),
    Mistake(
        "columns dealt out in turn",
        _multi(split=_split_interleaved, merge=_merge_interleaved),
        "Head h gets every so-manieth column. Its columns are neighbours: head 0 has the first ones.",
        "the order in which the width is cut: (heads, own), not (own, heads).",
    ),
    Mistake(
        "merged without a transpose",
        _multi(merge=_merge_without_transpose),
        "You merge by a reshape alone: each row holds several words of one head.",
        "the merge: the transpose first, then the join of the last two axes.",
        ("mha-02",),
    ),
    Mistake(
        "merged as (heads, batch, ...)",
        _multi(merge=_merge_as_heads_first),
        "You merge as if the heads stood before the batch. It fits for one sentence, and mixes up several.",
        "the axes of what you merge: (batch, heads, length, own).",
        ("mha-04", "mha-06"),
    ),
    Mistake(
        "view of a transposed tensor",
        _multi(merge=_view_of_transposed),
        "A transpose leaves the numbers where they are in memory, and view can only read on in order.",
        ".reshape(...), .flatten(2), or .contiguous() before .view(...).",
        ("mha-11",),
    ),
    Mistake(
        "scaled by the whole width",
        _scaled_by(lambda q: q.shape[-1] * q.shape[1]),
        "You divide by the root of the whole width. Queries and keys of a head are width / heads wide.",
        "which width the scores are divided by.",
        ("sd-03",),
    ),
    Mistake(
        "not scaled",
        _scaled_by(lambda q: 1),
        "Your scores are not divided by the root of the width of a head.",
        "the scale, before the softmax.",
        ("sd-03",),
    ),
    Mistake(
        "attends across the sentences",
        _across_sentences,
        "You attend across the batch: a word reads the same place in the other sentences.",
        "the axes: x is (batch, length, width), and scores are made between positions of one sentence.",
        ("mha-05",),
    ),
    Mistake(
        "memory not used",
        _changed_inputs(lambda x, memory, *rest: (x, x, *rest)),
        "Your keys and values come from x. They come from memory; only the queries come from x.",
        "which states go into which projection.",
    ),
    Mistake(
        "memory asks",
        _changed_inputs(lambda x, memory, *rest: (memory, x, *rest)),
        "Your queries come from memory and your keys and values from x. It is the other way round.",
        "which states go into which projection.",
    ),
    Mistake(
        "values from x",
        _values_from_x,
        "Your values come from x. Keys and values both come from memory.",
        "the third projection.",
    ),
    Mistake(
        "query and key swapped in W_in",
        _multi(parts=(1, 0, 2)),
        "You take the first rows of W_in for the keys and the next for the queries.",
        "the order in W_in: query, key, value.",
        ("mha-10",),
    ),
    Mistake(
        "value first in W_in",
        _multi(parts=(2, 0, 1)),
        "You read W_in as value, query, key in a row.",
        "the order in W_in: query, key, value.",
        ("mha-10",),
    ),
    Mistake(
        "every third row",
        _multi(project=lambda x, W, b, part: x @ W[part::3].T + b[part::3]),
        "You deal the rows of W_in out in turn. The first third of them makes the queries.",
        "W_in.chunk(3), or slices of `width` rows.",
        ("mha-10",),
    ),
    Mistake(
        "W not transposed",
        _multi(project=lambda x, W, b, part: x @ W.chunk(3)[part] + b.chunk(3)[part]),
        "You multiply by the matrices of W_in as they are. With x on the left, they are transposed.",
        "x @ W.T + b, or torch.nn.functional.linear(x, W, b).",
    ),
    Mistake(
        "b_in left out",
        _changed_inputs(lambda x, mem, m, W, b, Wo, bo, h: (x, mem, m, W, torch.zeros_like(b), Wo, bo, h)),
        "Your queries, keys and values lack their bias.",
        "b_in: a third of it for each of the three.",
    ),
    Mistake(
        "b_out left out",
        _changed_inputs(lambda x, mem, m, W, b, Wo, bo, h: (x, mem, m, W, b, Wo, torch.zeros_like(bo), h)),
        "Your output lacks its bias.",
        "the last line: + b_out.",
    ),
    Mistake(
        "no projection at the end",
        _no_projection_at_the_end,
        "You return the merged heads. They go through W_out and b_out, where the heads meet.",
        "the last line.",
    ),
    Mistake(
        "W_out not transposed",
        _changed_inputs(lambda x, mem, m, W, b, Wo, bo, h: (x, mem, m, W, b, Wo.T, bo, h)),
        "You multiply by W_out as it is. With the heads on the left, it is transposed.",
        "x @ W.T + b, or torch.nn.functional.linear(x, W, b).",
    ),
    Mistake(
        "weights averaged over the heads",
        _averaged_weights,
        "You return the mean of the heads' weights. Wanted are those of each head.",
        "the weights: (batch, heads, target, source).",
    ),
    Mistake(
        "softmax over the queries",
        _multi(attend=lambda q, k, v, m: _sum(_masked_softmax(_scores(q, k), m, dim=-2), v)),
        "Your softmax runs over the queries. Each query shares its attention among the keys.",
        "the dim of the softmax: scores are (batch, heads, target, source).",
    ),
    Mistake(
        "softmax over the heads",
        _multi(attend=lambda q, k, v, m: _sum(_masked_softmax(_scores(q, k), m, dim=1), v)),
        "Your softmax runs over the heads. Each query shares its attention among the keys.",
        "the dim of the softmax: scores are (batch, heads, target, source).",
    ),
    Mistake(
        "no mask",
        _changed_inputs(lambda x, mem, m, *rest: (x, mem, torch.ones_like(m), *rest)),
        "Your attention ignores the mask.",
        "the scores, before the softmax.",
    ),
    Mistake(
        "mask inverted",
        _changed_inputs(lambda x, mem, m, *rest: (x, mem, ~m, *rest)),
        "Your weights lie on what the mask hides. True means: may attend.",
        "~mask, where you fill. (nn.MultiheadAttention has it the other way round.)",
        ("cm-08", "sd-06"),
    ),
    Mistake(
        "mask inverted, with -inf",
        _multi(attend=_from_softmax(lambda s, m: torch.softmax(s.masked_fill(m, -INF), -1))),
        "Your weights lie on what the mask hides; where it hides nothing they are NaN. True: may attend.",
        "~mask, where you fill. (nn.MultiheadAttention has it the other way round.)",
        ("cm-08", "sd-06"),
    ),
    Mistake(
        "mask without an axis for the heads",
        _mask_without_heads,
        "Your mask has no axis for the heads, so its batch axis is lined up with them.",
        "mask[:, None]: (batch, 1, target, source).",
        ("cm-05",),
    ),
    Mistake(
        "empty rows are NaN",
        _multi(attend=_from_softmax(lambda s, m: torch.softmax(s.masked_fill(~m, -INF), -1))),
        "A query that may attend to nothing gives NaN: its scores are all -inf.",
        "those rows: their weights are 0, as in 06.1.",
        ("ms-09",),
    ),
    Mistake(
        "gradient cut",
        _changed_inputs(lambda x, memory, *rest: (x.detach(), memory.detach(), *rest)),
        "No gradient reaches x and memory, so nothing before them could learn.",
        ".detach(), .data, .numpy(), torch.tensor(...) and torch.no_grad(): each of them cuts the way back.",
    ),
)


def _multi_in_loops(x, memory, mask, W_in, b_in, W_out, b_out, heads):
    """Head by head, each with its own rows of the matrices; the output as a sum over the heads."""
    width = x.shape[2]
    own = width // heads
    output, weights = b_out, []
    for head in range(heads):
        rows = [slice(part * width + head * own, part * width + (head + 1) * own) for part in range(3)]
        q, k, v = (
            torch.nn.functional.linear(s, W_in[r], b_in[r])
            for s, r in zip((x, memory, memory), rows, strict=True)
        )
        found, w = _right_attention(q, k, v, mask)
        output = output + found @ W_out[:, head * own : (head + 1) * own].T
        weights.append(w)
    return output, torch.stack(weights, 1)


def _multi_by_torch(x, memory, mask, W_in, b_in, W_out, b_out, heads):
    """A module of PyTorch's with these weights; its mask is the other way round, a row for each head."""
    layer = torch.nn.MultiheadAttention(x.shape[2], heads, batch_first=True, dtype=x.dtype)
    layer.in_proj_weight, layer.in_proj_bias = torch.nn.Parameter(W_in), torch.nn.Parameter(b_in)
    layer.out_proj.weight, layer.out_proj.bias = torch.nn.Parameter(W_out), torch.nn.Parameter(b_out)
    some = mask.any(-1, keepdim=True)
    hidden = (~mask & some).repeat_interleave(heads, 0)  # torch gives NaN for empty rows
    found, weights = layer(x, memory, memory, attn_mask=hidden, average_attn_weights=False)
    return torch.where(some, found, b_out), weights * some[:, None]


def _multi_by_einsum(x, memory, mask, W_in, b_in, W_out, b_out, heads):
    W = W_in.reshape(3, heads, -1, x.shape[2])  # (3, heads, own, width)
    b = b_in.reshape(3, heads, 1, -1)
    q, k, v = (torch.einsum("blw,how->bhlo", s, W[p]) + b[p] for p, s in enumerate((x, memory, memory)))
    weights = _renormalised(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), mask.unsqueeze(1))
    found = torch.einsum("bhts,bhso->btho", weights, v)
    return torch.nn.functional.linear(found.flatten(2), W_out, b_out), weights


MULTI_VARIANTS = (
    Variant("three projections, split, merge", _right_multi, ("mha-10",)),
    Variant("head by head, outputs added", _multi_in_loops),
    Variant("einsum with the heads in the matrices", _multi_by_einsum, ("mha-10", "ms-04")),
    Variant("a module of PyTorch's with these weights", _multi_by_torch, ("mha-10", "cm-08")),
    Variant("contiguous before view", _multi(merge=lambda x: x.transpose(1, 2).contiguous().view(
        x.shape[0], x.shape[2], -1)), ("mha-11",)),
)  # fmt: skip

MULTI_HEAD = Exercise(
    question=find("06.4"),
    title="multi-head attention",
    minutes=15,
    difficulty=3,
    reference=_multi_head_reference,
    axes={"output": "batch, target, width", "weights": "batch, heads, target, source"},
    parts=(
        Part(
            "self-attention, nothing hidden",
            1,
            _draw_self,
            ("weights", "output"),
            "one head first (heads = 1): are queries, keys and values right, and the output?",
            (_rows_sum_to_one,),
        ),
        Part(
            "another sequence as memory, masks, and the gradient",
            1,
            _draw_cross,
            ("weights", "output", "gradient of x", "gradient of memory"),
            "the shapes after each line, with as many queries as keys and without.",
            (_hidden_weigh_nothing, _rows_sum_to_one),
        ),
    ),
    mistakes=MULTI_MISTAKES,
    variants=MULTI_VARIANTS,
    forbidden=(
        "course_utils.models",
        "torch.nn.MultiheadAttention",
        "torch.nn.functional.multi_head_attention_forward",
    ),
)


# --- 06.5 sinusoidal positions ------------------------------------------------------------------------------


def _table(length: int, width: int) -> np.ndarray:
    """Float64 reference: sine in the even columns, cosine in the odd ones."""
    angles = np.arange(length)[:, None] / 10_000 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, width)


def _positions_reference(inputs: Inputs) -> Outputs:
    embeddings = inputs["embeddings"].astype(np.float64)
    _, length, width = embeddings.shape
    return {"encoded": embeddings * math.sqrt(width) + _table(length, width)}


def _draw_positions(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 68])
    batch, length = sizes(rng, 2, 3, 8)
    shapes = [(1, 2, 4), (2, 3, 6), (batch, length, 2 * int(rng.integers(4, 7))), (2, 50, 10)]
    cases = [{"embeddings": normal(rng, *shape)} for shape in shapes]
    cases[0]["embeddings"] = cases[0]["embeddings"].round(1)
    return [*cases, {"embeddings": normal(rng, 3, 5, 14, dtype="float64")}]


def _one_table_for_all(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    """What is added must not depend on the sentence; only then can a circle be looked for in it."""
    embeddings = inputs["embeddings"].astype(np.float64)
    added = outputs["encoded"] - embeddings * math.sqrt(embeddings.shape[2])
    if (abs(added - added[:1]) > 1e-3).any():
        return Finding(
            "What you add to sqrt(width) times the embeddings is not the same for all sentences.",
            "the factor sqrt(width), and which axis of the embeddings the positions run along.",
            output="encoded",
        )
    if (abs(added[..., 0::2] ** 2 + added[..., 1::2] ** 2 - 1) > 1e-3).any():
        return Finding(
            "Columns 2i and 2i + 1 should hold sine and cosine of one angle: their squares sum to 1.",
            "the exponent: both columns of a pair have the same.",
            output="encoded",
        )
    return None


def _angles(length: int, width: int, *, base: float = 10_000.0, exponents: Tensor | None = None) -> Tensor:
    if exponents is None:
        exponents = torch.arange(0, width, 2) / width
    return torch.arange(length)[:, None] / base**exponents  # (length, width / 2)


def _paired(sines: Tensor, cosines: Tensor) -> Tensor:
    return torch.stack([sines, cosines], -1).flatten(-2)


def _sinusoidal(length: int, width: int, **options) -> Tensor:
    angles = _angles(length, width, **options)
    return _paired(angles.sin(), angles.cos())


def _adding(table: Callable, factor: Callable = math.sqrt) -> Callable:
    """Embeddings times `factor(width)` plus `table(length, width)`."""

    def answer(embeddings):
        _, length, width = embeddings.shape
        return embeddings * factor(width) + table(length, width).to(embeddings.dtype)

    return answer


def _own_exponent(length, width):
    sines = _angles(length, width).sin()
    return _paired(sines, _angles(length, width, exponents=torch.arange(1, width, 2) / width).cos())


def _next_exponent(length, width):
    sines = _angles(length, width).sin()
    return _paired(sines, _angles(length, width, exponents=torch.arange(2, width + 1, 2) / width).cos())


def _all_angles_into_half(length, width):
    table = torch.zeros(length, width)
    angles = _angles(length, width, exponents=torch.arange(width) / width)
    table[:, 0::2] = torch.sin(angles)
    table[:, 1::2] = torch.cos(angles)
    return table


def _by_sentence(embeddings):
    batch, _, width = embeddings.shape
    return embeddings * math.sqrt(width) + _sinusoidal(batch, width).to(embeddings.dtype)[:, None]


def _written_into(embeddings):
    embeddings *= embeddings.shape[2] ** 0.5
    embeddings += _sinusoidal(*embeddings.shape[1:]).to(embeddings.dtype)
    return embeddings


POSITION_MISTAKES = (
    Mistake(
        "cosine with its own column in the exponent",
        _adding(_own_exponent),
        "Your cosines use their own column, 2i + 1, in the exponent. Both of a pair use 2i.",
        "the exponent of the cosine.",
        ("pe-02",),
    ),
    Mistake(
        "cosine with the next pair's exponent",
        _adding(_next_exponent),
        "Your cosines use the exponent of the next pair, 2(i + 1). Both of a pair use 2i.",
        "the exponent of the cosine.",
        ("pe-02",),
    ),
    Mistake(
        "base 1000",
        _adding(lambda length, width: _sinusoidal(length, width, base=1_000.0)),
        "Your base is 1000. It is 10000.",
        "the base of the power.",
        ("pe-02",),
    ),
    Mistake(
        "i instead of 2i",
        _adding(lambda length, width: _sinusoidal(
            length, width, exponents=torch.arange(width // 2) / width)),
        "Your exponent is i / width. It is 2i / width, where i counts the pairs.",
        "what runs in the exponent: 0, 2, 4, ...",
    ),
    Mistake(
        "each column an angle of its own",
        _adding(lambda length, width: torch.where(
            torch.arange(width) % 2 == 0,
            _angles(length, width, exponents=2 * torch.arange(width) / width).sin(),
            _angles(length, width, exponents=2 * torch.arange(width) / width).cos(),
        )),
        "You let i count the columns. It counts the pairs: columns 2i and 2i + 1 share one angle.",
        "what runs in the exponent: 0, 2, 4, ... for the pairs, each used twice.",
        ("pe-02",),
    ),
    Mistake(
        "multiplied by the power",
        _adding(lambda length, width: _sinusoidal(length, width, base=1e-4)),
        "You multiply the position by 10000^(2i/width). It is divided by it.",
        "the sign of the exponent.",
    ),
    Mistake(
        "sines first, then cosines",
        _adding(lambda length, width: torch.cat(
            [_angles(length, width).sin(), _angles(length, width).cos()], -1)),
        "You put all sines first and all cosines after them. Here they take turns, column by column.",
        "table[:, 0::2] and table[:, 1::2], or a stack and a flatten.",
    ),
    Mistake(
        "sine and cosine swapped",
        _adding(lambda length, width: _paired(_angles(length, width).cos(), _angles(length, width).sin())),
        "You have cosines in the even columns. Sines come first.",
        "which columns get which.",
    ),
    Mistake(
        "sines only",
        _adding(lambda length, width: _paired(_angles(length, width).sin(), _angles(length, width).sin())),
        "You use the sine in all columns. The odd ones hold the cosine.",
        "the odd columns.",
    ),
    Mistake(
        "positions from 1",
        _adding(lambda length, width: _sinusoidal(length + 1, width)[1:]),
        "Your positions start at 1. The first is 0.",
        "the first row: 0, 1, 0, 1, ...",
    ),
    Mistake(
        "all angles into half of the columns",
        _adding(_all_angles_into_half),
        "You have an angle for every column and assign them to half of the columns.",
        "how many angles there are: width / 2, one for each pair.",
        ("pe-03",),
    ),
    Mistake(
        "positions along the batch",
        _by_sentence,
        "Your positions run along the batch: all words of a sentence get the same vector.",
        "the axis the table is cut to: embeddings.shape[1] is the length.",
        ("pe-04",),
    ),
    Mistake(
        "embeddings not scaled",
        _adding(_sinusoidal, lambda width: 1),
        "You add positions to the embeddings as they are. First they are multiplied by sqrt(width).",
        "the factor in front of the embeddings.",
        ("pe-05",),
    ),
    Mistake(
        "embeddings divided",
        _adding(_sinusoidal, lambda width: width**-0.5),
        "You divide the embeddings by sqrt(width). They are multiplied by it.",
        "the factor in front of the embeddings.",
        ("pe-05",),
    ),
    Mistake(
        "embeddings times the width",
        _adding(_sinusoidal, lambda width: width),
        "You multiply the embeddings by the width. It is its root.",
        "the factor in front of the embeddings.",
        ("pe-05",),
    ),
    Mistake(
        "positions scaled too",
        lambda e: (e + _sinusoidal(*e.shape[1:]).to(e.dtype)) * math.sqrt(e.shape[2]),
        "You multiply the sum by sqrt(width). Only the embeddings are, before the positions are added.",
        "the brackets.",
        ("pe-05",),
    ),
    Mistake(
        "multiplied instead of added",
        lambda e: e * math.sqrt(e.shape[2]) * _sinusoidal(*e.shape[1:]).to(e.dtype),
        "You multiply embeddings and positions. They are added.",
        "the sign between the two.",
    ),
    Mistake(
        "positions alone",
        lambda e: _sinusoidal(*e.shape[1:]).to(e.dtype).expand_as(e),
        "You return the positions without the embeddings.",
        "the last line: embeddings * sqrt(width) + table.",
    ),
    Mistake(
        "writes into the embeddings",
        _written_into,
        "You write into the embeddings that you were given. The caller still needs them.",
        "*= and +=, which change a tensor; embeddings * factor makes a new one.",
    ),
)  # fmt: skip


def _positions_by_exp(embeddings):
    """As the tutorials have it: exp and log, in float32, whatever the embeddings are."""
    _, length, width = embeddings.shape
    table = torch.zeros(length, width)
    position = torch.arange(length).unsqueeze(1).float()
    factor = torch.exp(torch.arange(0, width, 2).float() * (-math.log(10000.0) / width))
    table[:, 0::2] = torch.sin(position * factor)
    table[:, 1::2] = torch.cos(position * factor)
    return math.sqrt(width) * embeddings + table[None]


def _positions_in_loops(embeddings):
    _, length, width = embeddings.shape
    rows = []
    for position in range(length):
        pairs = [position / 10_000 ** (2 * i / width) for i in range(width // 2)]
        rows.append([f(angle) for angle in pairs for f in (math.sin, math.cos)])
    return torch.tensor(rows, dtype=embeddings.dtype) + embeddings * width**0.5


POSITION_VARIANTS = (
    Variant("exp and log in float32", _positions_by_exp, ("pe-08", "sd-09")),
    Variant("two loops", _positions_in_loops),
    Variant("power, stacked", _adding(_sinusoidal), ("pe-08",)),
    Variant(
        "a table in float64 for all",
        lambda e: e * math.sqrt(e.shape[2]) + torch.from_numpy(_table(*e.shape[1:])),
        ("sd-09",),
    ),
)

POSITIONS = Exercise(
    question=find("06.5"),
    title="sinusoidal positions",
    minutes=10,
    difficulty=1,
    reference=_positions_reference,
    axes={"encoded": "batch, length, width"},
    parts=(
        Part(
            "embeddings, scaled, with their positions",
            1,
            _draw_positions,
            ("encoded",),
            "the first two rows of your table beside the tiny example.",
            (_one_table_for_all,),
        ),
    ),
    mistakes=POSITION_MISTAKES,
    variants=POSITION_VARIANTS,
    forbidden=("course_utils.models",),
    tolerance={"float32": 2e-5, "float64": 2e-5},  # a table in float32 is right as well
)


# --- 06.6 a test for blindness to order ---------------------------------------------------------------------


EQUIVARIANT_LAYERS = (
    "self-attention",
    "a network for each word alone",
    "the mean of all words for every word",
)


def _equivariant_reference(inputs: Inputs) -> Outputs:
    return {"verdicts": np.array([name in EQUIVARIANT_LAYERS for name in layers(inputs)], float)}


def _equivariant_inputs(rng: Generator, batch: int, length: int, width: int) -> Inputs:
    weights = {name: normal(rng, width, width, dtype="float64") for name in ("W_q", "W_k", "W_v")}
    return {"x": normal(rng, batch, length, width, dtype="float64"), **weights}


def _draw_equivariant(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 69])
    return [_equivariant_inputs(rng, 2, 7, 4), _equivariant_inputs(rng, 3, 8, 6)]


def _judges_each_layer(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    names = list(layers(inputs))
    yours, right = outputs["verdicts"], expected["verdicts"]
    for said, wanted, words in ((0, 1, "False, but True is right"), (1, 0, "True, but False is right")):
        wrong = [name for name, y, r in zip(names, yours, right, strict=True) if y == said and r == wanted]
        if wrong:
            return Finding(
                f"Your test says {words}, of: {'; '.join(wrong)}.",
                "what of the output has to move when the words trade places, and where to.",
                output="verdicts",
            )
    return None


def _shuffle(length: int) -> Tensor:
    """An order without a pattern: every place changes, and it is neither a reversal nor a roll."""
    return torch.arange(length).roll(2)[torch.tensor([1, 0, *range(2, length)])]


def _comparing(
    same: Callable = torch.allclose,
    order: Callable = _shuffle,
    before: Callable = lambda y, order: y[:, order],
) -> Callable:
    """A test that shuffles by `order(length)` and compares with `before(layer(x), order)`."""

    def answer(layer, x):
        shuffle = order(x.shape[1])
        return same(layer(x[:, shuffle]), before(layer(x), shuffle))

    return answer


EQUIVARIANT_MISTAKES = (
    Mistake(
        "invariance",
        _comparing(before=lambda y, order: y),
        "You compare with the output as it was, or shuffled in another way. Shuffled words should give "
        "outputs that are shuffled alike.",
        "both sides: layer(x[:, order]) and layer(x)[:, order].",
    ),
    Mistake(
        "passes everything",
        _comparing(order=torch.arange),
        "Your test says True of every layer: it compares a thing with itself.",
        "whether the order of the words really changes (axis 1), and whether both sides are outputs.",
    ),
    Mistake(
        "words reversed only",
        _comparing(order=lambda n: torch.arange(n - 1, -1, -1)),
        "A test that only reverses the words is passed by a layer that looks at distances, or that reverses.",
        "the order: one without a pattern, such as torch.randperm gives, or several.",
    ),
    Mistake(
        "words rolled only",
        _comparing(order=lambda n: torch.arange(n).roll(1)),
        "A test that only rolls the words along is passed by a layer that looks at neighbours in a ring.",
        "the order: one without a pattern, such as torch.randperm gives, or several.",
    ),
    Mistake(
        "first two words swapped only",
        _comparing(order=lambda n: torch.tensor([1, 0, *range(2, n)])),
        "A test that only swaps the first two words is passed by a layer that marks others.",
        "the order: every word should move.",
    ),
    Mistake(
        "sums compared",
        _comparing(same=lambda a, b: torch.allclose(a.sum(1), b.sum(1))),
        "You compare sums over the words, which no shuffle changes.",
        "the comparison: word by word.",
        ("beam-04",),
    ),
    Mistake(
        "exact equality",
        _comparing(same=torch.equal),
        "You ask for exact equality. Sums in another order differ in their last digits.",
        "torch.allclose, which allows for rounding.",
    ),
    Mistake(
        "tolerance too wide",
        _comparing(same=lambda a, b: torch.allclose(a, b, atol=0.1)),
        "Your tolerance is so wide that faint positions slip through.",
        "the default of torch.allclose, or about 1e-5.",
    ),
    Mistake(
        "numbers of a word shuffled",
        lambda layer, x: torch.allclose(
            layer(x[..., _shuffle(x.shape[2])]), layer(x)[..., _shuffle(x.shape[2])]
        ),
        "You shuffle the numbers within each word. The words are to trade places.",
        "the axis: x is (batch, length, width), so x[:, order].",
    ),
    Mistake(
        "the other way round",
        lambda layer, x: not _comparing()(layer, x),
        "Your test says True where order matters. True is wanted where it does not.",
        "the return line.",
    ),
)


def _drawn(layer, x):
    order = torch.randperm(x.shape[1])
    return torch.allclose(layer(x)[:, order], layer(x[:, order]), atol=1e-5)


def _undone(layer, x):
    order = torch.randperm(x.shape[1])
    return bool((layer(x) - layer(x[:, order])[:, order.argsort()]).abs().max() < 1e-4)


def _many_orders(layer, x):
    generator = torch.Generator().manual_seed(1)
    for _ in range(10):
        order = torch.randperm(x.shape[1], generator=generator)
        if not torch.allclose(layer(x[:, order]), layer(x)[:, order]):
            return False
    return True


def _by_matrix(layer, x):
    shuffle = torch.eye(x.shape[1], dtype=x.dtype)[_shuffle(x.shape[1])]
    return torch.isclose(layer(shuffle @ x), shuffle @ layer(x)).all()


EQUIVARIANT_VARIANTS = (
    Variant("one order drawn", _drawn),
    Variant("shuffled back", _undone),
    Variant("ten orders", _many_orders),
    Variant("a matrix of permutation, a tensor returned", _by_matrix),
    Variant("numpy", _comparing(same=lambda a, b: np.allclose(a.numpy(), b.numpy()))),
)

EQUIVARIANT = Exercise(
    question=find("06.6"),
    title="a test for blindness to order",
    minutes=15,
    difficulty=2,
    reference=_equivariant_reference,
    axes={"verdicts": "layers"},
    parts=(
        Part(
            "right about twelve layers, blind to order and not",
            1,
            _draw_equivariant,
            ("verdicts",),
            "one layer at a time: what does your test print for it?",
            (_judges_each_layer,),
        ),
    ),
    mistakes=EQUIVARIANT_MISTAKES,
    variants=EQUIVARIANT_VARIANTS,
)

EXERCISES = [SCALED_DOT_PRODUCT, ATTENTION_MASKS, BY_HEAD, MULTI_HEAD, POSITIONS, EQUIVARIANT]
