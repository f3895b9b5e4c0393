"""The exercises of lesson 05, Luong attention (Luong, Pham and Manning 2015), and how they go wrong.

Sources such as "lu-02" name the public bug report or thread that a mistake or a variant was first seen in.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.random import Generator, default_rng

from course_utils.checks.draws import normal, padded, sizes
from course_utils.checks.engine import Exercise, Finding, Mistake, Part, Variant, numeric_gradient
from course_utils.models import AdditiveScore
from course_utils.questions import find
from course_utils.questions.asking import (
    Inputs,
    Outputs,
)
from course_utils.questions.lesson05 import LOOP_ARGUMENTS, LOOP_LEAVES, SHARES, STATE_ARGUMENTS

INF = float("inf")
WEIGHTS_CUT = (
    ".detach(), .data, .numpy(), torch.tensor(...) and torch.no_grad(): each of them cuts the way back."
)


# --- 05.1 the three scores ----------------------------------------------------------------------------------


def _scores_reference(inputs: Inputs) -> Outputs:
    def scores(given: Inputs) -> np.ndarray:
        s, h = (given[name].astype(np.float64) for name in ("queries", "keys"))
        if given["kind"] == "dot":
            return np.einsum("btq,bsq->bts", s, h)
        if given["kind"] == "general":
            return np.einsum("btq,qk,bsk->bts", s, given["W"].astype(np.float64), h)
        of_query, of_key = np.split(given["W"].astype(np.float64), [s.shape[-1]], axis=1)
        hidden = (s @ of_query.T)[:, :, None] + (h @ of_key.T)[:, None]
        return np.tanh(hidden) @ given["v"].astype(np.float64)

    expected = {"scores": scores(inputs)}
    if "upstream" in inputs:
        for name in ("queries", "keys"):
            expected[f"gradient of {name}"] = numeric_gradient(scores, inputs, name)
    return expected


def _score_inputs(
    rng: Generator, kind: str, batch: int, target: int, source: int, query: int, key: int, attention: int
) -> Inputs:
    """For dot, `key` does not count: both are as wide as the queries."""
    return {
        "kind": kind,
        "queries": normal(rng, batch, target, query),
        "keys": normal(rng, batch, source, query if kind == "dot" else key),
        "W": {
            "dot": None,
            "general": normal(rng, query, key),
            "concat": normal(rng, attention, query + key),
        }[kind],
        "v": normal(rng, attention) if kind == "concat" else None,
    }


def _draw_scores(kind: str, stream: int) -> Callable[[int], list[Inputs]]:
    """Cases of one score: equal widths first, where a wrong product does not raise but is wrong."""

    def draw(seed: int) -> list[Inputs]:
        rng = default_rng([seed, stream])
        same = int(rng.integers(3, 6))
        small = _score_inputs(rng, kind, 1, 1, 3, 2, 2, 2)
        batch, target, source, query, key, attention = sizes(rng, 6)
        return [
            {name: value.round(1) if type(value) is np.ndarray else value for name, value in small.items()},
            _score_inputs(rng, kind, 2, 3, 3, same, same, same),
            _score_inputs(rng, kind, 3, 2, 4, 5, 3, 6) | {"upstream": normal(rng, 3, 2, 4)},
            _score_inputs(rng, kind, batch, target, source, query, key, attention),
        ]

    return draw


def _luong_scores(kind, s, h, W, v):
    """Right; what most mistakes below start from."""
    if kind == "dot":
        return s @ h.mT
    if kind == "general":
        return s @ W @ h.mT
    return torch.tanh(_pairs(s, h) @ W.T) @ v


def _pairs(s: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """[s; h] of every query with every key: (batch, target, source, query + key)."""
    return torch.cat(
        [s[:, :, None].expand(-1, -1, h.shape[1], -1), h[:, None].expand(-1, s.shape[1], -1, -1)], dim=-1
    )


def _instead(**ways: Callable) -> Callable:
    """luong_scores with another way to compute some of the kinds."""
    return lambda kind, s, h, W, v: ways.get(kind, lambda *given: _luong_scores(kind, *given))(s, h, W, v)


def _along_the_words(s, h, W, v):
    return torch.tanh(torch.cat([s, h], dim=1) @ W.T) @ v


def _not_expanded(s, h, W, v):
    return torch.tanh(torch.cat([s, h], dim=-1) @ W.T) @ v


def _turned_pairs(s, h, W, v):
    return torch.tanh(_pairs(h, s).transpose(1, 2) @ W.T) @ v


def _one_number_a_sentence(s, h, W, v):
    return (torch.tanh(_pairs(s, h) @ W.T) @ v).sum((1, 2))


def _cosine(s, h, W, v):
    unit = torch.nn.functional.normalize
    return unit(s, dim=-1) @ unit(h, dim=-1).mT


SCORE_MISTAKES = (
    Mistake(
        "W transposed",
        _instead(general=lambda s, h, W, v: s @ W.T @ h.mT),
        "In the general score you multiply by W the wrong way round: h . W s instead of s . W h.",
        "which side of W each state stands on: W is (query_width, key_width).",
        ("lu-02",),
    ),
    Mistake(
        "W left out",
        _instead(general=lambda s, h, W, v: s @ h.mT),
        "Your general score is the dot product: W does not enter.",
        "the branch for general: the keys (or the queries) go through W first.",
    ),
    Mistake(
        "keys as values of a distribution",
        _instead(general=lambda s, h, W, v: s @ (h @ W.T).softmax(-1).mT),
        "In the general score you apply a softmax to W h before the product.",
        "the branch for general: nothing but products.",
    ),
    Mistake(
        "dot product without the sum",
        _instead(dot=lambda s, h, W, v: s[:, :, None] * h[:, None]),
        "You multiply query and key number by number and do not add up: a dot product is one number.",
        "the sum over the width.",
    ),
    Mistake(
        "dot product scaled by the width",
        _instead(dot=lambda s, h, W, v: s @ h.mT / s.shape[-1] ** 0.5),
        "You divide the dot product by the square root of the width. Transformers do that, Luong does not.",
        "the division.",
    ),
    Mistake(
        "cosine instead of dot",
        _instead(dot=_cosine),
        "You divide by the lengths of the vectors: that is their cosine, which is never above 1.",
        "the normalisation.",
    ),
    Mistake(
        "concatenated along the words",
        _instead(concat=_along_the_words),
        "In concat you join queries and keys along the words. Each query is joined with each key, in width.",
        "the dim of torch.cat: the last one, after both have got the axes (batch, target, source, …).",
        ("lu-03",),
    ),
    Mistake(
        "query not expanded",
        _instead(concat=_not_expanded),
        "In concat the query has to stand beside every key, and yours was not repeated for them.",
        "the shapes before torch.cat: queries (batch, target, 1, …) expanded to source rows.",
        ("lu-03",),
    ),
    Mistake(
        "one number for each sentence",
        _instead(concat=_one_number_a_sentence),
        "Your concat score sums over words as well: a single number for each sentence.",
        "the sum: only the attention axis goes, by the product with v.",
        ("lu-03",),
    ),
    Mistake(
        "key before the query",
        _instead(concat=_turned_pairs),
        "In concat you join [h; s]. The first columns of W belong to the query: [s; h].",
        "the order inside torch.cat.",
    ),
    Mistake(
        "no tanh",
        _instead(concat=lambda s, h, W, v: _pairs(s, h) @ W.T @ v),
        "Your concat score lacks the tanh. Without it the query moves all scores of a row alike.",
        "the line with W [s; h].",
        ("lu-03",),
    ),
    Mistake(
        "tanh last",
        _instead(concat=lambda s, h, W, v: torch.tanh(_pairs(s, h) @ W.T @ v)),
        "You apply tanh to the finished score. It belongs before the product with v.",
        "the order of tanh and v.",
    ),
    Mistake(
        "v left out",
        _instead(concat=lambda s, h, W, v: torch.tanh(_pairs(s, h) @ W.T).sum(-1)),
        "Your concat score adds up the hidden units without the weights v.",
        "the last step: the product with v.",
        ("lu-03",),
    ),
    Mistake(
        "softmax included",
        lambda *given: torch.softmax(_luong_scores(*given), -1),
        "You return weights. The scores are wanted, before the softmax.",
        "the last line.",
    ),
    Mistake(
        "axes swapped",
        lambda *given: _luong_scores(*given).mT,
        "Your scores are (batch, source, target). Wanted is a row for each query: (batch, target, source).",
        "which of the two stands on the left of the product.",
    ),
    Mistake(
        "first sentence for all",
        lambda kind, s, h, W, v: _luong_scores(kind, s, h[:1].expand(len(s), -1, -1), W, v),
        "You score all queries against the first sentence of the batch.",
        "the batch axis: sentence b's queries meet sentence b's keys.",
    ),
    Mistake(
        "one query for all",
        lambda kind, s, h, W, v: _luong_scores(kind, s[:, :1].expand_as(s), h, W, v),
        "All target words get the scores of the first one.",
        "the target axis: each query asks for itself.",
    ),
    Mistake(
        "gradient cut",
        lambda kind, s, h, W, v: _luong_scores(kind, s.detach(), h.detach(), W, v),
        "No gradient reaches queries and keys, so the networks that make them could not learn.",
        WEIGHTS_CUT,
    ),
)


def _scores_in_loops(kind, queries, keys, W, v):
    def score(s, h):
        if kind == "dot":
            return s.dot(h)
        return s.dot(W @ h) if kind == "general" else v.dot(torch.tanh(W @ torch.cat([s, h])))

    return torch.stack(
        [
            torch.stack([torch.stack([score(s, h) for h in sentence]) for s in asking])
            for asking, sentence in zip(queries, keys, strict=True)
        ]
    )


def _scores_split(kind, queries, keys, W, v):
    """Concat as the additive score, general with the keys projected once, dot with bmm."""
    if kind == "dot":
        return torch.bmm(queries, keys.transpose(1, 2))
    if kind == "general":
        return torch.bmm(queries, torch.nn.functional.linear(keys, W).transpose(1, 2))
    of_query, of_key = W.split([queries.shape[-1], keys.shape[-1]], dim=1)
    hidden = torch.tanh((queries @ of_query.T)[:, :, None] + (keys @ of_key.T)[:, None])
    return torch.matmul(hidden, v[:, None])[..., 0]


def _scores_einsum(kind, queries, keys, W, v):
    if kind == "concat":
        return torch.einsum("btsw,aw->btsa", _pairs(queries, keys), W).tanh() @ v
    W = torch.eye(queries.shape[-1]) if kind == "dot" else W
    return torch.einsum("btq,qk,bsk->bts", queries, W, keys)


SCORE_VARIANTS = (
    Variant("three loops", _scores_in_loops),
    Variant("keys projected once, W split", _scores_split, ("lu-03",)),
    Variant("einsum, dot as general with the identity", _scores_einsum),
)

LUONG_SCORES = Exercise(
    question=find("05.1"),
    title="the three scores",
    minutes=20,
    difficulty=2,
    reference=_scores_reference,
    axes={"scores": "batch, target, source"},
    parts=tuple(
        Part(
            kind,
            1,
            _draw_scores(kind, stream),
            ("scores", "gradient of queries", "gradient of keys"),
            look,
        )
        for kind, stream, look in (
            ("dot", 51, "the product of every query with every key, summed over the width."),
            ("general", 52, "the worked example: which state does W multiply?"),
            ("concat", 53, "the shapes after each line, and the order of tanh and v."),
        )
    ),
    mistakes=SCORE_MISTAKES,
    variants=SCORE_VARIANTS,
    forbidden=("course_utils.models",),
)


# --- 05.2 the attentional state -----------------------------------------------------------------------------


def _attentional_reference(inputs: Inputs) -> Outputs:
    states, encoder_states, weights, W_c = (inputs[name].astype(np.float64) for name in STATE_ARGUMENTS)
    joined = np.concatenate([weights @ encoder_states, states], axis=-1)
    return {"attentional": np.tanh(joined @ W_c.T)}


def _softmax(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Float64 weights from scores (..., source) under a mask that broadcasts; no row is empty."""
    scores = np.where(mask, scores.astype(np.float64), -INF)
    parts = np.exp(scores - scores.max(-1, keepdims=True))
    return parts / parts.sum(-1, keepdims=True)


