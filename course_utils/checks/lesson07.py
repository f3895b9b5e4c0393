"""The exercises of lesson 07, the Transformer (Vaswani et al. 2017), and how they go wrong.

Sources such as "ln-04" name the public bug report or thread that a mistake or a variant was first seen in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator, default_rng

from course_utils.checks.draws import normal, padded, sizes
from course_utils.checks.engine import Exercise, Finding, Mistake, Part, Variant
from course_utils.questions import find
from course_utils.questions.asking import (
    Inputs,
    Outputs,
)
from course_utils.questions.lesson07 import STEP_RESULTS

INF = float("inf")


def _reference(id: str, right: Callable) -> Callable[[Inputs], Outputs]:
    """The outputs that the function `right` gives for the same inputs in float64, asked as `id` is."""
    ask = find(id).ask

    def reference(inputs: Inputs) -> Outputs:
        exact = {
            name: value.astype(np.float64) if type(value) is np.ndarray and value.dtype.kind == "f" else value
            for name, value in inputs.items()
        }
        return ask(right, exact)

    return reference


# --- 07.1 a stack of residual sublayers ---------------------------------------------------------------------


def _stack_inputs(rng: Generator, pre: bool, batch: int, length: int, width: int, layers: int) -> Inputs:
    """Numbers whose deviations are all large enough that it does not matter where an epsilon is added."""
    while True:
        norms = layers + pre
        inputs = {
            "x": normal(rng, batch, length, width).round(1),
            "matrices": normal(rng, layers, width, width).round(1),
            "gains": rng.uniform(0.5, 2.0, (norms, width)).astype("float32").round(1),
            "biases": normal(rng, norms, width).round(1),
            "pre": pre,
        }
        deviations: list[float] = []

        def norm(x, gain, bias, seen=deviations):
            seen.append(float(x.std(-1, unbiased=False).min()))
            return _norm(x, gain, bias)

        find("07.1").ask(_with_norm(norm), inputs)
        if min(deviations) > 0.5:
            return inputs


def _draw_stack(pre: bool, seed: int) -> list[Inputs]:
    rng = default_rng([seed, 71 + pre])
    batch, length, layers, width = (*sizes(rng, 3, 2, 5), 6)
    level = _stack_inputs(rng, pre, 2, 3, 4, 1)
    level["x"][:, 1] = 2.0  # a state whose numbers are all alike, before the sublayer and after it
    level["matrices"][0] = 0.5 * np.eye(4)
    level["biases"][0] = [-1, 0.5, 2, 1]
    return [
        _stack_inputs(rng, pre, 1, 1, 2, 1),
        _stack_inputs(rng, pre, 2, 3, 4, 1),
        level,
        _stack_inputs(rng, pre, 1, 3, 5, 2) | {"upstream": normal(rng, 1, 3, 5)},
        _stack_inputs(rng, pre, batch, length, width, layers),
    ]


def _each_state_for_itself(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    """Without gains and biases, the last norm would leave each state with mean 0 and standard deviation 1."""
    states = outputs["states"].astype(np.float64)
    plain = (states - inputs["biases"][-1]) / inputs["gains"][-1]
    wanted = (expected["states"] - inputs["biases"][-1]) / inputs["gains"][-1]
    if (abs(wanted.std(-1) - 1) < 1e-3).all() and (abs(plain.mean(-1)) > 1e-3).any():
        return Finding(
            "The result should leave the last norm, with its gain and bias. Yours is of another size.",
            "what stands last: in post-LN every sublayer ends with its norm, in pre-LN one more closes all.",
            output="states",
        )
    return None


def _norm(x, gain, bias):
    """What most mistakes below start from."""
    mean = x.mean(-1, keepdim=True)
    variance = x.var(-1, keepdim=True, unbiased=False)
    return (x - mean) / torch.sqrt(variance + 1e-5) * gain + bias


def _stack_of(
    step: Callable, norm: Callable = _norm, final: Callable | None = None, only: bool | None = None
) -> Callable:
    """A stack whose sublayers are applied by step(x, sublayer, n, i, pre), n(i, x) being norm i.

    `final` is what closes it (the last norm in pre-LN by default); `only` lets one order count for both.
    """

    def stack(x, sublayers, gains, biases, pre):
        def n(i, x):
            return norm(x, gains[i], biases[i])

        asked = pre
        pre = pre if only is None else only
        for i, sublayer in enumerate(sublayers):
            x = step(x, sublayer, n, i, pre)
        if final is not None:
            return final(x, n, pre)
        return n(-1, x) if pre and asked else x

    return stack


def _right_sublayer(x, sublayer, n, i, pre):
    return x + sublayer(n(i, x)) if pre else n(i, x + sublayer(x))


_residual_stack = _stack_of(_right_sublayer)


def _with_norm(norm: Callable) -> Callable:
    return _stack_of(_right_sublayer, norm)


def _unbiased(x, gain, bias):
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5) * gain + bias


def _no_epsilon(x, gain, bias):
    return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True, unbiased=False) * gain + bias


def _by_variance(x, gain, bias):
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-5) * gain + bias


def _over(axes: tuple[int, ...]) -> Callable:
    def norm(x, gain, bias):
        mean = x.mean(axes, keepdim=True)
        return (x - mean) / torch.sqrt(((x - mean) ** 2).mean(axes, keepdim=True) + 1e-5) * gain + bias

    return norm


def _mean_kept(x, gain, bias):
    return x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-5) * gain + bias


def _fixed_statistics(x, gain, bias):
    mean = x.mean(-1, keepdim=True).detach()
    variance = x.var(-1, keepdim=True, unbiased=False).detach()
    return (x - mean) / torch.sqrt(variance + 1e-5) * gain + bias


def _normalised_is_added(x, sublayer, n, i, pre):
    if not pre:
        return n(i, x + sublayer(x))
    normalised = n(i, x)
    return normalised + sublayer(normalised)


def _first_input_added(x, sublayers, gains, biases, pre):
    first = x
    for i, sublayer in enumerate(sublayers):
        if pre:
            x = first + sublayer(_norm(x, gains[i], biases[i]))
        else:
            x = _norm(first + sublayer(x), gains[i], biases[i])
    return _norm(x, gains[-1], biases[-1]) if pre else x


def _only_one_sublayer(x, sublayers, gains, biases, pre):
    return _residual_stack(x, sublayers[:1], gains, biases, pre)


def _stack_in_place(x, sublayers, gains, biases, pre):
    with torch.no_grad():
        result = _residual_stack(x.clone(), sublayers, gains, biases, pre)
        x.copy_(result)
    return x


def _swapped_orders(x, sublayers, gains, biases, pre):
    for i, sublayer in enumerate(sublayers):
        if pre:
            x = _norm(x + sublayer(x), gains[i], biases[i])
        else:
            x = x + sublayer(_norm(x, gains[i], biases[i]))
    return _norm(x, gains[-1], biases[-1]) if pre else x


STACK_MISTAKES = (
    Mistake(
        "deviation with n - 1",
        _with_norm(_unbiased),
        "Your norm divides by the standard deviation with n - 1. Layer norm divides by the one with n.",
        "x.std() and x.var() take n - 1 unless you pass unbiased=False.",
        ("ln-01",),
    ),
    Mistake(
        "no epsilon",
        _with_norm(_no_epsilon),
        "Where all numbers of a state are alike, your norm divides 0 by 0.",
        "the small number (1e-5) that is added to the variance.",
    ),
    Mistake(
        "divided by the variance",
        _with_norm(_by_variance),
        "Your norm divides by the variance. Its square root, the standard deviation, is wanted.",
        "the root in the denominator.",
    ),
    Mistake(
        "mean kept",
        _with_norm(_mean_kept),
        "Your norm does not take the mean away. (Such a norm exists, RMSNorm; layer norm is another.)",
        "x - mean, before the division and inside the variance.",
    ),
    Mistake(
        "normalised over the words",
        _with_norm(_over((1,))),
        "Your norm runs along the sentence. Each state is normalised for itself, over its width.",
        "the dim of mean and variance: x is (batch, length, width).",
    ),
    Mistake(
        "normalised over the sentence",
        _with_norm(_over((1, 2))),
        "Your norm runs over the whole sentence at once. Each state is normalised for itself.",
        "the dim of mean and variance: the last one alone.",
    ),
    Mistake(
        "gain and bias left out",
        _with_norm(lambda x, gain, bias: _norm(x, 1.0, 0.0)),
        "Your norm lacks its gain and its bias.",
        "the last step of the norm: times the gain, plus the bias.",
    ),
    Mistake(
        "mean and deviation detached",
        _with_norm(_fixed_statistics),
        "The values are right, but the gradient is not: mean and variance depend on x as well.",
        ".detach() or torch.no_grad() around mean and variance.",
    ),
    Mistake(
        "normalised state added",
        _stack_of(_normalised_is_added),
        "In pre-LN you add to the normalised state. x itself passes beside the sublayer.",
        "the left side of the sum: x + f(norm(x)), not norm(x) + f(norm(x)).",
        ("ln-04",),
    ),
    Mistake(
        "norm of the sublayer's output",
        _stack_of(lambda x, f, n, i, pre: x + n(i, f(x))),
        "You normalise what the sublayer gives, and then add. That is neither post-LN nor pre-LN.",
        "what the norm is applied to: to x + f(x) in post-LN, to the input of f in pre-LN.",
        ("ln-05",),
    ),
    Mistake(
        "pre-LN for both",
        _stack_of(_right_sublayer, only=True),
        "You put the norm before the sublayer. With pre=False it comes after the sum.",
        "the case pre=False: norm(x + f(x)).",
        ("ln-09",),
    ),
    Mistake(
        "post-LN for both",
        _stack_of(_right_sublayer, only=False),
        "You put the norm after the sum. With pre=True it comes before the sublayer.",
        "the case pre=True: x + f(norm(x)).",
        ("ln-09",),
    ),
    Mistake(
        "the two orders swapped",
        _swapped_orders,
        "You have pre and post the wrong way round.",
        "the condition: pre=True puts the norm before the sublayer.",
        ("ln-09",),
    ),
    Mistake(
        "no last norm",
        _stack_of(_right_sublayer, final=lambda x, n, pre: x),
        "Your pre-LN stack ends without its last norm, so that its output grows with every sublayer.",
        "the row of gains and biases that no sublayer uses: it belongs to one norm more, after the loop.",
        ("ln-06",),
    ),
    Mistake(
        "last norm twice",
        _stack_of(_right_sublayer, final=lambda x, n, pre: n(-1, x)),
        "Your post-LN stack ends with a norm too many: its last sublayer has one already.",
        "the norm after the loop: it belongs to pre-LN alone.",
        ("ln-06",),
    ),
    Mistake(
        "one norm for all",
        lambda x, f, g, b, pre: _residual_stack(x, f, g[:1].expand_as(g), b[:1].expand_as(b), pre),
        "You use the first gain and bias for every sublayer. Each has its own.",
        "the index of gains and biases.",
        ("ln-07",),
    ),
    Mistake(
        "no residual connection",
        _stack_of(lambda x, f, n, i, pre: f(n(i, x)) if pre else n(i, f(x))),
        "Nothing passes beside the sublayer: the sum with x is missing.",
        "x + ..., the residual connection.",
    ),
    Mistake(
        "no norm at all",
        _stack_of(lambda x, f, n, i, pre: x + f(x), final=lambda x, n, pre: x),
        "You add up without any norm.",
        "gains and biases: each sublayer has a norm.",
    ),
    Mistake(
        "first input added each time",
        _first_input_added,
        "Every sublayer's output is added to the very first x. It belongs to what the sublayer before left.",
        "the x in x + ...: it moves on with every sublayer.",
    ),
    Mistake(
        "stops after one sublayer",
        _only_one_sublayer,
        "Only the first sublayer is used.",
        "the loop over the sublayers, and where the return stands.",
    ),
    Mistake(
        "gradient cut",
        lambda x, f, g, b, pre: _residual_stack(x.detach(), f, g, b, pre),
        "No gradient reaches x, so nothing before this stack could learn.",
        ".detach(), .data, .numpy(), torch.tensor(...) and torch.no_grad(): each of them cuts the way back.",
    ),
    Mistake(
        "writes into x",
        _stack_in_place,
        "You write into the x that you were given. The caller still needs it.",
        "operations that end in an underscore, `+=`, and assignments to x[...].",
    ),
)


def _torch_norm(x, gain, bias):
    return F.layer_norm(x, x.shape[-1:], gain, bias)


def _norm_with_epsilon_outside(x, gain, bias):
    return gain * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True, correction=0) + 1e-5) + bias


def _norm_by_powers(x, gain, bias):
    centred = x - x.sum(-1, keepdim=True) / x.shape[-1]
    return centred * torch.rsqrt(centred.pow(2).sum(-1, keepdim=True) / x.shape[-1] + 1e-5) * gain + bias


def _stack_by_recursion(x, sublayers, gains, biases, pre):
    if not sublayers:
        return _norm_by_powers(x, gains[0], biases[0]) if pre else x
    first, *others = sublayers
    x = (
        x + first(_torch_norm(x, gains[0], biases[0]))
        if pre
        else _torch_norm(first(x) + x, gains[0], biases[0])
    )
    return _stack_by_recursion(x, others, gains[1:], biases[1:], pre)


RESIDUAL_STACK = Exercise(
    question=find("07.1"),
    title="residual stack",
    minutes=20,
    difficulty=2,
    reference=_reference("07.1", _residual_stack),
    axes={"states": "batch, length, width"},
    parts=(
        Part(
            "post-LN: the norm after the sum",
            1,
            partial(_draw_stack, False),
            ("states", "gradient of x"),
            "one state with a pencil: sublayer, sum, mean, deviation, gain and bias.",
            (_each_state_for_itself,),
        ),
        Part(
            "pre-LN: the norm before the sublayer, and one at the end",
            1,
            partial(_draw_stack, True),
            ("states", "gradient of x"),
            "one state with a pencil: norm, sublayer, sum; and what happens after the last sublayer.",
            (_each_state_for_itself,),
        ),
    ),
    mistakes=STACK_MISTAKES,
    variants=(
        Variant("torch's layer norm", _with_norm(_torch_norm), ("ln-09",)),
        Variant("epsilon beside the deviation", _with_norm(_norm_with_epsilon_outside)),
        Variant("a recursion, with rsqrt", _stack_by_recursion),
    ),
    forbidden=("course_utils.models", "torch.nn.TransformerEncoderLayer", "torch.nn.TransformerEncoder"),
    tolerance={"float32": 2e-4, "float64": 1e-6},
)


# --- 07.2 a decoder layer -----------------------------------------------------------------------------------

HEADS = 2


def _layer_inputs(
    rng: Generator, batch: int, target: int, source: int, width: int = 4, *, heads: int = HEADS, pad=True
) -> Inputs:
    mask = padded(rng, batch, source) if pad else np.ones((batch, source), bool)
    inner = width + 2
    return {
        "x": normal(rng, batch, target, width),
        "encoder_states": normal(rng, batch, source, width) + 3 * (~mask[..., None]).astype("float32"),
        "source_mask": mask,
        "heads": heads,
        "own_matrices": normal(rng, 4, width, width) / np.float32(width**0.5),
        "cross_matrices": normal(rng, 4, width, width) / np.float32(width**0.5),
        "widen": normal(rng, inner, width),
        "narrow": normal(rng, width, inner),
        "gains": rng.uniform(0.5, 2.0, (3, width)).astype("float32"),
        "biases": normal(rng, 3, width),
    }


def _draw_one_layer(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 73])
    target, source, *_ = sizes(rng, 2, 3)
    return [
        _layer_inputs(rng, 1, 2, 3, 2, heads=1, pad=False),
        _layer_inputs(rng, 1, 3, 3, pad=False),  # as many source as target words: swapped roles fit
        _layer_inputs(rng, 1, target, source, 6, pad=False),
    ]


def _draw_layers(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 74])
    future, padding = _layer_inputs(rng, 2, 4, 3), _layer_inputs(rng, 2, 3, 5)
    for name in ("encoder_states", "source_mask"):  # one sentence twice, which ends in two ways
        future[name][1] = future[name][0]
    future["x"][1, :2] = future["x"][0, :2]
    padding["x"][1] = padding["x"][0]  # one sentence twice, with other numbers in its padding
    padding["source_mask"][1] = padding["source_mask"][0]
    real = padding["source_mask"][0]
    padding["encoder_states"][1, real] = padding["encoder_states"][0, real]
    batch, target, source = sizes(rng, 3, 3)
    return [
        future,
        padding,
        _layer_inputs(rng, 3, 4, 4),
        _layer_inputs(rng, 2, 4, 4),
        _layer_inputs(rng, 3, 2, 4) | {"upstream": normal(rng, 3, 2, 4)},
        _layer_inputs(rng, batch, target, source, 6),
    ]


def _future_moves_nothing(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    """Where the first two sentences begin alike and read the same, the states of that beginning agree."""
    x, states = inputs["x"], outputs["states"]
    if len(x) < 2 or (inputs["encoder_states"][0] != inputs["encoder_states"][1]).any():
        return None
    alike = int((x[0] == x[1]).all(-1).cumprod().sum())
    if (abs(states[0, :alike] - states[1, :alike]) > 1e-4).any():
        return Finding(
            f"The first {alike} words of two translations are the same, and only what follows them differs. "
            "Yet their states differ: a word sees the future.",
            "the mask of the self-attention.",
            output="states",
        )
    return None


def _source_padding_moves_nothing(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    x, mask, read = inputs["x"], inputs["source_mask"], inputs["encoder_states"]
    if len(x) < 2 or (x[0] != x[1]).any() or (mask[0] != mask[1]).any():
        return None
    twins = (read[0][mask[0]] == read[1][mask[0]]).all()
    if twins and (abs(outputs["states"][0] - outputs["states"][1]) > 1e-4).any():
        return Finding(
            "Two sources differ in their padding alone, and yet the states of their translations differ.",
            "the mask of the attention to the source.",
            output="states",
        )
    return None


def _causal(x: torch.Tensor) -> torch.Tensor:
    """(target, target)"""
    length = x.shape[1]
    return torch.ones(length, length, dtype=torch.bool).tril()


def _for_source(mask: torch.Tensor) -> torch.Tensor:
    return mask[:, None, None, :]


def _layer_with(
    own_mask: Callable = lambda x, mask: _causal(x),
    cross_mask: Callable = lambda x, mask: _for_source(mask),
    which: tuple[int, int, int] = (0, 1, 2),
) -> Callable:
    """A right decoder layer but for its masks, or for which norm stands where."""

    def layer(x, encoder_states, source_mask, own, cross, feed_forward, norms):
        first, second, third = (norms[i] for i in which)
        h = first(x)
        x = x + own(h, h, own_mask(x, source_mask))
        x = x + cross(second(x), encoder_states, cross_mask(x, source_mask))
        return x + feed_forward(third(x))

    return layer


_decoder_layer = _layer_with()


def _post_layer(x, encoder_states, source_mask, own, cross, feed_forward, norms):
    x = norms[0](x + own(x, x, _causal(x)))
    x = norms[1](x + cross(x, encoder_states, _for_source(source_mask)))
    return norms[2](x + feed_forward(x))


def _added_normalised(x, encoder_states, source_mask, own, cross, feed_forward, norms):
    x = norms[0](x)
    x = x + own(x, x, _causal(x))
    x = norms[1](x)
    x = x + cross(x, encoder_states, _for_source(source_mask))
    x = norms[2](x)
    return x + feed_forward(x)


def _cross_first(x, encoder_states, source_mask, own, cross, feed_forward, norms):
    x = x + cross(norms[0](x), encoder_states, _for_source(source_mask))
    h = norms[1](x)
    x = x + own(h, h, _causal(x))
    return x + feed_forward(norms[2](x))


def _feed_forward_early(x, encoder_states, source_mask, own, cross, feed_forward, norms):
    h = norms[0](x)
    x = x + own(h, h, _causal(x))
    x = x + feed_forward(norms[1](x))
    return x + cross(norms[2](x), encoder_states, _for_source(source_mask))


def _side_by_side(x, encoder_states, source_mask, own, cross, feed_forward, norms):
    h = norms[0](x)
    asked = cross(norms[1](x), encoder_states, _for_source(source_mask))
    x = x + own(h, h, _causal(x)) + asked
    return x + feed_forward(norms[2](x))


def _layer_by(own_step: Callable, cross_step: Callable, last_step: Callable) -> Callable:
    """A layer of three steps, each a function of (x, what it needs, its norm)."""

    def layer(x, encoder_states, source_mask, own, cross, feed_forward, norms):
        x = own_step(x, encoder_states, source_mask, own, norms[0])
        x = cross_step(x, encoder_states, source_mask, cross, norms[1])
        return last_step(x, feed_forward, norms[2])

    return layer


def _own_step(x, encoder_states, source_mask, own, norm):
    h = norm(x)
    return x + own(h, h, _causal(x))


def _cross_step(x, encoder_states, source_mask, cross, norm):
    return x + cross(norm(x), encoder_states, _for_source(source_mask))


def _last_step(x, feed_forward, norm):
    return x + feed_forward(norm(x))


def _crossing(step: Callable) -> Callable:
    return _layer_by(_own_step, step, _last_step)


def _layer_in_place(x, encoder_states, source_mask, own, cross, feed_forward, norms):
    h = norms[0](x).clone()
    x += own(h, h, _causal(x))
    x = x + cross(norms[1](x), encoder_states, _for_source(source_mask))
    return x + feed_forward(norms[2](x))


LAYER_MISTAKES = (
    Mistake(
        "no causal mask",
        _layer_with(own_mask=lambda x, mask: None),
        "Your self-attention sees the words that are still to come.",
        "the mask of the self-attention: word t may look at the words up to t.",
    ),
    Mistake(
        "a word does not see itself",
        _layer_with(own_mask=lambda x, mask: _causal(x).tril(-1)),
        "Your causal mask hides each word from itself, and the first word sees nothing.",
        "the diagonal of the mask: True.",
        ("cm-02",),
    ),
    Mistake(
        "causal mask upside down",
        _layer_with(own_mask=lambda x, mask: _causal(x).T),
        "Your causal mask shows each word the future and hides the past.",
        "tril (below the diagonal), not triu; rows are those who look.",
    ),
    Mistake(
        "causal mask inverted",
        _layer_with(own_mask=lambda x, mask: ~_causal(x)),
        "Your causal mask has its values the wrong way round: True means may look.",
        "the ~, or the comparison that makes the mask.",
        ("cm-08",),
    ),
    Mistake(
        "target's mask for the source",
        _layer_with(cross_mask=lambda x, mask: _causal(x)),
        "The attention to the source gets the causal mask of the target. All real words of a source may be "
        "looked at.",
        "the mask of `cross`: source_mask, and nothing causal.",
        ("cm-07",),
    ),
    Mistake(
        "source's mask for the target",
        _layer_with(own_mask=lambda x, mask: _for_source(mask)),
        "The self-attention gets the mask of the source.",
        "the mask of `own`: causal, over the words of the target.",
        ("cm-07",),
    ),
    Mistake(
        "masks swapped",
        _layer_with(lambda x, mask: _for_source(mask), lambda x, mask: _causal(x)),
        "You have the two masks the wrong way round.",
        "which attention is over the target (causal), and which over the source (padding).",
        ("cm-07",),
    ),
    Mistake(
        "no mask for the source",
        _layer_with(cross_mask=lambda x, mask: None),
        "The attention to the source reads its padding.",
        "the mask of `cross`.",
        ("cm-08",),
    ),
    Mistake(
        "source mask inverted",
        _layer_with(cross_mask=lambda x, mask: _for_source(~mask)),
        "The attention to the source reads nothing but padding.",
        "the mask's meaning: True marks a real word, which may be looked at.",
        ("cm-08",),
    ),
    Mistake(
        "source mask on the target axis",
        _layer_with(cross_mask=lambda x, mask: mask[:, None, :, None]),
        "Your source mask lies along the axis of those who look, the target's.",
        "where you insert axes: (batch, source) has to become (batch, 1, 1, source).",
        ("cm-05",),
    ),
    Mistake(
        "source mask without the axis of heads",
        _layer_with(cross_mask=lambda x, mask: mask[:, None, :]),
        "Your source mask is (batch, 1, source), so that its batch is lined up with the heads.",
        "the axes: (batch, source) has to become (batch, 1, 1, source), for heads and for target words.",
        ("cm-05",),
    ),
    Mistake(
        "source mask as it came",
        _layer_with(cross_mask=lambda x, mask: mask),
        "Your source mask is (batch, source), so that its batch is lined up with the target words.",
        "the axes: (batch, source) has to become (batch, 1, 1, source), for heads and for target words.",
        ("cm-05",),
    ),
    Mistake(
        "source asks, target answers",
        _crossing(lambda x, H, m, cross, norm: x + cross(H, norm(x), None)),
        "Queries come from the encoder, keys and values from the decoder. It is the other way round.",
        "the order of the arguments: cross(who looks, who is looked at, mask).",
    ),
    Mistake(
        "source never read",
        _crossing(lambda x, H, m, cross, norm: x + cross(norm(x), norm(x), _causal(x))),
        "Your second attention looks at the target once more, so the source is never read.",
        "what `cross` looks at: encoder_states.",
    ),
    Mistake(
        "self-attention over the source",
        _layer_by(lambda x, H, m, own, norm: x + own(norm(x), H, _for_source(m)), _cross_step, _last_step),
        "Your self-attention looks at the source. Its queries, keys and values all come from x.",
        "own(h, h, ...).",
    ),
    Mistake(
        "source normalised again",
        _crossing(lambda x, H, m, cross, norm: x + cross(norm(x), norm(H), _for_source(m))),
        "You pass the encoder's states through the decoder's norm. They are used as they are.",
        "what goes through norms[1]: x alone.",
    ),
    Mistake(
        "keys not normalised",
        _layer_by(lambda x, H, m, own, norm: x + own(norm(x), x, _causal(x)), _cross_step, _last_step),
        "In the self-attention only the queries are normalised. Keys and values come from the same h.",
        "own(h, h, ...) with h = norms[0](x).",
    ),
    Mistake(
        "attention to the source first",
        _cross_first,
        "You attend to the source before the target attends to itself.",
        "the order: self-attention, attention to the source, feed-forward network.",
    ),
    Mistake(
        "feed-forward before the source",
        _feed_forward_early,
        "Your feed-forward network stands between the two attentions. It comes last.",
        "the order: self-attention, attention to the source, feed-forward network.",
    ),
    Mistake(
        "side by side",
        _side_by_side,
        "Both attentions start from the same x. The second starts from what the first has left.",
        "the x that goes into norms[1].",
    ),
    Mistake(
        "one norm for all",
        _layer_with(which=(0, 0, 0)),
        "You use norms[0] three times. Each sublayer has its own.",
        "norms[1] before the attention to the source, norms[2] before the feed-forward network.",
        ("ln-07",),
    ),
    Mistake(
        "norms in another order",
        _layer_with(which=(0, 2, 1)),
        "norms[1] and norms[2] have changed places.",
        "norms[1] before the attention to the source, norms[2] before the feed-forward network.",
        ("ln-07",),
    ),
    Mistake(
        "post-LN",
        _post_layer,
        "You put the norms after the sums, as the paper does. This layer is pre-LN.",
        "x + sublayer(norm(x)), three times.",
        ("ln-09",),
    ),
    Mistake(
        "normalised state added",
        _added_normalised,
        "You add to the normalised state. x itself passes beside each sublayer.",
        "the left side of each sum: x, not norm(x).",
        ("ln-04",),
    ),
    Mistake(
        "nothing passes beside the source",
        _crossing(lambda x, H, m, cross, norm: cross(norm(x), H, _for_source(m))),
        "The attention to the source replaces x. What the self-attention found is lost.",
        "x + ... around `cross` as well.",
    ),
    Mistake(
        "no residual connections",
        _layer_by(
            lambda x, H, m, own, norm: own(norm(x), norm(x), _causal(x)),
            lambda x, H, m, cross, norm: cross(norm(x), H, _for_source(m)),
            lambda x, feed_forward, norm: feed_forward(norm(x)),
        ),
        "Nothing passes beside the sublayers.",
        "x + ..., three times.",
    ),
    Mistake(
        "no feed-forward network",
        _layer_by(_own_step, _cross_step, lambda x, feed_forward, norm: x),
        "The feed-forward network is missing.",
        "the third sublayer.",
    ),
    Mistake(
        "no norm before the feed-forward network",
        _layer_by(_own_step, _cross_step, lambda x, feed_forward, norm: x + feed_forward(x)),
        "The feed-forward network gets x without its norm.",
        "norms[2].",
    ),
    Mistake(
        "gradient cut",
        _crossing(lambda x, H, m, cross, norm: x + cross(norm(x), H.detach(), _for_source(m))),
        "No gradient reaches the encoder's states, so the encoder could not learn.",
        ".detach(), .data and torch.no_grad() on encoder_states.",
    ),
    Mistake(
        "writes into x",
        _layer_in_place,
        "You write into the x that you were given (`x += ...` does). The caller still needs it.",
        "x = x + ..., which makes a new tensor.",
    ),
)


def _layer_with_whole_masks(x, encoder_states, source_mask, own, cross, feed_forward, norms):
    place = torch.arange(x.shape[1])
    causal = (place[None, :] <= place[:, None])[None, None].expand(len(x), 1, -1, -1)
    source = source_mask.unsqueeze(1).unsqueeze(2).expand(-1, 1, x.shape[1], -1)
    residual = x
    h = norms[0](x)
    h = residual + own(h, h, causal)
    residual = h
    h = residual + cross(norms[1](h), encoder_states, source)
    return h + feed_forward(norms[2](h))


def _layer_by_sentence(x, encoder_states, source_mask, own, cross, feed_forward, norms):
    """One sentence at a time, its padding cut off instead of masked."""
    rows = []
    for row, read, mask in zip(x, encoder_states, source_mask, strict=True):
        row = _own_step(row[None], None, None, own, norms[0])
        row = row + cross(norms[1](row), read[mask][None], None)
        rows.append(_last_step(row, feed_forward, norms[2]))
    return torch.cat(rows)


def _layer_with_filled_mask(x, encoder_states, source_mask, own, cross, feed_forward, norms):
    """A float mask of -inf above the diagonal, as torch's own, turned into True = may look."""
    length = x.shape[1]
    hidden = torch.triu(torch.full((length, length), -INF), diagonal=1)
    return _layer_with(own_mask=lambda x, mask: hidden == 0)(
        x, encoder_states, source_mask, own, cross, feed_forward, norms
    )


