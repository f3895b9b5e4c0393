"""Attention: a score for every pair of query and key, a softmax over the keys, a weighted sum of values."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from course_utils.models.positions import rotary


def masked_softmax(
    scores: Float[Tensor, "*rows source"], mask: Bool[Tensor, "..."] | None = None
) -> Float[Tensor, "*rows source"]:
    """Softmax over the last dimension in which only the True positions of the mask take part.

    Masked positions get exactly 0, whatever their score, and pass no gradient. A row without any True
    position gets zeros, never NaN, and its gradients are zero.

    Args:
        scores: real numbers, in any floating dtype.
        mask: True = may attend. It broadcasts against the scores; None lets everything take part.
    """
    if mask is None:
        return torch.softmax(scores, dim=-1)
    # A row of -inf alone would make NaN (0 / 0), and NaN gradients that no later step could undo. So an
    # empty row is filled with 0 instead, and the last line takes its (uniform) weights away again.
    empty = ~mask.any(dim=-1, keepdim=True)
    fill = torch.full_like(empty, -torch.inf, dtype=scores.dtype).masked_fill(empty, 0.0)
    weights = torch.softmax(torch.where(mask, scores, fill), dim=-1)
    return weights.masked_fill(empty, 0.0)


class AdditiveScore(nn.Module):
    """The score of Bahdanau et al. (2015): e_tj = v^T tanh(W_a s_{t-1} + U_a h_j) (appendix A.1.2).

    A score module compares queries with keys. It offers `project_keys`, the part that depends on the source
    alone and is done once a sentence, and `forward`, the part that depends on the query; with these two any
    other score can take its place.

    Args:
        query_width: the width of the decoder's state s.
        key_width: the width of the encoder's states h (both directions together).
        attention_width: the width of the space in which the two are added.
    """

    def __init__(self, query_width: int, key_width: int, attention_width: int):
        super().__init__()
        self.query = nn.Linear(query_width, attention_width, bias=False)  # W_a
        self.key = nn.Linear(key_width, attention_width, bias=False)  # U_a
        self.v = nn.Parameter(torch.empty(attention_width))
        nn.init.uniform_(self.v, -(attention_width**-0.5), attention_width**-0.5)

    def project_keys(
        self, encoder_states: Float[Tensor, "batch source key"]
    ) -> Float[Tensor, "batch source attention"]:
        """2 U_a h_j of every source position, for `forward`, which says why twice."""
        return 2 * self.key(encoder_states)

    def forward(
        self, query: Float[Tensor, "batch target query"], keys: Float[Tensor, "batch source attention"]
    ) -> Float[Tensor, "batch target source"]:
        """The score of every target position (query) against every source position (projected key)."""
        # PyTorch's sigmoid is up to three times as fast on a CPU as its tanh, which would be the bulk of a
        # decoder step; so v^T tanh(x) is computed as v^T (2 sigmoid(2 x) - 1), the same function.
        twice = (2 * self.query(query))[:, :, None] + keys[:, None]  # (batch, target, source, attention)
        return F.linear(twice.sigmoid_(), 2 * self.v[None], -self.v.sum()[None]).squeeze(-1)


class DotScore(nn.Module):
    """The dot product s_t . h_j (Luong et al. 2015, section 3.1), which has nothing to learn.

    Raises ValueError where the two widths differ: then there is no dot product.
    """

    def __init__(self, query_width: int, key_width: int):
        super().__init__()
        if query_width != key_width:
            raise ValueError(
                f"a dot product needs equal widths, but the decoder's state has {query_width} numbers and an "
                f"encoder state {key_width} (both directions together); give each direction of the encoder "
                f"{query_width / 2:g}, or take GeneralScore, whose matrix maps the one to the other"
            )

    def project_keys(self, encoder_states: Float[Tensor, "batch source key"]) -> Tensor:
        """The states themselves."""
        return encoder_states

    def forward(
        self, query: Float[Tensor, "batch target query"], keys: Float[Tensor, "batch source query"]
    ) -> Float[Tensor, "batch target source"]:
        """The product of every query with every key."""
        return query @ keys.mT


class GeneralScore(DotScore):
    """The score s_t . W_a h_j (Luong et al. 2015, section 3.1): a dot product after a learned map."""

    def __init__(self, query_width: int, key_width: int):
        super().__init__(query_width, query_width)
        self.key = nn.Linear(key_width, query_width, bias=False)  # W_a

    def project_keys(
        self, encoder_states: Float[Tensor, "batch source key"]
    ) -> Float[Tensor, "batch source query"]:
        """W_a h_j of every source position."""
        return self.key(encoder_states)


class LocationScore(nn.Module):
    """The score W_a s_t (Luong et al. 2015, equation 8): the state alone chooses positions, unseen.

    Args:
        query_width: the width of the decoder's state.
        longest: the number of positions that it can choose from, the end token's included.
    """

    def __init__(self, query_width: int, longest: int):
        super().__init__()
        self.places = nn.Linear(query_width, longest, bias=False)  # W_a

    def project_keys(self, encoder_states: Float[Tensor, "batch source key"]) -> Tensor:
        """The states, of which only the number counts. Raises ValueError for more than there are places."""
        if encoder_states.shape[1] > self.places.out_features:
            raise ValueError(
                f"a source of {encoder_states.shape[1]} tokens is longer than the {self.places.out_features} "
                "positions that this location score knows; make it with a larger `longest`"
            )
        return encoder_states

    def forward(
        self, query: Float[Tensor, "batch target query"], keys: Float[Tensor, "batch source key"]
    ) -> Float[Tensor, "batch target source"]:
        """One score for each place, whatever stands there."""
        return self.places(query)[:, :, : keys.shape[1]]


class Attention(nn.Module):
    """A score, a masked softmax, and the weighted sum that the weights choose.

    Args:
        score: a module with `project_keys(encoder_states)` and `forward(query, keys)`, such as AdditiveScore.
    """

    def __init__(self, score: nn.Module):
        super().__init__()
        self.score = score

    def forward(
        self,
        query: Float[Tensor, "batch target query"],
        keys: Float[Tensor, "batch source attention"],
        values: Float[Tensor, "batch source value"],
        source_mask: Bool[Tensor, "batch source"],
    ) -> tuple[Float[Tensor, "batch target value"], Float[Tensor, "batch target source"]]:
        """The context of each query, and the weights that made it (Bahdanau et al. 2015, equations 5 and 6).

        Args:
            query: the states that ask.
            keys: what the score's `project_keys` made of the encoder's states.
            values: what is to be averaged: the encoder's states, or any linear image of them.
            source_mask: True = real token.
        """
        scores = self.score(query, keys)
        weights = masked_softmax(scores, source_mask[:, None])  # (6)
        return torch.bmm(weights, values), weights  # (5)


def scaled_dot_product(
    query: Float[Tensor, "*batch target width"],
    key: Float[Tensor, "*batch source width"],
    value: Float[Tensor, "*batch source value"],
    mask: Bool[Tensor, "..."] | None = None,
) -> tuple[Float[Tensor, "*batch target value"], Float[Tensor, "*batch target source"]]:
    """softmax(Q K^T / sqrt(d_k)) V, and the weights (Vaswani et al. 2017, equation 1).

    Args:
        mask: True = may attend; broadcasts against (*batch, target, source).
    """
    scores = query @ key.mT / query.shape[-1] ** 0.5
    weights = masked_softmax(scores, mask)
    return weights @ value, weights


class Attended(NamedTuple):
    """What one attention layer gives."""

    output: Float[Tensor, "batch target width"]
    weights: Float[Tensor, "batch heads target source"] | None


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each in its own part of the width (Vaswani et al. 2017, 3.2.2).

    Keys and values are made by a method of their own, `remember`, since they can be kept: those of the source
    for a whole translation, those of past tokens in a cache.

    Args:
        width: of the inputs and the output.
        heads: how many; each has width / heads numbers.
        key_heads: how many heads of keys and values, each shared by heads / key_heads heads of queries
            (Ainslie et al. 2023); all of them by default.
        rotary: turn queries and keys by their positions.

    Raises:
        ValueError: the width does not divide by the heads, or the heads by the key heads.
    """

    def __init__(self, width: int, heads: int, *, key_heads: int | None = None, rotary: bool = False):
        super().__init__()
        key_heads = heads if key_heads is None else key_heads
        if width % heads or heads % key_heads:
            raise ValueError(
                f"a width of {width} must divide into {heads} heads, and these into {key_heads} key heads"
            )
        self.heads, self.key_heads, self.rotary = heads, key_heads, rotary
        own = key_heads * width // heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * own)  # one product for both
        self.output = nn.Linear(width, width)
        for matrix in (self.query.weight, *self.key_value.weight.split(own)):
            nn.init.xavier_uniform_(matrix)
        for bias in (self.query.bias, self.key_value.bias, self.output.bias):
            nn.init.zeros_(bias)

    def remember(self, x: Float[Tensor, "batch source width"], start: int = 0) -> tuple[Tensor, Tensor]:
        """Keys and values of x, (batch, key_heads, source, width of a head); x begins at position `start`."""
        key, value = self.key_value(x).chunk(2, dim=-1)
        return self._turned(_split_heads(key, self.key_heads), start), _split_heads(value, self.key_heads)

    def forward(
        self,
        x: Float[Tensor, "batch target width"],
        memory: tuple[Tensor, Tensor],
        mask: Bool[Tensor, "..."] | None = None,
        *,
        start: int = 0,
        with_weights: bool = False,
    ) -> Attended:
        """Lets x, which begins at position `start`, look at keys and values.

        Args:
            memory: what `remember` made.
            mask: True = may attend; broadcasts against (batch, heads, target, source).
            with_weights: give the weights as well, which PyTorch's fused attention never holds.
        """
        query = self._turned(_split_heads(self.query(x), self.heads), start)  # (batch, heads, target, own)
        key, value = (part.repeat_interleave(self.heads // self.key_heads, dim=1) for part in memory)
        weights = None
        if with_weights:
            found, weights = scaled_dot_product(query, key, value, mask)
        else:
            found = F.scaled_dot_product_attention(query, key, value, mask)
        return Attended(self.output(found.transpose(1, 2).flatten(2)), weights)

    def _turned(self, x: Float[Tensor, "batch heads length own"], start: int) -> Tensor:
        if not self.rotary:
            return x
        return rotary(x, torch.arange(start, start + x.shape[2], device=x.device))


def _split_heads(x: Float[Tensor, "batch length width"], heads: int) -> Tensor:
    """(batch, heads, length, width / heads): each head gets neighbouring columns."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)