def _draw_attentional(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 54])
    same = int(rng.integers(3, 6))

    def inputs(batch: int, target: int, source: int, hidden: int, width: int, out: int) -> Inputs:
        scores = normal(rng, batch, target, source)
        return {
            "states": normal(rng, batch, target, hidden),
            "encoder_states": normal(rng, batch, source, width),
            "weights": _softmax(scores, np.ones_like(scores, bool)).astype("float32"),
            "W_c": normal(rng, out, width + hidden),
        }

    tiny = {name: value.round(1) for name, value in inputs(1, 1, 2, 2, 2, 2).items()}
    tiny["weights"] = np.array([[[0.25, 0.75]]], "float32")
    return [tiny, inputs(2, same, same, same, same, same), inputs(*sizes(rng, 6))]


def _joined(states, encoder_states, weights) -> torch.Tensor:
    return torch.cat([weights @ encoder_states, states], dim=-1)


def _attentional(states, encoder_states, weights, W_c):
    return torch.tanh(_joined(states, encoder_states, weights) @ W_c.T)


def _split_columns(W_c: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    return W_c[:, :width], W_c[:, width:]


def _one_half(which: int) -> Callable:
    def answer(states, encoder_states, weights, W_c):
        parts = weights @ encoder_states, states
        return torch.tanh(parts[which] @ _split_columns(W_c, encoder_states.shape[-1])[which].T)

    return answer


STATE_MISTAKES = (
    Mistake(
        "state before the context",
        lambda s, h, a, W: torch.tanh(torch.cat([s, a @ h], -1) @ W.T),
        "You join [s; c]. The first columns of W_c belong to the context: [c; s].",
        "the order inside torch.cat.",
    ),
    Mistake(
        "no tanh",
        lambda s, h, a, W: _joined(s, h, a) @ W.T,
        "Your attentional state lacks the tanh.",
        "equation 5: the tanh goes around the product.",
    ),
    Mistake(
        "tanh before the product",
        lambda s, h, a, W: torch.tanh(_joined(s, h, a)) @ W.T,
        "You apply tanh to context and state, and multiply afterwards.",
        "the order: first the product with W_c, then tanh.",
    ),
    Mistake(
        "softmax instead of tanh",
        lambda s, h, a, W: torch.softmax(_joined(s, h, a) @ W.T, -1),
        "You apply a softmax: that is for the words, one layer later.",
        "the function around the product: tanh.",
    ),
    Mistake(
        "context alone",
        _one_half(0),
        "The decoder's state is missing: your result comes from the context alone.",
        "torch.cat of context and state.",
    ),
    Mistake(
        "state alone",
        _one_half(1),
        "The context is missing: your result would be the same for any source sentence.",
        "torch.cat of context and state.",
    ),
    Mistake(
        "states averaged evenly",
        lambda s, h, a, W: _attentional(s, h, torch.full_like(a, 1 / a.shape[-1]), W),
        "Your context is the plain mean of the encoder states: the weights do not enter.",
        "the context: weights @ encoder_states.",
    ),
    Mistake(
        "context summed over the target",
        lambda s, h, a, W: _attentional(s, h, a.sum(1, keepdim=True).expand_as(a), W),
        "All target words share one context, summed over them.",
        "the context: (batch, target, source) @ (batch, source, width) keeps the target axis.",
    ),
    Mistake(
        "weights transposed",
        lambda s, h, a, W: torch.tanh(torch.cat([a.mT @ h, s], -1) @ W.T),
        "You transpose the weights, so that target words stand where source words should.",
        "the context: weights @ encoder_states, as they are.",
    ),
    Mistake(
        "W_c not transposed",
        lambda s, h, a, W: torch.tanh(_joined(s, h, a) @ W),
        "You multiply by W_c as it is. With the states on the left it has to be transposed.",
        "W_c.T: (…, encoder_width + hidden) times (encoder_width + hidden, attentional).",
    ),
)


def _attentional_layer(states, encoder_states, weights, W_c):
    layer = torch.nn.Linear(W_c.shape[1], W_c.shape[0], bias=False)
    layer.weight = torch.nn.Parameter(W_c)
    return layer(torch.cat((torch.bmm(weights, encoder_states), states), 2)).tanh()


def _attentional_split(states, encoder_states, weights, W_c):
    of_context, of_state = _split_columns(W_c, encoder_states.shape[-1])
    return torch.tanh(weights @ (encoder_states @ of_context.T) + states @ of_state.T)


def _attentional_by_word(states, encoder_states, weights, W_c):
    rows = [
        torch.stack([torch.tanh(W_c @ torch.cat([a @ h, s])) for a, s in zip(rows, queries, strict=True)])
        for rows, queries, h in zip(weights, states, encoder_states, strict=True)
    ]
    return torch.stack(rows)


ATTENTIONAL_STATES = Exercise(
    question=find("05.2"),
    title="attentional state",
    minutes=10,
    difficulty=1,
    reference=_attentional_reference,
    axes={"attentional": "batch, target, attentional"},
    parts=(
        Part(
            "context and state, joined and squashed",
            1,
            _draw_attentional,
            ("attentional",),
            "the worked example: print the context first.",
        ),
    ),
    mistakes=STATE_MISTAKES,
    variants=(
        Variant("nn.Linear", _attentional_layer),
        Variant("W_c split, the encoder states projected first", _attentional_split),
        Variant("one word at a time", _attentional_by_word),
    ),
    forbidden=("course_utils.models",),
)


# --- 05.3 the decoder, with and without input feeding -------------------------------------------------------


GRU_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def _gru(x: np.ndarray, h: np.ndarray, inputs: Inputs, layer: int) -> np.ndarray:
    """Float64 reference of one step of one layer of torch.nn.GRU."""
    weight_ih, weight_hh, bias_ih, bias_hh = (
        inputs[f"{name}_l{layer}"].astype(np.float64) for name in GRU_WEIGHTS
    )
    r_x, z_x, n_x = np.split(x @ weight_ih.T + bias_ih, 3, axis=-1)
    r_h, z_h, n_h = np.split(h @ weight_hh.T + bias_hh, 3, axis=-1)
    reset, update = (1 / (1 + np.exp(-gate)) for gate in (r_x + r_h, z_x + z_h))
    return (1 - update) * np.tanh(n_x + reset * n_h) + update * h


def _loop_reference(inputs: Inputs) -> Outputs:
    def loop(given: Inputs) -> Outputs:
        embeddings, state, h, W_a, W_c = (
            given[name].astype(np.float64) for name in LOOP_ARGUMENTS if name != "mask"
        )
        state, fed = list(state), np.zeros((len(h), len(W_c)))
        outputs, rows = [], []
        for word in embeddings.swapaxes(0, 1):
            below = np.concatenate([word, fed], axis=-1) if given["feeding"] else word
            for layer in range(len(state)):
                below = state[layer] = _gru(below, state[layer], given, layer)
            weights = _softmax(np.einsum("bh,hk,bsk->bs", below, W_a, h), given["mask"])
            context = np.einsum("bs,bsk->bk", weights, h)
            fed = np.tanh(np.concatenate([context, below], axis=-1) @ W_c.T)
            outputs.append(fed)
            rows.append(weights)
        return {"attentional": np.stack(outputs, axis=1), "weights": np.stack(rows, axis=1)}

    expected = loop(inputs)
    if "upstream" in inputs:
        for name in LOOP_LEAVES:
            expected[f"gradient of {name}"] = numeric_gradient(
                lambda given: loop(given)["attentional"], inputs, name
            )
    return expected


def _loop_inputs(
    rng: Generator,
    *,
    feeding: bool,
    layers: int,
    batch: int,
    target: int,
    source: int,
    hidden: int,
    word: int,
    width: int,
    out: int,
) -> Inputs:
    """Non-zero initial state and biases, so that nothing can hide behind a zero; no padding."""
    inputs: Inputs = {
        "embeddings": normal(rng, batch, target, word),
        "state": normal(rng, layers, batch, hidden),
        "encoder_states": normal(rng, batch, source, width),
        "mask": np.ones((batch, source), bool),
        "W_a": normal(rng, hidden, width),
        "W_c": normal(rng, out, width + hidden),
        "feeding": feeding,
    }
    for layer in range(layers):
        below = hidden if layer else word + out * feeding
        for name, shape in zip(GRU_WEIGHTS, ((below,), (hidden,), (), ()), strict=True):
            inputs[f"{name}_l{layer}"] = normal(rng, 3 * hidden, *shape)
    return inputs


def _with_padding(rng: Generator, inputs: Inputs) -> Inputs:
    return inputs | {"mask": padded(rng, *inputs["mask"].shape)}


def _any_sizes(rng: Generator) -> dict[str, int]:
    names = ("batch", "target", "source", "hidden", "word", "width", "out")
    return dict(zip(names, sizes(rng, 7, 2, 9), strict=True))


def _equal_widths(rng: Generator) -> dict[str, int]:
    """Equal widths: what does not fit now fits, and is wrong quietly."""
    same = int(rng.integers(3, 6))
    widths = dict.fromkeys(("hidden", "word", "width", "out"), same)
    return {"batch": 2, "target": 3, "source": same + 1} | widths


def _draw_free(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 55])
    small = {"batch": 1, "target": 2, "source": 3, "hidden": 2, "word": 2, "width": 2, "out": 2}
    return [
        _loop_inputs(rng, feeding=False, layers=1, **small),
        _loop_inputs(rng, feeding=False, layers=2, **_equal_widths(rng)),
        _with_padding(rng, _loop_inputs(rng, feeding=False, layers=1, **_any_sizes(rng))),
        _with_padding(rng, _loop_inputs(rng, feeding=False, layers=2, **_any_sizes(rng))),
    ]