DECODER_LAYER = Exercise(
    question=find("07.2"),
    title="decoder layer",
    minutes=20,
    difficulty=2,
    reference=_reference("07.2", _decoder_layer),
    axes={"states": "batch, target, width"},
    parts=(
        Part(
            "three sublayers in a row, one sentence",
            1,
            _draw_one_layer,
            ("states",),
            "the order of the sublayers, and which norm stands before which.",
        ),
        Part(
            "a batch with padding, its masks, and the gradient",
            1,
            _draw_layers,
            ("states", "gradient of x", "gradient of encoder_states"),
            "the two masks, axis by axis: (batch, heads, target, source).",
            (_future_moves_nothing, _source_padding_moves_nothing),
        ),
    ),
    mistakes=LAYER_MISTAKES,
    variants=(
        Variant("masks of full size, residual kept by name", _layer_with_whole_masks),
        Variant("one sentence at a time", _layer_by_sentence),
        Variant("a mask from -inf above the diagonal", _layer_with_filled_mask, ("cm-03",)),
    ),
    forbidden=("course_utils.models.transformer", "torch.nn.TransformerDecoderLayer"),
)


# --- 07.3 the label-smoothed loss ---------------------------------------------------------------------------


def _loss_inputs(
    rng: Generator, batch: int, target: int, vocabulary: int, epsilon: float, pads: str = "none", scale=1.0
) -> Inputs:
    """`pads`: "none", "one" (a single one in the whole batch) or "some". Number 0 is always a real word."""
    pad = int(rng.integers(1, vocabulary))
    words = np.setdiff1d(np.arange(vocabulary), [pad])
    numbers = rng.choice(words, (batch, target))
    numbers[:, 0] = 0
    if pads == "one":
        numbers[0, -1] = pad
    elif pads == "some":
        numbers[~padded(rng, batch, target)] = pad
    logits = (scale * normal(rng, batch, target, vocabulary)).astype("float32")
    return {"logits": logits, "target": numbers, "pad": pad, "epsilon": epsilon}