def _draw_fed(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 56])
    small = {"batch": 1, "target": 2, "source": 3, "hidden": 2, "word": 2, "width": 2, "out": 2}
    return [
        _loop_inputs(rng, feeding=True, layers=1, **small),
        _loop_inputs(rng, feeding=True, layers=2, **_equal_widths(rng)),
        _with_padding(rng, _loop_inputs(rng, feeding=True, layers=1, **_any_sizes(rng))),
        _with_padding(rng, _loop_inputs(rng, feeding=True, layers=2, **_any_sizes(rng))),
    ]


def _draw_loop_gradient(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 57])
    given = {"batch": 2, "target": 3, "source": 4, "hidden": 2, "word": 3, "width": 5, "out": 4}
    return [
        _with_padding(rng, _loop_inputs(rng, feeding=True, layers=layers, **given))
        | {"upstream": normal(rng, 2, 3, 4)}
        for layers in (1, 2)
    ]


def _filled_softmax(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=-1)


def _look(query, encoder_states, mask, W_a, W_c):
    """(attentional, weights) of one state: right; the mistakes start here."""
    scores = torch.einsum("bh,hk,bsk->bs", query, W_a, encoder_states)
    weights = _filled_softmax(scores, mask)
    context = torch.einsum("bs,bsk->bk", weights, encoder_states)
    return torch.tanh(torch.cat([context, query], -1) @ W_c.T), weights


def _looping(
    *,
    look: Callable = _look,
    query: Callable = lambda before, after: after[-1],
    feed: Callable = lambda word, fed, context, query: torch.cat([word, fed], -1),
    carry: Callable = lambda before, after, fed: after,
    first: Callable = lambda state, encoder_states, mask, W_a, W_c: state.new_zeros(state.shape[1], len(W_c)),
    keep: Callable = lambda fed: fed,
    give: Callable = lambda fed, query: fed,
    fed_always: bool | None = None,
) -> Callable:
    """The decoder with one of its parts replaced.

    look(query, encoder_states, mask, W_a, W_c); query(state before, state after); feed(word, fed vector,
    last context, last query) -> the input of the rnn; carry(before, after, fed vector) -> the next state;
    first(...) -> the first fed vector; keep(attentional) -> what is fed; give(attentional, query) -> what is
    returned; fed_always overrides the argument.
    """

    def decode(embeddings, state, encoder_states, mask, W_a, W_c, rnn, feeding):
        feeding = feeding if fed_always is None else fed_always
        fed = first(state, encoder_states, mask, W_a, W_c)
        context, asking = encoder_states.new_zeros(encoder_states[:, 0].shape), state[-1]
        outputs, rows = [], []
        for word in embeddings.unbind(1):
            x = feed(word, fed, context, asking) if feeding else word
            before = state
            _, after = rnn(x[:, None], before.contiguous())
            asking = query(before, after)
            attentional, weights = look(asking, encoder_states, mask, W_a, W_c)
            context = torch.einsum("bs,bsk->bk", weights, encoder_states)
            fed = keep(attentional)
            state = carry(before, after, fed)
            outputs.append(give(attentional, asking))
            rows.append(weights)
        return torch.stack(outputs, 1), torch.stack(rows, 1)

    return decode


def _scores_given(query, h, mask, W_a, W_c):
    attentional, _ = _look(query, h, mask, W_a, W_c)
    return attentional, torch.einsum("bh,hk,bsk->bs", query, W_a, h)


def _squared_off(query, h, mask, W_a, W_c):
    scores = torch.einsum("bh,kh,bsk->bs", query, W_a, h)
    weights = _filled_softmax(scores, mask)
    return torch.tanh(torch.cat([(weights[:, None] @ h)[:, 0], query], -1) @ W_c.T), weights


def _own_combine(combine: Callable) -> Callable:
    """A look whose attentional state is combine(context, query, W_c)."""

    def look(query, h, mask, W_a, W_c):
        _, weights = _look(query, h, mask, W_a, W_c)
        return combine((weights[:, None] @ h)[:, 0], query, W_c), weights

    return look


def _replaces_state(before, after, fed):
    return torch.cat([after[:-1], fed[None]])