def _draw_smoothing(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 75])
    batch, target, vocabulary = sizes(rng, 3, 3)
    tiny = _loss_inputs(rng, 1, 1, 3, 0.1)
    return [
        tiny | {"logits": tiny["logits"].round(1)},
        _loss_inputs(rng, 1, 3, 5, 0.2) | {"upstream": np.array(rng.uniform(0.5, 2), "float32")},
        _loss_inputs(rng, 2, 3, 4, 0.0),
        _loss_inputs(rng, batch, target, vocabulary, 0.3),
    ]


def _draw_smoothing_with_padding(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 76])
    batch, target, vocabulary = sizes(rng, 3, 3)
    return [
        _loss_inputs(rng, 1, 3, 4, 0.1, "one"),
        _loss_inputs(rng, 2, 4, 5, 0.2, "some") | {"upstream": np.array(rng.uniform(0.5, 2), "float32")},
        _loss_inputs(rng, 3, 4, 6, 0.0, "some"),
        _loss_inputs(rng, 3, 5, 4, 0.2, "some", 300.0),
        _loss_inputs(rng, 2, 3, 5, 0.2),
        _loss_inputs(rng, batch, target, vocabulary, 0.1, "some"),
    ]


def _padding_teaches_nothing(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    gradient = outputs.get("gradient of logits")
    if gradient is not None and (abs(gradient[inputs["target"] == inputs["pad"]]) > 1e-7).any():
        return Finding(
            "The gradient of the logits is not 0 at padding: the model is taught something there.",
            "which places enter the sum.",
            output="gradient of logits",
        )
    return None


def _at(logs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The number that belongs to each target word, (batch, target)."""
    return logs.gather(-1, target[..., None]).squeeze(-1)


def _each(logs: torch.Tensor, target: torch.Tensor, epsilon: float) -> torch.Tensor:
    """The smoothed loss of each place, padding too: what most mistakes below start from."""
    return -(1 - epsilon) * _at(logs, target) - epsilon * logs.mean(-1)


def _smoothed_loss(logits, target, pad, epsilon):
    return _each(logits.log_softmax(-1), target, epsilon)[target != pad].mean()


def _of_each(each: Callable) -> Callable:
    """The mean of each(logs, target, pad, epsilon) over the real words."""

    def loss(logits, target, pad, epsilon):
        return each(logits.log_softmax(-1), target, pad, epsilon)[target != pad].mean()

    return loss


def _distribution(logs: torch.Tensor, target: torch.Tensor, epsilon: float) -> torch.Tensor:
    """What the model is asked for, (batch, target, vocabulary): epsilon spread over all words."""
    return (1 - epsilon) * F.one_hot(target, logs.shape[-1]).to(logs.dtype) + epsilon / logs.shape[-1]


def _smooth_part_over_all(logits, target, pad, epsilon):
    logs, real = logits.log_softmax(-1), target != pad
    return -(1 - epsilon) * _at(logs, target)[real].mean() - epsilon * logs.mean()


def _mean_over_all(logits, target, pad, epsilon):
    return (_each(logits.log_softmax(-1), target, epsilon) * (target != pad)).mean()


def _kl(logs, target, pad, epsilon):
    q = _distribution(logs, target, epsilon)
    return (torch.xlogy(q, q) - q * logs).sum(-1)


def _kl_of_probabilities(logs, target, pad, epsilon):
    q = _distribution(logs, target, epsilon)
    return (torch.xlogy(q, q) - q * logs.exp()).sum(-1)


def _over_others(logs, target, pad, epsilon):
    others = logs.sum(-1) - _at(logs, target)
    return -(1 - epsilon) * _at(logs, target) - epsilon * others / (logs.shape[-1] - 1)


def _over_others_but_padding(logs, target, pad, epsilon):
    others = logs.sum(-1) - _at(logs, target) - logs[..., pad]
    return -(1 - epsilon) * _at(logs, target) - epsilon * others / (logs.shape[-1] - 2)


def _over_words_but_padding(logs, target, pad, epsilon):
    words = logs.sum(-1) - logs[..., pad]
    return -(1 - epsilon) * _at(logs, target) - epsilon * words / (logs.shape[-1] - 1)


def _without_the_targets_share(logs, target, pad, epsilon):
    others = logs.sum(-1) - _at(logs, target)
    return -(1 - epsilon) * _at(logs, target) - epsilon * others / logs.shape[-1]


def _by_sentence(logits, target, pad, epsilon):
    real = target != pad
    each = _each(logits.log_softmax(-1), target, epsilon) * real
    return (each.sum(1) / real.sum(1)).mean()


def _target_overwritten(logits, target, pad, epsilon):
    target[target == pad] = -100
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), label_smoothing=epsilon)


LOSS_MISTAKES = (
    Mistake(
        "padding counted",
        lambda z, y, pad, eps: _each(z.log_softmax(-1), y, eps).mean(),
        "Your mean runs over the padding as well: the model is asked to predict it.",
        "target != pad, which marks the places that count.",
        ("tr-05",),
    ),
    Mistake(
        "divided by all places",
        _mean_over_all,
        "You set the loss of padding to 0 and still divide by all places: more padding, less loss.",
        "the denominator: the number of real words.",
        ("tr-05",),
    ),
    Mistake(
        "smooth part over all places",
        _smooth_part_over_all,
        "The part with the right word leaves padding out, the smooth part counts it in.",
        "both parts: the same places, the same denominator.",
        ("tr-05",),
    ),
    Mistake(
        "mean of the sentences' means",
        _by_sentence,
        "You take the mean of each sentence and then the mean of these: words of short sentences weigh more.",
        "one mean over all real words of the batch.",
    ),
    Mistake(
        "summed",
        lambda z, y, pad, eps: _each(z.log_softmax(-1), y, eps)[y != pad].sum(),
        "You add up the losses. Their mean over the real words is wanted.",
        "the last step.",
    ),
    Mistake(
        "wrong sign",
        lambda *given: -_smoothed_loss(*given),
        "Your loss has the wrong sign: it falls as the model gets worse.",
        "the minus before the logarithms.",
    ),
    Mistake(
        "no smoothing",
        lambda z, y, pad, eps: _smoothed_loss(z, y, pad, 0.0),
        "Your loss is the plain cross-entropy: epsilon changes nothing.",
        "where epsilon enters.",
    ),
    Mistake(
        "epsilon for the right word",
        lambda z, y, pad, eps: _smoothed_loss(z, y, pad, 1 - eps),
        "The right word gets epsilon, and 1 - epsilon is spread. It is the other way round.",
        "which of the two factors stands where.",
    ),
    Mistake(
        "right word keeps all",
        _of_each(lambda logs, y, pad, eps: -_at(logs, y) - eps * logs.mean(-1)),
        "The right word keeps its whole 1 and epsilon comes on top: the distribution sums to more than 1.",
        "the factor 1 - epsilon.",
    ),
    Mistake(
        "smooth part not divided",
        _of_each(lambda logs, y, pad, eps: -(1 - eps) * _at(logs, y) - eps * logs.sum(-1)),
        "Every word gets the whole epsilon. It is divided among them.",
        "epsilon / V in the smooth part, or the mean over the words in the place of the sum.",
    ),
    Mistake(
        "right word without its share",
        _of_each(_without_the_targets_share),
        "The other words get epsilon / V each and the right one 1 - epsilon: together less than 1.",
        "the right word: it gets 1 - epsilon + epsilon / V.",
        ("tr-06",),
    ),
    Mistake(
        "spread over the others",
        _of_each(_over_others),
        "You spread epsilon over the V - 1 other words. Some libraries do; this task spreads it over all V, "
        "as PyTorch does.",
        "epsilon / V for every word, the right one included.",
        ("tr-06",),
    ),
    Mistake(
        "spread over the others but padding",
        _of_each(_over_others_but_padding),
        "You spread epsilon over V - 2 words, without the right one and without <pad>. Some code does; this "
        "task spreads it over all V, as PyTorch does.",
        "epsilon / V for every word.",
        ("tr-06",),
    ),
    Mistake(
        "spread over all but padding",
        _of_each(_over_words_but_padding),
        "You leave the word <pad> out when you spread epsilon. This task spreads it over all V words, as "
        "PyTorch does; it is the padded places that do not count.",
        "epsilon / V for every word.",
        ("tr-06",),
    ),
    Mistake(
        "divergence instead of cross-entropy",
        _of_each(_kl),
        "You give the Kullback-Leibler divergence. The cross-entropy is larger by the entropy of the "
        "smoothed distribution (a constant: the gradients agree).",
        "-sum(q log p), without q log q.",
        ("tr-06",),
    ),
    Mistake(
        "probabilities for log-probabilities",
        _of_each(_kl_of_probabilities),
        "You give probabilities where log-probabilities belong (nn.KLDivLoss expects them as its input).",
        "log_softmax instead of softmax.",
        ("tr-04",),
    ),
    Mistake(
        "logarithm of 0",
        lambda z, y, pad, eps: _each(z.softmax(-1).log(), y, eps)[y != pad].mean(),
        "You take the logarithm of a softmax. Where a probability rounds to 0, that is -inf.",
        "torch.log_softmax, which never makes the probabilities.",
        ("tr-04",),
    ),
    Mistake(
        "softmax twice",
        lambda z, y, pad, eps: _smoothed_loss(z.softmax(-1), y, pad, eps),
        "You apply a softmax and then log_softmax.",
        "the logits: they go into log_softmax as they are.",
        ("tr-07",),
    ),
    Mistake(
        "logits for log-probabilities",
        lambda z, y, pad, eps: _each(z, y, eps)[y != pad].mean(),
        "You use the logits as if they were log-probabilities.",
        "log_softmax over the last axis.",
    ),
    Mistake(
        "pad is always 0",
        lambda z, y, pad, eps: _smoothed_loss(z, y, 0, eps),
        "You leave out the word with the number 0. Here <pad> has whatever number the argument says.",
        "the argument pad.",
        ("cm-06",),
    ),
    Mistake(
        "gradient cut",
        lambda z, y, pad, eps: _smoothed_loss(z.detach(), y, pad, eps),
        "No gradient reaches the logits, so the model could not learn.",
        ".detach(), .data, .item(), float(...) and torch.no_grad().",
    ),
    Mistake(
        "writes into the target",
        _target_overwritten,
        "You write -100 into the target that you were given. The caller still needs it.",
        "target.masked_fill(...), which makes a new tensor.",
    ),
)


def _loss_with_distribution(logits, target, pad, epsilon):
    """Rows of q are zeroed at padding."""
    logs = logits.log_softmax(-1)
    q = _distribution(logs, target, epsilon).masked_fill((target == pad)[..., None], 0.0)
    return -(q * logs).sum() / (target != pad).sum()


def _loss_with_divergence(logits, target, pad, epsilon):
    """nn.KLDivLoss of log-probabilities, plus the entropy of q."""
    logs = F.log_softmax(logits, -1)
    q = _distribution(logs, target, epsilon)
    entropy = -torch.xlogy(q, q).sum(-1)
    each = F.kl_div(logs, q, reduction="none").sum(-1) + entropy
    real = target.ne(pad)
    return (each * real).sum() / real.sum()


def _loss_word_by_word(logits, target, pad, epsilon):
    parts = []
    for row, words in zip(logits, target.tolist(), strict=True):
        for z, word in zip(row, words, strict=True):
            if word != pad:
                logs = z - z.logsumexp(0)
                parts.append(-(1 - epsilon) * logs[word] - epsilon * logs.sum() / len(z))
    return sum(parts) / len(parts)


def _loss_of_flat(logits, target, pad, epsilon):
    flat, words = logits.flatten(0, 1), target.flatten()
    nll = F.cross_entropy(flat, words, ignore_index=pad)
    return (1 - epsilon) * nll + epsilon * -flat[words != pad].log_softmax(1).mean(1).mean()


SMOOTHED_LOSS = Exercise(
    question=find("07.3"),
    title="label-smoothed loss",
    minutes=15,
    difficulty=2,
    reference=_reference("07.3", _smoothed_loss),
    axes={"loss": "a single number", "gradient of logits": "batch, target, vocabulary"},
    parts=(
        Part(
            "one distribution for the right word and all others",
            1,
            _draw_smoothing,
            ("loss", "gradient of logits"),
            "the worked example: which share does each of the words get, and do they sum to 1?",
        ),
        Part(
            "padding counts for nothing, and large logits stay finite",
            1,
            _draw_smoothing_with_padding,
            ("loss", "gradient of logits"),
            "how many words the mean runs over.",
            (_padding_teaches_nothing,),
        ),
    ),
    mistakes=LOSS_MISTAKES,
    variants=(
        Variant("the distribution written out, rows zeroed at padding", _loss_with_distribution, ("tr-03",)),
        Variant(
            "KLDivLoss of log-probabilities, plus the entropy", _loss_with_divergence, ("tr-04", "tr-07")
        ),
        Variant("word by word", _loss_word_by_word, ("tr-03",)),
        Variant("cross-entropy of the flat batch, and the smooth part", _loss_of_flat, ("tr-05",)),
        Variant(
            "torch's own",
            lambda z, y, pad, eps: F.cross_entropy(z.mT, y, ignore_index=pad, label_smoothing=eps),
        ),
    ),
    forbidden=("course_utils.training",),
)


# --- 07.4 the warm-up schedule ------------------------------------------------------------------------------


def _draw_rates(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 77])
    warmup, later = (int(n) for n in sorted(rng.choice(np.arange(6, 40), 2, replace=False)))
    peak = round(float(rng.uniform(2, 9)), 2)
    return [
        {"steps": [1, 2, 4, 8, 16], "peak": peak, "warmup": 4},
        {"steps": [0, 1, warmup - 1, warmup, warmup + 1, 3 * warmup], "peak": peak, "warmup": warmup},
        {"steps": [0, 1, 7, later, 400, 10_000], "peak": 0.001 * peak, "warmup": later},
        {"steps": [0, 1, 2, 9], "peak": peak, "warmup": 1},
    ]


def _rate_of(share: Callable) -> Callable:
    """A schedule that gives peak * share(step, warmup)."""

    def warmup_rate(step, peak, warmup):
        return peak * share(step, warmup)

    return warmup_rate


def _share(step, warmup):
    return min(step / warmup, (warmup / max(step, 1)) ** 0.5)


def _peak_at_warmup(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    rates = dict(zip(inputs["steps"], outputs["rates"].tolist(), strict=True))
    highest = max(rates.values())
    if inputs["warmup"] in rates and abs(highest - inputs["peak"]) > 1e-6 * inputs["peak"]:
        return Finding(
            f"The highest rate is {highest:.6g}; it should be the peak, {inputs['peak']:.6g}, at the step "
            f"warmup = {inputs['warmup']}.",
            "both branches at step = warmup.",
            output="rates",
        )
    return None


RATE_MISTAKES = (
    Mistake(
        "max for min",
        _rate_of(lambda s, w: max(s / w, (w / max(s, 1)) ** 0.5)),
        "You take the larger of the two branches: the rate starts high and later grows without end.",
        "min.",
        ("tr-10",),
    ),
    Mistake(
        "exponent of the warm-up",
        _rate_of(lambda s, w: w**0.5 * min(max(s, 1) ** -0.5, s * w**-0.5)),
        "Your rising branch is step * warmup ** -0.5. It has warmup ** -1.5, so that both meet at the peak.",
        "the exponents: the two branches are equal at step = warmup.",
        ("tr-10",),
    ),
    Mistake(
        "never falls",
        _rate_of(lambda s, w: min(s / w, 1.0)),
        "Your rate rises and then stays at the peak. After the warm-up it falls with the root of the step.",
        "the second branch: sqrt(warmup / step).",
    ),
    Mistake(
        "never rises",
        _rate_of(lambda s, w: min(1.0, (w / max(s, 1)) ** 0.5)),
        "Your rate starts at the peak: there is no warm-up.",
        "the first branch: step / warmup.",
    ),
    Mistake(
        "grows without end",
        _rate_of(lambda s, w: s / w),
        "Your rate rises for ever.",
        "what happens after the step warmup.",
        ("tr-10",),
    ),
    Mistake(
        "falls too fast",
        _rate_of(lambda s, w: min(s / w, w / max(s, 1))),
        "After the warm-up your rate falls with the step. It falls with the root of the step.",
        "the root in the second branch.",
        ("tr-10",),
    ),
    Mistake(
        "rises with the root",
        _rate_of(lambda s, w: min((s / w) ** 0.5, (w / max(s, 1)) ** 0.5)),
        "During the warm-up your rate rises with the root of the step. It rises in a straight line.",
        "the first branch: step / warmup, without a root.",
        ("tr-10",),
    ),
    Mistake(
        "peak left out",
        lambda step, peak, warmup: _share(step, warmup),
        "Your rate is a share of the peak, from 0 to 1. The rate itself is wanted.",
        "the factor peak.",
        ("tr-10",),
    ),
    Mistake(
        "peak twice",
        lambda step, peak, warmup: peak * peak * _share(step, warmup),
        "Your rate has the peak in it twice, as when a schedule that holds the whole rate meets an optimiser "
        "that has one of its own.",
        "the factor peak: once.",
        ("tr-10",),
    ),
    Mistake(
        "no scale by the warm-up",
        _rate_of(lambda s, w: min(max(s, 1) ** -0.5, s * w**-1.5)),
        "Your two branches have the right shape, but they meet at peak / sqrt(warmup) instead of the peak.",
        "the factor sqrt(warmup): the paper's two branches are not shares of their own peak.",
        ("tr-10",),
    ),
    Mistake(
        "one step early",
        _rate_of(lambda s, w: _share(s + 1, w)),
        "Your rate is one step early: it reaches the peak before the step warmup.",
        "step + 1: steps count from 1 here, and step 0 has the rate 0.",
    ),
    Mistake(
        "one step late",
        _rate_of(lambda s, w: _share(max(s - 1, 0), w)),
        "Your rate is one step late: it reaches the peak after the step warmup.",
        "step - 1.",
    ),
    Mistake(
        "step 0 divides by 0",
        lambda step, peak, warmup: peak * min(step / warmup, (warmup / step) ** 0.5),
        "Step 0 divides by 0. Schedulers ask for it before the first step is taken; its rate is 0.",
        "the second branch at step 0, for instance max(step, 1).",
    ),
    Mistake(
        "whole steps of the warm-up",
        _rate_of(lambda s, w: min(s // w, (w / max(s, 1)) ** 0.5)),
        "You divide by whole numbers (//): during the warm-up the rate stays 0.",
        "step / warmup, with one slash.",
    ),
)


def _rate_by_cases(step, peak, warmup):
    if step <= warmup:
        return peak * step / warmup
    return peak * math.sqrt(warmup / step)


def _rate_of_the_paper(step, peak, warmup):
    """The paper's two branches, scaled so that their maximum is the peak."""
    if step == 0:
        return 0.0
    return peak * warmup**0.5 * min(step**-0.5, step * warmup**-1.5)


def _rate_in_torch(step, peak, warmup):
    step = torch.tensor(float(step), dtype=torch.float64)
    return peak * torch.minimum(step / warmup, (warmup / step.clamp(min=1e-9)).sqrt())


WARMUP_RATE = Exercise(
    question=find("07.4"),
    title="warm-up schedule",
    minutes=10,
    difficulty=1,
    reference=_reference("07.4", _rate_of(_share)),
    axes={"rates": "one for each of the steps"},
    parts=(
        Part(
            "rises to the peak, then falls with the root of the step",
            1,
            _draw_rates,
            ("rates",),
            "your rates at step = warmup / 2, warmup and 4 * warmup: half the peak, the peak, half the peak.",
            (_peak_at_warmup,),
        ),
    ),
    mistakes=RATE_MISTAKES,
    variants=(
        Variant("two cases", _rate_by_cases),
        Variant("the paper's branches, scaled", _rate_of_the_paper, ("tr-11",)),
        Variant("in torch", _rate_in_torch),
    ),
    forbidden=("course_utils.training",),
)


# --- 07.5 the inputs of a training step ---------------------------------------------------------------------


def _rows(rng: Generator, words: np.ndarray, lengths: np.ndarray, size: int, pad: int) -> np.ndarray:
    rows = rng.choice(words, (len(lengths), size))
    rows[np.arange(size) >= lengths[:, None]] = pad
    return rows


def _step_inputs(rng: Generator, batch: int, source: int, target: int, left: bool = False) -> Inputs:
    """Each side's <pad> is a real word of the other side; `left` puts the padding before the words."""
    source_pad, target_pad = (int(n) for n in rng.choice(9, 2, replace=False))
    longest = rng.integers(2, source, batch), rng.integers(3, target, batch)
    for lengths, size in zip(longest, (source, target), strict=True):
        lengths[0], lengths[-1] = 3, size  # one row at least is padded, and one is full
    words = np.arange(9)
    sources = _rows(rng, words[words != source_pad], longest[0], source, source_pad)
    targets = _rows(rng, words[words != target_pad], longest[1], target, target_pad)
    sources[-1, :2], targets[-1, 1:3] = target_pad, source_pad
    if left:
        sources, targets = sources[:, ::-1].copy(), targets[:, ::-1].copy()
    return {"source": sources, "target": targets, "source_pad": source_pad, "target_pad": target_pad}


def _draw_step(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 78])
    batch, source, target = sizes(rng, 3, 4)
    return [
        _step_inputs(rng, 2, 4, 4),
        _step_inputs(rng, 2, 5, 6),  # the source is as long as what the decoder reads
        _step_inputs(rng, 2, 4, 6, left=True),
        _step_inputs(rng, batch, source, target + 1),
    ]


def _one_word_apart(inputs: Inputs, outputs: Outputs, expected: Outputs) -> Finding | None:
    read, asked = outputs["target_in"], outputs["target_out"]
    if (read == asked).all():
        return Finding(
            "The decoder reads the very words that it should predict. It learns to copy them.",
            "one step between the two: at each place, target_in is the word before the one in target_out.",
            output="target_in",
        )
    return None


def _step_parts(target, source_pad, target_pad):
    """target_in, target_out, which words it reads are real, and the causal mask."""
    target_in, target_out = target[:, :-1], target[:, 1:]
    causal = torch.ones(target_in.shape[1], target_in.shape[1], dtype=torch.bool).tril()
    return target_in, target_out, target_in != target_pad, causal


def _training_step(source, target, source_pad, target_pad):
    target_in, target_out, real, causal = _step_parts(target, source_pad, target_pad)
    return target_in, target_out, (source != source_pad)[:, None, None], real[:, None, None] & causal


def _step_with(
    source_mask: Callable = lambda source, target, s, t: (source != s)[:, None, None],
    target_mask: Callable = lambda real, causal: real[:, None, None] & causal,
) -> Callable:
    """A right step but for its masks."""

    def step(source, target, source_pad, target_pad):
        target_in, target_out, real, causal = _step_parts(target, source_pad, target_pad)
        mask = source_mask(source, target, source_pad, target_pad)
        return target_in, target_out, mask, target_mask(real, causal)

    return step


def _shifting(shift: Callable) -> Callable:
    """A right step but for shift(target, pad), which gives target_in and target_out."""

    def step(source, target, source_pad, target_pad):
        _, _, source_mask, target_mask = _training_step(source, target, source_pad, target_pad)
        return *shift(target, target_pad), source_mask, target_mask

    return step


def _shifted_twice(target, pad):
    return target[:, :-1], F.pad(target[:, 2:], (0, 1), value=pad)


def _flattened(target, pad):
    flat = target.flatten()
    width = target.shape[1] - 1
    return flat[:-1][: len(target) * width].view(-1, width), flat[1:][: len(target) * width].view(-1, width)


def _whole_target(source, target, source_pad, target_pad):
    longer = F.pad(target, (0, 1), value=target_pad)
    return _training_step(source, longer, source_pad, target_pad)


def _step_with_mask_of_out(source, target, source_pad, target_pad):
    target_in, target_out, _, causal = _step_parts(target, source_pad, target_pad)
    real = (target_out != target_pad)[:, None, None]
    return target_in, target_out, (source != source_pad)[:, None, None], real & causal


def _one_mask_for_both(source, target, source_pad, target_pad):
    target_in, target_out, _, target_mask = _training_step(source, target, source_pad, target_pad)
    return target_in, target_out, target_mask, target_mask


def _mask_of_whole_target(source, target, source_pad, target_pad):
    longer = F.pad(target, (0, 1), value=target_pad)
    *others, _ = _training_step(source, target, source_pad, target_pad)
    return *others, _training_step(source, longer, source_pad, target_pad)[3]


def _inverted(source, target, source_pad, target_pad):
    target_in, target_out, source_mask, target_mask = _training_step(source, target, source_pad, target_pad)
    return target_in, target_out, ~source_mask, ~target_mask


STEP_MISTAKES = (
    Mistake(
        "not shifted",
        _shifting(lambda y, pad: (y[:, :-1], y[:, :-1].clone())),
        "The decoder reads the very words that it should predict. It learns to copy them, and nothing else.",
        "one step between the two: target_in lacks the last column, target_out the first.",
        ("tr-12",),
    ),
    Mistake(
        "shifted twice",
        _shifting(_shifted_twice),
        "target_out runs two words ahead: the first word is never asked for.",
        "how often you shift.",
        ("tr-13",),
    ),
    Mistake(
        "flattened before the shift",
        _shifting(_flattened),
        "You shift the flat batch, so that words run over from one sentence into the next.",
        "slices along the second axis, before anything is flattened.",
        ("tr-14",),
    ),
    Mistake(
        "in and out swapped",
        _shifting(lambda y, pad: (y[:, 1:], y[:, :-1])),
        "You have target_in and target_out the wrong way round: the decoder would read what comes next.",
        "target_in starts with <bos>, target_out ends with <eos>.",
    ),
    Mistake(
        "whole target",
        _whole_target,
        "Both results are as wide as the target. There is one step fewer: nothing follows <eos>.",
        "target_in lacks the last column, target_out the first.",
    ),
    Mistake(
        "no causal mask",
        _step_with(target_mask=lambda real, causal: real[:, None, None].expand(-1, -1, len(causal), -1)),
        "Your target_mask lets every word see the words to come.",
        "causal and padding, both: &.",
    ),
    Mistake(
        "or instead of and",
        _step_with(target_mask=lambda real, causal: real[:, None, None] | causal),
        "You join the two masks with |, so that what either allows is allowed.",
        "&: a word may be looked at if it is real and not in the future.",
    ),
    Mistake(
        "padding is looked at",
        _step_with(target_mask=lambda real, causal: real[:, None, :, None] & causal),
        "Your target_mask lets real words look at padding: either it is causal and nothing else, or its "
        "padding lies along the axis of those who look.",
        "where you insert axes: (batch, target) has to become (batch, 1, 1, target), and then & causal.",
        ("cm-05",),
    ),
    Mistake(
        "a word does not see itself",
        _step_with(target_mask=lambda real, causal: real[:, None, None] & causal.tril(-1)),
        "Your causal mask hides each word from itself.",
        "the diagonal: True.",
        ("cm-02",),
    ),
    Mistake(
        "causal mask upside down",
        _step_with(target_mask=lambda real, causal: real[:, None, None] & causal.T),
        "Your causal mask shows each word the future and hides the past.",
        "tril, not triu.",
    ),
    Mistake(
        "masks inverted",
        _inverted,
        "Your masks have their values the wrong way round: True means may be looked at.",
        "the ~ or the ==.",
        ("cm-08",),
    ),
    Mistake(
        "target mask with the source's <pad>",
        lambda x, y, s, t: (*_training_step(x, y, s, t)[:3], _training_step(x, y, t, s)[3]),
        "Your target_mask looks for the source's <pad>. The two vocabularies number theirs differently.",
        "which of the two pads you compare target_in with.",
        ("cm-06",),
    ),
    Mistake(
        "source mask with the target's <pad>",
        _step_with(source_mask=lambda x, y, s, t: (x != t)[:, None, None]),
        "Your source_mask looks for the target's <pad>.",
        "which of the two pads you compare source with.",
        ("cm-06",),
    ),
    Mistake(
        "target's mask for the source",
        _one_mask_for_both,
        "Your source_mask is the target's mask. The attention to the source sees all of its real words.",
        "source_mask: (batch, 1, 1, source), from source alone.",
        ("cm-07",),
    ),
    Mistake(
        "mask of the whole target",
        _mask_of_whole_target,
        "Your target_mask is made from the whole target. The decoder reads one word fewer.",
        "target_in: the mask has as many rows and columns as it has.",
    ),
    Mistake(
        "padding looked up in target_out",
        _step_with_mask_of_out,
        "Your target_mask takes its padding from target_out. What is looked at is what is read.",
        "target_in != target_pad: the columns of the mask stand for the words of target_in.",
    ),
    Mistake(
        "source mask without axes",
        _step_with(source_mask=lambda x, y, s, t: x != s),
        "Your source_mask is (batch, source). It has to broadcast against (batch, heads, target, source).",
        "two axes of size 1 in the middle: mask[:, None, None, :].",
        ("cm-05",),
    ),
)


def _step_with_blank_padding(source, target, source_pad, target_pad):
    """Rows of padding see nothing at all: they are never used."""
    *others, target_mask = _training_step(source, target, source_pad, target_pad)
    return *others, target_mask & (target[:, :-1] != target_pad)[:, None, :, None]


def _step_by_places(source, target, source_pad, target_pad):
    target_in = target[:, :-1].clone()
    place = torch.arange(target_in.shape[1])
    hidden = torch.triu(torch.full((len(place), len(place)), -INF), diagonal=1) < 0
    mask = torch.stack([~hidden & (row != target_pad)[None] for row in target_in])
    return target_in, target[:, 1:], (source != source_pad)[:, None, None, :], mask.unsqueeze(1)


TRAINING_STEP = Exercise(
    question=find("07.5"),
    title="inputs of a training step",
    minutes=15,
    difficulty=2,
    reference=_reference("07.5", _training_step),
    axes={
        "target_in": "batch, target - 1",
        "target_out": "batch, target - 1",
        "source_mask": "batch, 1, 1, source",
        "target_mask": "batch, 1, target - 1, target - 1",
    },
    parts=(
        Part(
            "what is read, what is asked for, and who may look at whom",
            1,
            _draw_step,
            STEP_RESULTS,
            "one short sentence: row by row of the mask, what has been read when this word is predicted?",
            (_one_word_apart,),
        ),
    ),
    mistakes=STEP_MISTAKES,
    variants=(
        Variant("rows of padding see nothing", _step_with_blank_padding, ("cm-10",)),
        Variant("row by row, from -inf above the diagonal", _step_by_places, ("cm-03",)),
    ),
    forbidden=("course_utils.corpus", "course_utils.models"),
)


# --- 07.6 attention with a cache ----------------------------------------------------------------------------


def _cache_inputs(rng: Generator, batch: int, chunks: list[int], heads: int, own: int) -> Inputs:
    length, width = sum(chunks), heads * own
    return {
        "x": normal(rng, batch, length, width),
        "chunks": chunks,
        "heads": heads,
        "places": normal(rng, length + 3, width),
        **{name: normal(rng, width, width) / np.float32(width**0.5) for name in ("W_q", "W_k", "W_v")},
    }


def _draw_words(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 79])
    batch, heads, own = sizes(rng, 3, 2, 5)
    return [
        _cache_inputs(rng, 1, [1, 1], 1, 2),
        _cache_inputs(rng, 2, [1, 1, 1], 3, 2),
        _cache_inputs(rng, batch, [1] * 6, heads, own),
    ]