LOOP_MISTAKES = (
    Mistake(
        "asks with the old state",
        _looping(query=lambda before, after: before[-1]),
        "You ask with s_{t-1}, in Bahdanau's order. Luong's decoder steps first and asks with s_t.",
        "the order: call rnn, then score with what came out of it.",
        ("lu-04", "if-05"),
    ),
    Mistake(
        "a lower layer asks",
        _looping(query=lambda before, after: after[0]),
        "You ask with the lowest layer of the rnn. The top layer asks: it has read what all the others say.",
        "the index of the layer: state[-1], or the rnn's output (state[:-1] are the others).",
        ("lu-04",),
    ),
    Mistake(
        "fed vector replaces the state",
        _looping(carry=_replaces_state),
        "You put the attentional state in the place of the rnn's state. It is an input, beside the word.",
        "the state of the next step: what rnn returned.",
        ("if-03",),
    ),
    Mistake(
        "context fed",
        _looping(feed=lambda word, fed, context, query: torch.cat([word, context], -1)),
        "You feed the context c_{t-1}. Luong feeds the attentional state, which has the state in it as well.",
        "the input of the rnn: the word, then the attentional state of the step before.",
        ("if-04",),
    ),
    Mistake(
        "state fed",
        _looping(feed=lambda word, fed, context, query: torch.cat([word, query], -1)),
        "You feed s_{t-1}, which the rnn has anyway. The attentional state is what it does not know.",
        "the input of the rnn: the word, then the attentional state of the step before.",
        ("if-04",),
    ),
    Mistake(
        "fed vector before the word",
        _looping(feed=lambda word, fed, context, query: torch.cat([fed, word], -1)),
        "You join the fed vector and the word in the other order than this rnn's weights expect.",
        "the order inside torch.cat: the embedding first.",
    ),
    Mistake(
        "zeros fed at every step",
        _looping(keep=torch.zeros_like),
        "The vector that you feed stays at zero, so that no step knows where the one before has looked.",
        "the variable that is fed: it becomes the new attentional state at the end of each step.",
    ),
    Mistake(
        "a look before the first step",
        _looping(first=lambda state, h, mask, W_a, W_c: _look(state[-1], h, mask, W_a, W_c)[0]),
        "Your first step is fed with a look of the initial state. Nothing was looked at yet: zeros.",
        "the fed vector before the loop.",
        ("if-05",),
    ),
    Mistake(
        "always feeds",
        _looping(fed_always=True),
        "You feed the attentional state although feeding is False.",
        "the argument `feeding`: without it the rnn gets the embedding alone.",
    ),
    Mistake(
        "never feeds",
        _looping(fed_always=False),
        "You feed nothing although feeding is True.",
        "the argument `feeding`: with it the rnn gets the embedding and the attentional state.",
    ),
    Mistake(
        "state not carried on",
        _looping(carry=lambda before, after, fed: before),
        "Every step starts from the initial state.",
        "the state: each step goes on from what rnn returned in the one before.",
    ),
    Mistake(
        "no mask",
        _looping(look=lambda q, h, m, W_a, W_c: _look(q, h, torch.ones_like(m), W_a, W_c)),
        "You ignore the mask, so that padding takes weight.",
        "the softmax: padding must have weight 0.",
    ),
    Mistake(
        "mask inverted",
        _looping(look=lambda q, h, m, W_a, W_c: _look(q, h, ~m, W_a, W_c)),
        "Your weights lie on the padding.",
        "the mask's meaning: True marks a real word.",
    ),
    Mistake(
        "W_a transposed",
        _looping(look=_squared_off),
        "You multiply by W_a the wrong way round: h . W_a s instead of s . W_a h.",
        "which state stands on which side: W_a is (hidden, encoder_width).",
        ("lu-02",),
    ),
    Mistake(
        "state before the context",
        _looping(look=_own_combine(lambda c, q, W: torch.tanh(torch.cat([q, c], -1) @ W.T))),
        "You join [s; c] for the attentional state. The first columns of W_c belong to the context.",
        "the order inside torch.cat: [c; s].",
    ),
    Mistake(
        "no tanh",
        _looping(look=_own_combine(lambda c, q, W: torch.cat([c, q], -1) @ W.T)),
        "Your attentional state lacks the tanh.",
        "equation 5.",
    ),
    Mistake(
        "states returned",
        _looping(give=lambda fed, query: query),
        "You return the states s_t. The attentional states are wanted, from which the words are predicted.",
        "the list that you stack.",
    ),
    Mistake(
        "scores returned",
        _looping(look=_scores_given),
        "You return the scores where the weights are wanted.",
        "the second result: after the softmax.",
    ),
    Mistake(
        "results in the other order",
        lambda *given: _looping()(*given)[::-1],
        "You return (weights, attentional); wanted is (attentional, weights).",
        "the return line.",
    ),
    Mistake(
        "fed vector detached",
        _looping(keep=lambda fed: fed.detach()),
        "You cut the fed vector off from the step that made it. A later error has to reach that look.",
        ".detach(), .data or torch.no_grad() on the attentional state.",
    ),
    Mistake(
        "state detached",
        _looping(carry=lambda before, after, fed: after.detach()),
        "You cut the state off from the step before, so that no gradient flows back through the steps.",
        ".detach(), .data or torch.no_grad() on the state.",
    ),
)


def _all_at_once(embeddings, state, encoder_states, mask, W_a, W_c, rnn, feeding):
    """Without feeding: one call for all steps, and then one look for all words."""
    if feeding:
        return _looping(query=lambda before, after: after[-1])(
            embeddings, state, encoder_states, mask, W_a, W_c, rnn, feeding
        )
    states, _ = rnn(embeddings, state)
    weights = _filled_softmax(states @ W_a @ encoder_states.mT, mask[:, None])
    return torch.tanh(torch.cat([weights @ encoder_states, states], -1) @ W_c.T), weights


def _output_asks(embeddings, state, encoder_states, mask, W_a, W_c, rnn, feeding):
    """The rnn's output of the step as the query, and the keys projected once."""
    keys = encoder_states @ W_a.T
    fed = embeddings.new_zeros(len(embeddings), 1, len(W_c))
    outputs, rows = [], []
    for t in range(embeddings.shape[1]):
        word = embeddings[:, t : t + 1]
        output, state = rnn(torch.cat((word, fed), 2) if feeding else word, state)
        weights = torch.softmax(torch.bmm(output, keys.transpose(1, 2)).masked_fill(~mask[:, None], -INF), -1)
        fed = torch.nn.functional.linear(torch.cat((torch.bmm(weights, encoder_states), output), 2), W_c)
        fed = fed.tanh()
        outputs.append(fed)
        rows.append(weights)
    return torch.cat(outputs, 1), torch.cat(rows, 1)


def _by_sentence(embeddings, state, encoder_states, mask, W_a, W_c, rnn, feeding):
    """One sentence at a time, its padding cut off."""
    outputs, rows = [], []
    for b, real in enumerate(mask):
        h = encoder_states[b : b + 1, real]
        given = embeddings[b : b + 1], state[:, b : b + 1].contiguous(), h
        fed, weights = _output_asks(*given, torch.ones_like(real[None, real]), W_a, W_c, rnn, feeding)
        outputs.append(fed)
        rows.append(torch.nn.functional.pad(weights, (0, len(real) - h.shape[1])))
    return torch.cat(outputs), torch.cat(rows)


DECODE = Exercise(
    question=find("05.3"),
    title="decoder with input feeding",
    minutes=25,
    difficulty=3,
    reference=_loop_reference,
    axes={"attentional": "batch, target, attentional", "weights": "batch, target, source"},
    parts=(
        Part(
            "without feeding: step, then ask",
            1,
            _draw_free,
            ("weights", "attentional"),
            "which state asks, and what W_c gets.",
        ),
        Part(
            "with feeding",
            1,
            _draw_fed,
            ("weights", "attentional"),
            "what the rnn gets as its input at the first step, and at the second.",
        ),
        Part(
            "the gradient through all steps",
            1,
            _draw_loop_gradient,
            ("weights", "attentional", *(f"gradient of {name}" for name in LOOP_LEAVES)),
            "what each step hands on to the next.",
        ),
    ),
    mistakes=LOOP_MISTAKES,
    variants=(
        Variant("hidden[-1] asks, one step after another", _looping(), ("lu-07",)),
        Variant("the rnn's output asks, keys projected once", _output_asks, ("lu-07",)),
        Variant("without feeding, all steps at once", _all_at_once, ("if-06",)),
        Variant("one sentence at a time", _by_sentence),
    ),
    forbidden=("course_utils.models",),
)


# --- 05.4 local-p weights -----------------------------------------------------------------------------------


def _local_centre(inputs: Inputs) -> np.ndarray:
    states, W_p, v_p = (inputs[name].astype(np.float64) for name in ("states", "W_p", "v_p"))
    return inputs["mask"].sum(-1)[:, None] / (1 + np.exp(-np.tanh(states @ W_p.T) @ v_p))


def _local_reference(inputs: Inputs) -> Outputs:
    centre = _local_centre(inputs)
    away = np.arange(inputs["scores"].shape[-1]) - centre[..., None]
    window = (abs(away) <= inputs["reach"]) & inputs["mask"][:, None]
    weights = _softmax(inputs["scores"], window) * np.exp(-2 * (away / inputs["reach"]) ** 2)
    return {"centre": centre, SHARES: weights / weights.sum(-1, keepdims=True)}


def _local_inputs(
    rng: Generator, batch: int, target: int, source: int, hidden: int, inner: int, reach: int
) -> Inputs:
    """Predicted centres lie near both ends of the first sentence, and nowhere near a whole number."""
    mask = padded(rng, batch, source) if batch > 1 else np.ones((batch, source), bool)
    mask[0, : 2 * reach] = True
    while True:
        inputs = {
            "scores": normal(rng, batch, target, source),
            "states": normal(rng, batch, target, hidden),
            "mask": mask,
            "W_p": normal(rng, inner, hidden),
            "v_p": 3 * normal(rng, inner),
            "reach": reach,
        }
        centre = _local_centre(inputs)
        both_ends = centre[0].min() < reach - 1 and centre[0].max() > mask[0].sum() - 1
        if both_ends and abs(centre - centre.round()).min() > 0.01:
            return inputs


def _draw_centre(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 58])
    batch, hidden, inner = sizes(rng, 3)
    return [
        _local_inputs(rng, 1, 3, 5, 2, 2, 2),
        _local_inputs(rng, 2, 3, 7, 4, 4, 2),
        _local_inputs(rng, batch, 5, 9, hidden, inner, 3),
    ]


def _draw_local(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 59])
    batch, hidden, inner = sizes(rng, 3)
    return [
        _local_inputs(rng, 1, 3, 6, 2, 3, 2),
        _local_inputs(rng, 2, 4, 8, 3, 2, 2),
        _local_inputs(rng, batch, 6, 11, hidden, inner, 3),
    ]