def _draw_chunks(seed: int) -> list[Inputs]:
    rng = default_rng([seed, 80])
    batch, heads, own = sizes(rng, 3, 2, 5)
    first, second = (int(n) for n in rng.choice([2, 3, 4], 2, replace=False))
    return [
        _cache_inputs(rng, 1, [2, 2], 1, 2),
        _cache_inputs(rng, 2, [3], 2, 3),
        _cache_inputs(rng, 3, [first, 1, second], 2, 2),
        _cache_inputs(rng, batch, [second, first, 1, 1], heads, own),
    ]


def _heads_of(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _allowed(new: int, seen: int) -> torch.Tensor:
    """(new, seen): the last `new` of `seen` tokens look at themselves and what came before."""
    return torch.ones(new, seen, dtype=torch.bool).tril(seen - new)


def _looked(q, k, v, mask, scale: float | None = None):
    """Softmax attention of (batch, heads, new, own) over (batch, heads, seen, own), the heads merged."""
    scores = q @ k.mT / (q.shape[-1] ** 0.5 if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, -1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return (weights @ v).transpose(1, 2).flatten(2)


def _cached(
    start: Callable = lambda past, new: past,
    join: Callable = lambda past, own: torch.cat([past, own], dim=2),
    mask: Callable = _allowed,
    look: Callable = _looked,
    split: Callable = _heads_of,
) -> Callable:
    """A right answer but for the parts that are given."""

    def attend(x, cache, places, W_q, W_k, W_v, heads):
        past, new = cache[0].shape[2], x.shape[1]
        first = start(past, new)
        x = x + places[first : first + new]
        q, k, v = (split(x @ W.T, heads) for W in (W_q, W_k, W_v))
        keys, values = join(cache[0], k), join(cache[1], v)
        return look(q, keys, values, mask(new, keys.shape[2])), (keys, values)

    return attend


_cached_attention = _cached()


def _placed_alone(*who: str) -> Callable:
    """Only q, k or v of `who` are made from states with their places."""

    def attend(x, cache, places, W_q, W_k, W_v, heads):
        past, new = cache[0].shape[2], x.shape[1]
        placed = x + places[past : past + new]
        q, k, v = (
            _heads_of((placed if name in who else x) @ W.T, heads)
            for name, W in zip("qkv", (W_q, W_k, W_v), strict=True)
        )
        keys, values = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        return _looked(q, keys, values, _allowed(new, past + new)), (keys, values)

    return attend


def _keeping(keep: Callable) -> Callable:
    """A right output, but keep(cache, (k, v), (keys, values)) is what is handed on."""

    def attend(x, cache, places, W_q, W_k, W_v, heads):
        output, after = _cached_attention(x, cache, places, W_q, W_k, W_v, heads)
        own = tuple(part[:, :, cache[0].shape[2] :] for part in after)
        return output, keep(cache, own, after)

    return attend


def _past_alone(x, cache, places, W_q, W_k, W_v, heads):
    _, after = _cached_attention(x, cache, places, W_q, W_k, W_v, heads)
    past, new = cache[0].shape[2], x.shape[1]
    q = _heads_of((x + places[past : past + new]) @ W_q.T, heads)
    keys, values = (part[:, :, :past] for part in after)
    return _looked(q, keys, values, None), after


def _new_alone(x, cache, places, W_q, W_k, W_v, heads):
    _, after = _cached_attention(x, cache, places, W_q, W_k, W_v, heads)
    past, new = cache[0].shape[2], x.shape[1]
    q = _heads_of((x + places[past : past + new]) @ W_q.T, heads)
    keys, values = (part[:, :, past:] for part in after)
    return _looked(q, keys, values, _allowed(new, new)), after


def _values_from_keys(x, cache, places, W_q, W_k, W_v, heads):
    return _cached_attention(x, cache, places, W_q, W_k, W_k, heads)


def _cache_in_place(x, cache, places, W_q, W_k, W_v, heads):
    output, after = _cached_attention(x, cache, places, W_q, W_k, W_v, heads)
    for old, new in zip(cache, after, strict=True):
        old.set_(new)
    return output, cache


def _not_merged(q, k, v, mask):
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -INF)
    found = torch.softmax(scores, -1) @ v  # (batch, heads, new, own)
    return found.reshape(found.shape[0], found.shape[2], -1)


def _joined_along_heads(past, own):
    return torch.cat([past, own], 1) if past.shape[2] else own


def _one_head(x, cache, places, W_q, W_k, W_v, heads):
    _, after = _cached_attention(x, cache, places, W_q, W_k, W_v, heads)
    past, new = cache[0].shape[2], x.shape[1]
    q = ((x + places[past : past + new]) @ W_q.T)[:, None]
    keys, values = (part.transpose(1, 2).flatten(2)[:, None] for part in after)
    return _looked(q, keys, values, _allowed(new, past + new)), after


CACHE_MISTAKES = (
    Mistake(
        "mask that starts at the first key",
        _cached(mask=lambda new, seen: torch.ones(new, seen, dtype=torch.bool).tril()),
        "Your causal mask is counted from the first key, as if the new tokens stood at the beginning. They "
        "stand at the end of all that was read (is_causal=True counts from the beginning too).",
        "tril(seen - new): the last new token sees everything, the first of them all but the other new ones.",
        ("kv-01",),
    ),
    Mistake(
        "no mask",
        _cached(mask=lambda new, seen: None),
        "Of several new tokens, the first ones see those after them.",
        "a causal mask among the new tokens; with one new token none is needed.",
        ("kv-01",),
    ),
    Mistake(
        "a token does not see itself",
        _cached(mask=lambda new, seen: _allowed(new, seen).tril(seen - new - 1)),
        "Your mask hides each token from itself.",
        "the diagonal of the mask: tril(seen - new).",
        ("cm-02",),
    ),
    Mistake(
        "places from 0 again",
        _cached(start=lambda past, new: 0),
        "Every call counts its places from 0. The new tokens stand behind those of the cache.",
        "places[past : past + new], where past is how many tokens the cache holds.",
        ("kv-05",),
    ),
    Mistake(
        "places counted after the new tokens",
        _cached(start=lambda past, new: past + new if past else 0),
        "You count how many tokens were read after the new ones are in: your places are too far on.",
        "past is the length of the cache that came in.",
        ("kv-05",),
    ),
    Mistake(
        "places one too far",
        _cached(start=lambda past, new: past + 1),
        "Your places are one too far on.",
        "the first token stands at place 0.",
        ("kv-05",),
    ),
    Mistake(
        "keys without places",
        _placed_alone("q"),
        "Only the queries know where they stand.",
        "keys and values: they are made from x with its places too.",
        ("kv-05",),
    ),
    Mistake(
        "no places",
        _placed_alone(),
        "The places never enter.",
        "x + places[...], before the three products.",
        ("kv-05",),
    ),
    Mistake(
        "values overwritten by keys",
        _keeping(lambda cache, own, after: (after[0], after[0].clone())),
        "The cache hands on the keys twice: the values are lost.",
        "the second part of the cache.",
        ("kv-06",),
    ),
    Mistake(
        "values made like keys",
        _values_from_keys,
        "Your values are made with W_k.",
        "W_v.",
        ("kv-06",),
    ),
    Mistake(
        "keys and values swapped",
        _keeping(lambda cache, own, after: after[::-1]),
        "You hand on the values first and the keys second.",
        "the order: (keys, values).",
        ("kv-06",),
    ),
    Mistake(
        "joined along the heads",
        _cached(join=_joined_along_heads),
        "You join past and new along the axis of heads.",
        "dim=2 in torch.cat: (batch, heads, length, own).",
        ("kv-06",),
    ),
    Mistake(
        "new before past",
        _cached(join=lambda past, own: torch.cat([own, past], 2)),
        "You put the new keys and values before those of the cache.",
        "the order inside torch.cat: the past first.",
        ("kv-06",),
    ),
    Mistake(
        "cache not extended",
        _keeping(lambda cache, own, after: cache),
        "You hand on the cache as it came, without the new tokens.",
        "what you return: keys and values of all tokens so far.",
    ),
    Mistake(
        "past forgotten",
        _keeping(lambda cache, own, after: own),
        "You hand on the new keys and values alone.",
        "what you return: keys and values of all tokens so far.",
    ),
    Mistake(
        "looks at the past alone",
        _past_alone,
        "The new tokens look at the cache and not at themselves: the first token of all sees nothing.",
        "the order: join first, then attend.",
    ),
    Mistake(
        "looks at the new tokens alone",
        _new_alone,
        "The new tokens look at one another and not at the past. The cache is kept and never read.",
        "the keys and values that you attend to: past and new joined.",
    ),
    Mistake(
        "not divided",
        _cached(look=partial(_looked, scale=1.0)),
        "The scores are not divided by the square root of a head's width.",
        "/ own ** 0.5.",
        ("sd-03",),
    ),
    Mistake(
        "divided by the whole width",
        _cached(look=lambda q, k, v, mask: _looked(q, k, v, mask, (q.shape[1] * q.shape[-1]) ** 0.5)),
        "You divide by the square root of the whole width. A head has width / heads numbers.",
        "the width of q after the split.",
        ("sd-03",),
    ),
    Mistake(
        "heads cut by a bare reshape",
        _cached(split=lambda x, heads: x.reshape(len(x), heads, x.shape[1], -1)),
        "Your heads are cut by a reshape alone, which deals the numbers of different tokens into one head.",
        "first (batch, length, heads, own), then transpose(1, 2).",
        ("mha-02",),
    ),
    Mistake(
        "heads merged by a bare reshape",
        _cached(look=_not_merged),
        "You merge the heads by a reshape alone, which mixes tokens.",
        "transpose(1, 2) first, then flatten the last two axes.",
        ("mha-04",),
    ),
    Mistake(
        "one head",
        _one_head,
        "You attend with one head over the whole width.",
        "the split of queries, keys and values into heads.",
    ),
    Mistake(
        "writes into the cache",
        _cache_in_place,
        "You change the cache that you were given. Two hypotheses of a beam may share it.",
        "torch.cat, which makes a new tensor.",
    ),
)


def _cached_with_torch(x, cache, places, W_q, W_k, W_v, heads):
    past, new = cache[0].shape[2], x.shape[1]
    x = x + places[past : past + new]
    k, v = (_heads_of(F.linear(x, W), heads) for W in (W_k, W_v))
    k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
    mask = torch.arange(past + new)[None] <= torch.arange(past, past + new)[:, None]
    found = F.scaled_dot_product_attention(_heads_of(F.linear(x, W_q), heads), k, v, attn_mask=mask)
    return found.transpose(1, 2).reshape(x.shape), (k, v)


def _cached_word_by_word(x, cache, places, W_q, W_k, W_v, heads):
    """Without any mask: one new token after another."""
    outputs = []
    for word in x.split(1, dim=1):
        output, cache = _cached(mask=lambda new, seen: None)(word, cache, places, W_q, W_k, W_v, heads)
        outputs.append(output)
    return torch.cat(outputs, dim=1), cache


def _cached_in_double(x, cache, places, W_q, W_k, W_v, heads):
    """Agrees up to rounding, as other shapes of the same products do."""
    exact = (part.double() for part in (places, W_q, W_k, W_v))
    output, after = _cached_attention(x.double(), tuple(c.double() for c in cache), *exact, heads)
    return output.to(x.dtype), [part.to(x.dtype) for part in after]


CACHED_ATTENTION = Exercise(
    question=find("07.6"),
    title="attention with a cache",
    minutes=25,
    difficulty=3,
    reference=_reference("07.6", _cached_attention),
    axes={
        "output": "batch, new, width",
        "keys": "batch, heads, past + new, own",
        "values": "batch, heads, past + new, own",
    },
    parts=(
        Part(
            "one token a call",
            1,
            _draw_words,
            ("output", "keys", "values"),
            "the second call, by hand: which place has its token, and which keys does it see?",
        ),
        Part(
            "several tokens a call",
            1,
            _draw_chunks,
            ("output", "keys", "values"),
            "two new tokens behind two old ones: which of the four does each of them see?",
        ),
    ),
    mistakes=CACHE_MISTAKES,
    variants=(
        Variant("torch's fused attention with its own mask", _cached_with_torch),
        Variant("one new token after another, no mask", _cached_word_by_word),
        Variant("in float64, the cache as a list", _cached_in_double, ("kv-08",)),
    ),
    forbidden=("course_utils.models", "torch.nn.MultiheadAttention"),
)


EXERCISES = [RESIDUAL_STACK, DECODER_LAYER, SMOOTHED_LOSS, WARMUP_RATE, TRAINING_STEP, CACHED_ATTENTION]