def _empty_row(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    if (outputs[SHARES] == 0).all(-1).any():
        return Finding(
            "One of your windows is empty: no source word gets weight.",
            "a centre near the start of the sentence: where does its window begin?",
            output=SHARES,
        )
    return None


def _outside_is_zero(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    if (abs(outputs[SHARES][expected[SHARES] == 0]) > 1e-6).any():
        return Finding(
            "A word gets weight that is padding, or more than reach away from the centre.",
            "the condition for the window: |j - p| <= reach, and the mask.",
            output=SHARES,
        )
    return None


def _centre(states, mask, W_p, v_p):
    return mask.sum(1, keepdim=True) * torch.sigmoid(torch.tanh(states @ W_p.T) @ v_p)


def _local(
    *,
    centre: Callable = _centre,
    about: Callable = lambda centre: centre,
    places: Callable = lambda n: torch.arange(n),
    inside: Callable = lambda away, reach: away.abs() <= reach,
    real: Callable = lambda mask: mask,
    weigh: Callable = lambda scores, away, reach: (
        torch.softmax(scores, -1) * torch.exp(-2 * (away / reach) ** 2)
    ),
) -> Callable:
    """local_weights with one of its parts replaced; `weigh` gets -inf outside the window."""

    def local_weights(scores, states, mask, W_p, v_p, reach):
        p = centre(states, mask, W_p, v_p)
        away = places(scores.shape[-1]) - about(p)[..., None]
        window = inside(away, reach) & real(mask)[:, None]
        weights = weigh(scores.masked_fill(~window, -INF), away, reach)
        return weights.masked_fill(~window, 0.0), p

    return local_weights


def _gaussian(width: Callable) -> Callable:
    """Weights with the factor exp(-away^2 / width(reach))."""
    return _local(weigh=lambda s, away, reach: torch.softmax(s, -1) * torch.exp(-(away**2) / width(reach)))


def _sliced(low: Callable, high: Callable) -> Callable:
    """local_weights with a window made by slicing each row: low(p, reach) : high(p, reach)."""

    def local_weights(scores, states, mask, W_p, v_p, reach):
        p = _centre(states, mask, W_p, v_p)
        weights = torch.zeros_like(scores)
        for b, t in np.ndindex(*p.shape):
            n, centre = int(mask[b].sum()), float(p[b, t])
            part = slice(low(centre, reach), min(high(centre, reach), n))
            away = torch.arange(len(mask[b])) - p[b, t]
            weights[b, t, part] = torch.softmax(scores[b, t, part], -1) * torch.exp(
                -2 * (away[part] / reach) ** 2
            )
        return weights, p

    return local_weights


LOCAL_MISTAKES = (
    Mistake(
        "window one word short",
        _sliced(lambda p, D: max(0, math.ceil(p - D)), lambda p, D: math.floor(p + D)),
        "Your window lacks its last word: a slice ends before its second number.",
        "the end of the slice: + 1, or compare |j - p| <= reach instead of slicing.",
        ("loc-01",),
    ),
    Mistake(
        "window from the rounded-down centre",
        _sliced(lambda p, D: max(0, int(p) - D), lambda p, D: int(p) + D),
        "You round the centre down and slice from p - D to p + D: the window lacks words at its end.",
        "p as the real number it is: the window holds every j with |j - p| <= reach.",
        ("loc-01",),
    ),
    Mistake(
        "left border below zero",
        _sliced(lambda p, D: math.ceil(p - D), lambda p, D: math.floor(p + D) + 1),
        "Near the start your window begins at a negative index, which Python counts from the end of the row.",
        "the start of the slice: max(0, …), or compare |j - p| <= reach instead of slicing.",
        ("loc-02",),
    ),
    Mistake(
        "sigma = D",
        _gaussian(lambda D: 2 * D**2),
        "Your Gaussian has the standard deviation D. It is D / 2, so that the window ends at two of them.",
        "equation 10: sigma = D / 2.",
        ("loc-05",),
    ),
    Mistake(
        "2 sigma^2 without the 2",
        _gaussian(lambda D: D**2 / 4),
        "You divide the squared distance by sigma^2. The Gaussian divides it by 2 sigma^2.",
        "equation 10: exp(-(j - p)^2 / (2 sigma^2)).",
        ("loc-05",),
    ),
    Mistake(
        "sigma not squared",
        _gaussian(lambda D: D),
        "You divide the squared distance by 2 sigma. The Gaussian divides it by 2 sigma^2.",
        "equation 10: exp(-(j - p)^2 / (2 sigma^2)).",
        ("loc-05",),
    ),
    Mistake(
        "distance not squared",
        _local(weigh=lambda s, away, D: torch.softmax(s, -1) * torch.exp(-2 * away.abs() / D**2)),
        "Your factor falls with the distance, not with its square.",
        "equation 10: (j - p)^2.",
    ),
    Mistake(
        "no Gaussian",
        _local(weigh=lambda s, away, D: torch.softmax(s, -1)),
        "Inside the window all words count alike: the Gaussian is missing.",
        "the factor exp(-(j - p)^2 / (2 sigma^2)). (Without it the centre could not be learned, either.)",
    ),
    Mistake(
        "Gaussian alone",
        _local(weigh=lambda s, away, D: torch.exp(-2 * (away / D) ** 2)),
        "Your weights come from the Gaussian alone: the scores do not enter.",
        "the softmax of the scores, times the Gaussian.",
    ),
    Mistake(
        "Gaussian times the scores",
        _local(weigh=lambda s, away, D: torch.softmax(s * torch.exp(-2 * (away / D) ** 2), -1)),
        "You multiply the scores by the Gaussian, before the softmax. A score near 0 is not a small weight.",
        "the order: softmax first, then the Gaussian.",
    ),
    Mistake(
        "no window",
        _local(inside=lambda away, D: away == away),
        "Words far from the centre keep some weight: the Gaussian makes it small, the window makes it 0.",
        "the window: |j - p| <= reach.",
    ),
    Mistake(
        "window of half the reach",
        _local(inside=lambda away, D: away.abs() <= D / 2),
        "Your window reaches D / 2 words to each side. It is D to each side; D / 2 is the Gaussian's sigma.",
        "the window: |j - p| <= reach.",
    ),
    Mistake(
        "padding in the window",
        _local(real=torch.ones_like),
        "Padding inside the window gets weight.",
        "the mask: it hides padding, in the window as well.",
    ),
    Mistake(
        "padding counts as length",
        _local(centre=lambda s, m, W, v: m.shape[1] * torch.sigmoid(torch.tanh(s @ W.T) @ v)),
        "Your S is the width of the batch. It is the number of real words of each sentence.",
        "S: mask.sum(1), one number for each sentence.",
    ),
    Mistake(
        "S - 1",
        _local(
            centre=lambda s, m, W, v: (m.sum(1, keepdim=True) - 1) * torch.sigmoid(torch.tanh(s @ W.T) @ v)
        ),
        "You multiply by S - 1. Equation 9 has S.",
        "the factor before the sigmoid.",
    ),
    Mistake(
        "centre between 0 and 1",
        _local(centre=lambda s, m, W, v: torch.sigmoid(torch.tanh(s @ W.T) @ v)),
        "Your centre lies between 0 and 1. The sigmoid is a share of the sentence; times S it is a place.",
        "equation 9: p = S sigmoid(…).",
    ),
    Mistake(
        "no tanh",
        _local(centre=lambda s, m, W, v: m.sum(1, keepdim=True) * torch.sigmoid(s @ W.T @ v)),
        "Your centre lacks the tanh inside the sigmoid.",
        "equation 9: v_p . tanh(W_p s).",
    ),
    Mistake(
        "no sigmoid",
        _local(centre=lambda s, m, W, v: m.sum(1, keepdim=True) * (torch.tanh(s @ W.T) @ v)),
        "Your centre lacks the sigmoid: it may lie anywhere, even before the sentence.",
        "equation 9.",
    ),
    Mistake(
        "W_p not transposed",
        _local(centre=lambda s, m, W, v: m.sum(1, keepdim=True) * torch.sigmoid(torch.tanh(s @ W) @ v)),
        "You multiply by W_p as it is. With the states on the left it has to be transposed.",
        "W_p.T: (…, hidden) times (hidden, inner).",
    ),
    Mistake(
        "centre rounded",
        _local(centre=lambda s, m, W, v: _centre(s, m, W, v).round()),
        "You round the centre. Rounded, it passes no gradient, and W_p and v_p could not learn.",
        "p as the real number it is.",
    ),
    Mistake(
        "words counted from 1",
        _local(places=lambda n: torch.arange(1, n + 1)),
        "You count the source words from 1. Here they are counted from 0, as the centre is.",
        "torch.arange(source).",
    ),
    Mistake(
        "results in the other order",
        lambda *given: _local()(*given)[::-1],
        "You return (centre, weights); wanted is (weights, centre).",
        "the return line.",
    ),
)


def _renormalised(weights: torch.Tensor) -> torch.Tensor:
    return weights / weights.sum(-1, keepdim=True)


def _added_in_the_logarithm(scores, states, mask, W_p, v_p, reach):
    p = _centre(states, mask, W_p, v_p)
    away = torch.arange(scores.shape[-1]) - p.unsqueeze(-1)
    hidden = (away.abs() > reach) | ~mask.unsqueeze(1)
    return torch.softmax((scores - away**2 / (2 * (reach / 2) ** 2)).masked_fill(hidden, -INF), -1), p


def _whole_softmax(scores, states, mask, W_p, v_p, reach):
    """The softmax over the whole source, the window cut out of it afterwards."""
    p = _centre(states, mask, W_p, v_p)
    away = torch.arange(scores.shape[-1]) - p[..., None]
    weights = torch.softmax(scores.masked_fill(~mask[:, None], -INF), -1)
    return weights * torch.exp(-2 * (away / reach) ** 2) * (away.abs() <= reach), p


LOCAL_VARIANTS = (
    Variant("as in the paper", _local(), ("loc-06",)),
    Variant(
        "renormalised",
        lambda *given: (_renormalised(_local()(*given)[0]), _local()(*given)[1]),
        ("loc-06",),
    ),
    Variant("softmax over the whole source", _whole_softmax, ("loc-06",)),
    Variant("the Gaussian's logarithm added to the scores", _added_in_the_logarithm, ("loc-06",)),
    Variant(
        "each row a slice",
        _sliced(lambda p, D: max(0, math.ceil(p - D)), lambda p, D: math.floor(p + D) + 1),
        ("loc-01", "loc-02"),
    ),
)

LOCAL_WEIGHTS = Exercise(
    question=find("05.4"),
    title="local-p weights",
    minutes=20,
    difficulty=2,
    reference=_local_reference,
    axes={"centre": "batch, target", SHARES: "batch, target, source"},
    parts=(
        Part(
            "the centre",
            1,
            _draw_centre,
            ("centre",),
            "equation 9, from the inside out: W_p, tanh, v_p, sigmoid, S.",
        ),
        Part(
            "the window and the Gaussian",
            1,
            _draw_local,
            ("centre", SHARES),
            "one row by hand: which words lie in the window, and what is each factor?",
            (_empty_row, _outside_is_zero),
        ),
    ),
    mistakes=LOCAL_MISTAKES,
    variants=LOCAL_VARIANTS,
    forbidden=("course_utils.models",),
)


# --- 05.5 concat as the additive score ----------------------------------------------------------------------


def _additive_reference(inputs: Inputs) -> Outputs:
    return _scores_reference(inputs | {"kind": "concat"})


def _draw_additive(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 60])
    same = int(rng.integers(3, 6))

    def inputs(*sizes: int) -> Inputs:
        given = _score_inputs(rng, "concat", *sizes)
        return {name: given[name] for name in ("W", "v", "queries", "keys")} | {"query_width": sizes[3]}

    return [inputs(1, 1, 3, 2, 2, 2), inputs(2, 3, 3, same, same, same), inputs(*sizes(rng, 6))]


def _loaded(W_q: torch.Tensor, W_k: torch.Tensor, v: torch.Tensor | None) -> AdditiveScore:
    score = AdditiveScore(W_q.shape[1], W_k.shape[1], len(W_q))
    with torch.no_grad():
        score.query.weight.copy_(W_q)
        score.key.weight.copy_(W_k)
        if v is not None:
            score.v.copy_(v)
    return score


ADDITIVE_MISTAKES = (
    Mistake(
        "halves swapped",
        lambda W, v, n: _loaded(W[:, n:], W[:, :n], v),
        "You give the query the columns of the key, and the key those of the query.",
        "the order in [s; h]: the first query_width columns belong to the query.",
    ),
    Mistake(
        "columns dealt out in turn",
        lambda W, v, n: _loaded(W[:, ::2], W[:, 1::2], v),
        "You deal the columns out in turn. The first query_width of them belong to the query as a block.",
        "the slices: W[:, :query_width] and W[:, query_width:].",
    ),
    Mistake(
        "v left as it was",
        lambda W, v, n: _loaded(W[:, :n], W[:, n:], None),
        "W is in its place, but v is still the one that AdditiveScore drew.",
        "the third parameter, v.",
    ),
    Mistake(
        "W left as it was",
        lambda W, v, n: _with_v(AdditiveScore(n, W.shape[1] - n, len(v)), v),
        "v is in its place, but the two matrices are still those that AdditiveScore drew.",
        "query.weight and key.weight.",
    ),
    Mistake(
        "nothing copied",
        lambda W, v, n: AdditiveScore(n, W.shape[1] - n, len(v)),
        "The parameters are still those that AdditiveScore drew: nothing was copied into it.",
        "`parameter.copy_(values)` under torch.no_grad(); an assignment to a local name copies nothing.",
    ),
    Mistake(
        "one matrix for both",
        lambda W, v, n: _loaded(W[:, :n], W[:, :n] if W.shape[1] == 2 * n else W[:, n:].flip(0), v),
        "Query and key are not projected by their own columns of W.",
        "key.weight: the last columns of W, with its rows as they are.",
    ),
    Mistake(
        "the matrices halved",
        lambda W, v, n: _loaded(W[:, :n] / 2, W[:, n:] / 2, v),
        "You halve the matrices. AdditiveScore's use of 2 is inside it; its parameters are the plain ones.",
        "the factors: none is needed.",
    ),
)


def _with_v(score: AdditiveScore, v: torch.Tensor) -> AdditiveScore:
    with torch.no_grad():
        score.v.copy_(v)
    return score


def _loaded_from_dict(W, v, query_width):
    score = AdditiveScore(query_width, W.shape[1] - query_width, W.shape[0])
    of_query, of_key = W.split([query_width, W.shape[1] - query_width], dim=1)
    score.load_state_dict({"query.weight": of_query, "key.weight": of_key, "v": v})
    return score


def _assigned(W, v, query_width):
    score = AdditiveScore(query_width, W.shape[1] - query_width, len(v))
    score.query.weight = torch.nn.Parameter(W[:, :query_width].clone())
    score.key.weight.data = W[:, query_width:].contiguous()
    score.v = torch.nn.Parameter(v)
    return score


AS_ADDITIVE = Exercise(
    question=find("05.5"),
    title="concat as additive",
    minutes=10,
    difficulty=2,
    reference=_additive_reference,
    axes={"scores": "batch, target, source"},
    parts=(
        Part(
            "an AdditiveScore with the same scores",
            1,
            _draw_additive,
            ("scores",),
            "the shapes of the three parameters beside those of W and v.",
        ),
    ),
    mistakes=ADDITIVE_MISTAKES,
    variants=(
        Variant("copied in place", lambda W, v, n: _loaded(W[:, :n], W[:, n:], v)),
        Variant("load_state_dict", _loaded_from_dict),
        Variant("parameters assigned", _assigned),
    ),
)

EXERCISES = [LUONG_SCORES, ATTENTIONAL_STATES, DECODE, LOCAL_WEIGHTS, AS_ADDITIVE]
