# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 06 · Self-attention: exercises
#
# <!-- badge -->
#
# In the lesson a sentence looked at itself, one step at a time. Now you build the parts that every Transformer is made
# of, for batches, with masks, and equal to PyTorch's own. Six exercises, 10 points, about 80 minutes.
#
# **How it works.** Write your answer in place of the line that raises `NotImplementedError`, run the cell,
# then run the check below it. A check tries your function on small random inputs. If something is wrong, it
# shows the smallest input that goes wrong, what you gave and what was expected; very often it recognises the
# mistake and says where to look. You can run it as often as you like. Below each check stands what it prints
# for a right answer; running the cell replaces that by what it says of yours. Under each check wait three hints,
# each stronger than the one before.
#
# **Words we use.** `target` counts the positions that ask (queries), `source` those that are asked (keys and values); in
# self-attention they are the same. A mask is boolean: **True means "may attend"**. Everything is batch first.

# %% tags=["setup"]
from course_utils import runtime

device = runtime.start("06")

# %%
import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_utils.checks import check, summary

# %% [markdown]
# ## 06.1 · Scaled dot-product attention, with any mask
#
# > **2 points · about 15 minutes · medium ★★☆**
#
# The equation of the lesson, for a batch, and for masks in which every query has a row of its own:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V$$
#
# | name | shape | what it is |
# |---|---|---|
# | `query` | (batch, target, width) | $Q$ |
# | `key` | (batch, source, width) | $K$; $d_k$ is its width |
# | `value` | (batch, source, value_width) | $V$ |
# | `mask` | (batch, target, source) | True where query t may attend to key s |
#
# Return the output, (batch, target, value_width), and the weights, (batch, target, source). Hidden positions get
# weight 0 and the others sum to 1. A query that may attend to nothing gets **zeros**, in the weights and in the output, and
# no NaN in the gradient. Scores can be very large.
#
# **A tiny example.** One query `[2, 0]`, two keys `[1, 5]` and `[0, 5]`, values `[10]` and `[20]`. The products are 2 and 0,
# divided by $\sqrt 2$ they are 1.4142 and 0, and the weights `[0.8044, 0.1956]`. The output is `0.8044 · 10 + 0.1956 · 20 = 11.9557`. With
# the mask `[False, True]` the weights are `[0, 1]` and the output is 20.


# %% tags=["exercise:06.1"]
def attention(
    query: Float[Tensor, "batch target width"],
    key: Float[Tensor, "batch source width"],
    value: Float[Tensor, "batch source value_width"],
    mask: Bool[Tensor, "batch target source"],
) -> tuple[Float[Tensor, "batch target value_width"], Float[Tensor, "batch target source"]]:
    """(output, weights) of scaled dot-product attention (Vaswani et al. 2017, equation 1)."""
    ### BEGIN SOLUTION
    scores = query @ key.mT / math.sqrt(query.shape[-1])  # (batch, target, source)
    lowest = torch.finfo(scores.dtype).min  # finite, so that an empty row does not become 0 / 0
    weights = torch.softmax(scores.masked_fill(~mask, lowest), dim=-1)
    weights = weights.masked_fill(~mask, 0.0)  # the empty rows, which are even until here
    return weights @ value, weights
    ### END SOLUTION


# %% tags=["check:06.1", "nbval-check-output"]
check("06.1", attention)

# %% [markdown]
# <details><summary>Hint 1: the scores</summary>
#
# Every query meets every key: (target, width) times (width, source). `key.transpose(-2, -1)`, or `key.mT`, turns the keys round
# and leaves the batch alone. Then divide by `math.sqrt(query.shape[-1])`.
#
# </details>
# <details><summary>Hint 2: the mask comes before the softmax</summary>
#
# `scores.masked_fill(~mask, x)` puts x where the mask is **False**. The x should make the exponential 0: `-inf`, or the
# lowest finite number, `torch.finfo(scores.dtype).min`.
#
# </details>
# <details><summary>Hint 3: the empty row</summary>
#
# With `-inf` everywhere a row divides 0 by 0. With the lowest finite number everywhere it comes out even. Fill the hidden positions with 0
# once more, after the softmax: nothing else changes. (`nan_to_num` would hide the NaN on the way forward, and leave it in the gradient.)
#
# </details>

# %% [markdown]
# ## 06.2 · Who may look at whom
#
# > **2 points · about 15 minutes · medium ★★☆**
#
# A translation model has three attentions, and each needs its mask. The source is read as a whole. The target is written from left to
# right, so its word t may look at the words 0 to t of the target. And nobody looks at padding.
#
# | mask | asks (rows) | is asked (columns) | shape |
# |---|---|---|---|
# | `encoder_mask` | source | source | (batch, source, source) |
# | `decoder_mask` | target | target, up to itself | (batch, target, target) |
# | `cross_mask` | target | source | (batch, target, source) |
#
# `source` and `target` hold token ids. `source_pad` and `target_pad` are the ids of padding; they differ, and the pad id of one side may be
# an ordinary word of the other. Padding may stand behind a sentence or in front of it. Return three **boolean** masks; an axis may have the size 1 where all
# its entries are the same. What stands in the *rows* of padding does not matter, since nobody reads them: the check does not look there.
#
# **A tiny example.** Target `[7, 4, 1]` with pad 1: `decoder_mask` has the rows `[True, False, False]`, `[True, True, False]` and, for padding,
# anything. With the padding in front, `[1, 7, 4]`, the rows are: anything, `[False, True, False]`, `[False, True, True]`.


# %% tags=["exercise:06.2"]
def attention_masks(
    source: Int[Tensor, "batch source"],
    target: Int[Tensor, "batch target"],
    source_pad: int,
    target_pad: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """(encoder_mask, decoder_mask, cross_mask), True = may attend."""
    ### BEGIN SOLUTION
    words = (source != source_pad)[:, None]  # (batch, 1, source): the keys, the same for every query
    own = (target != target_pad)[:, None]  # (batch, 1, target)
    length = target.shape[1]
    past = torch.ones(length, length, dtype=torch.bool, device=target.device).tril()  # (target, target)
    return words, own & past, words
    ### END SOLUTION


# %% tags=["check:06.2", "nbval-check-output"]
check("06.2", attention_masks)

# %% [markdown]
# <details><summary>Hint 1: padding</summary>
#
# `source != source_pad` is True at the real words, wherever they stand. These are the **keys**, so they belong on the last axis: `[:, None]` makes (batch, 1, source), one row
# for all queries. `[:, :, None]` would hide queries instead.
#
# </details>
# <details><summary>Hint 2: the past</summary>
#
# Rows are those who ask. `torch.ones(n, n, dtype=torch.bool).tril()` is True on the diagonal and below it: row t, columns 0 to t. A word may see itself.
#
# </details>
# <details><summary>Hint 3: both</summary>
#
# A target word may be seen if it is real **and** not in the future: `real[:, None] & past`. The cross mask has nothing of the target in it but its shape:
# the columns are source words, so it is the padding mask of the source once more.
#
# </details>

# %% [markdown]
# ## 06.3 · Into heads and back
#
# > **2 points · about 10 minutes · medium ★★☆**
#
# Heads are slices of the width. Head 0 gets the first width / heads columns of every word, head 1 the next, and so on; each head
# does its own work, and then their results stand side by side again.
#
# `x` is (batch, length, width). Cut it into (batch, heads, length, own) with own = width / heads; call the function `attend` with that, **once**; it returns
# a tensor of the same shape; join its heads, and return (batch, length, width). A loop over the heads is allowed.
#
# **A tiny example.** One sentence of two words, `[0, 1, 2, 3]` and `[4, 5, 6, 7]`, and two heads. Head 0 gets `[0, 1]` and `[4, 5]`, head 1 `[2, 3]` and `[6, 7]`. If
# `attend` multiplies head 1 by 10, the result is `[0, 1, 20, 30]` and `[4, 5, 60, 70]`.


# %% tags=["exercise:06.3"]
def by_head(
    x: Float[Tensor, "batch length width"],
    heads: int,
    attend: Callable[[Float[Tensor, "batch heads length own"]], Float[Tensor, "batch heads length own"]],
) -> Float[Tensor, "batch length width"]:
    """Lets `attend` work on the heads of x, and joins what it returns (Vaswani et al. 2017, 3.2.2)."""
    ### BEGIN SOLUTION
    batch, length, width = x.shape
    parts = x.reshape(batch, length, heads, width // heads)  # cuts the columns
    parts = parts.transpose(1, 2)  # (batch, heads, length, own)
    found = attend(parts)
    return found.transpose(1, 2).reshape(batch, length, width)
    ### END SOLUTION


# %% tags=["check:06.3", "nbval-check-output"]
check("06.3", by_head)

# %% [markdown]
# <details><summary>Hint 1: cut the width, not the sentence</summary>
#
# A reshape reads the numbers in order and never moves one. Straight to (batch, heads, length, own) it would give head 0 the first *words*. The width is the last axis, so cut
# that one alone: (batch, length, heads, own).
#
# </details>
# <details><summary>Hint 2: then let two axes trade places</summary>
#
# `transpose(1, 2)` turns (batch, length, heads, own) into (batch, heads, length, own). The way back is the same transpose and then a reshape to (batch, length, width).
#
# </details>
# <details><summary>Hint 3: an error about view and strides</summary>
#
# A transpose changes how memory is read, and moves nothing. `view` needs numbers that lie in order, so after a transpose it may refuse. `reshape` copies where it must;
# so does `.contiguous().view(...)`. With a loop: `x[..., h * own : (h + 1) * own]` and `torch.stack`, then `torch.cat`.
#
# </details>

# %% [markdown]
# ## 06.4 · Multi-head attention, equal to PyTorch's
#
# > **2 points · about 15 minutes · hard ★★★**
#
# Everything together: project, split, attend, merge, project. The check compares with what `nn.MultiheadAttention` computes with the same weights (batch
# first, and its weights for each head).
#
# $$\mathrm{head}_i = \mathrm{Attention}(x W_i^Q + b_i^Q,\; m W_i^K + b_i^K,\; m W_i^V + b_i^V) \qquad
# y = [\mathrm{head}_1 ; \dots ; \mathrm{head}_h]\, W^O + b^O$$
#
# | name | shape | what it is |
# |---|---|---|
# | `x` | (batch, target, width) | the states that ask |
# | `memory` | (batch, source, width) | the states that are asked: x itself in self-attention, another sequence otherwise |
# | `mask` | (batch, target, source) | True = may attend, the same for all heads |
# | `W_in`, `b_in` | (3 · width, width), (3 · width) | the rows for the query, then those for the key, then those for the value |
# | `W_out`, `b_out` | (width, width), (width) | $W^O$ |
# | `heads` | a number | each head is width / heads wide |
#
# As in `nn.Linear`, a matrix W acts as `x @ W.T + b`. Return the output, (batch, target, width), and the weights of each head, (batch, heads, target, source). A query that may
# attend to nothing has zeros as its weights, so that its output is `b_out`.
#
# **A tiny example.** Width 2, two heads, two words `[1, 0]` and `[0, 1]`, all three parts of `W_in` and `W_out` the identity, no biases. Head 0 sees the first column
# only: queries, keys and values 1 and 0. Its first query has the scores 1 and 0 (a head is 1 wide), so weights `[0.7311, 0.2689]` and output 0.7311; its second has the
# scores 0 and 0, and output 0.5. Head 1 is the same with the words exchanged. The output is `[0.7311, 0.5]` and `[0.5, 0.7311]`.


# %% tags=["exercise:06.4"]
def multi_head(
    x: Float[Tensor, "batch target width"],
    memory: Float[Tensor, "batch source width"],
    mask: Bool[Tensor, "batch target source"],
    W_in: Float[Tensor, "3*width width"],
    b_in: Float[Tensor, " 3*width"],
    W_out: Float[Tensor, "width width"],
    b_out: Float[Tensor, " width"],
    heads: int,
) -> tuple[Float[Tensor, "batch target width"], Float[Tensor, "batch heads target source"]]:
    """(output, weights) of multi-head attention (Vaswani et al. 2017, section 3.2.2)."""

    ### BEGIN SOLUTION
    def projected(states: Tensor, part: int) -> Tensor:
        """Queries (0), keys (1) or values (2) of every head, (batch, heads, length, own)."""
        states = states @ W_in.chunk(3)[part].T + b_in.chunk(3)[part]  # (batch, length, width)
        return states.unflatten(-1, (heads, -1)).transpose(1, 2)

    found, weights = attention(projected(x, 0), projected(memory, 1), projected(memory, 2), mask[:, None])
    return found.transpose(1, 2).flatten(2) @ W_out.T + b_out, weights
    ### END SOLUTION


# %% tags=["check:06.4", "nbval-check-output"]
check("06.4", multi_head)

# %% [markdown]
# <details><summary>Hint 1: the order of the steps</summary>
#
# `W_in.chunk(3)` gives three matrices of (width, width), `b_in.chunk(3)` three biases. Queries from `x`, keys and values from `memory`. Then the split of 06.3 for each of the three,
# attention, the merge of 06.3, and last the output projection.
#
# </details>
# <details><summary>Hint 2: the axis of the heads</summary>
#
# With heads, the scores are (batch, heads, target, source). `@` works on the last two axes and `.mT` turns the last two, so the code of 06.1 does not mind another axis in front. The
# mask has no heads: `mask[:, None]` is (batch, 1, target, source). The width under the root is that of a head.
#
# </details>
# <details><summary>Hint 3: use your 06.1</summary>
#
# Call your `attention(query, key, value, mask[:, None])` with 4-dimensional tensors, if it uses only the last two axes. (If it insists on three, join batch and heads:
# `.flatten(0, 1)` before, `mask.repeat_interleave(heads, dim=0)`, and `.unflatten(0, (batch, heads))` after.) The merge is `found.transpose(1, 2).flatten(2)`.
#
# </details>

# %% [markdown]
# ## 06.5 · Sinusoidal positions
#
# > **1 point · about 10 minutes · easy ★☆☆**
#
# The input of a Transformer: embeddings times $\sqrt{\text{width}}$ (section 3.4 of the paper), plus a vector that says where the word stands (section 3.5):
#
# $$\mathrm{PE}_{p,\,2i} = \sin\frac{p}{10000^{2i/\text{width}}} \qquad \mathrm{PE}_{p,\,2i+1} = \cos\frac{p}{10000^{2i/\text{width}}}$$
#
# `embeddings` is (batch, length, width), and the width is even. The positions are 0, 1, 2, ... along the **length**, the same in every sentence; $i$ counts the pairs of
# columns, from 0. Return a new tensor of the same shape.
#
# **A tiny example.** Width 4. Position 0 is `[0, 1, 0, 1]`. Position 1 is `[sin 1, cos 1, sin 0.01, cos 0.01] = [0.8415, 0.5403, 0.0100, 0.99995]`. An embedding `[0.5, 0.5, 0.5, 0.5]`
# at position 0 becomes `[1, 2, 1, 2]`.


# %% tags=["exercise:06.5"]
def with_positions(embeddings: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch length width"]:
    """Embeddings times sqrt(width), plus sinusoidal positions (Vaswani et al. 2017, 3.4 and 3.5)."""
    ### BEGIN SOLUTION
    _, length, width = embeddings.shape
    positions = torch.arange(length, dtype=embeddings.dtype, device=embeddings.device)
    pairs = torch.arange(0, width, 2, dtype=embeddings.dtype, device=embeddings.device)  # 2i
    angles = positions[:, None] / 10_000 ** (pairs / width)  # (length, width / 2)
    table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)  # (length, width)
    return embeddings * math.sqrt(width) + table
    ### END SOLUTION


# %% tags=["check:06.5", "nbval-check-output"]
check("06.5", with_positions)

# %% [markdown]
# <details><summary>Hint 1: the angles</summary>
#
# There is one angle for each position and each **pair** of columns: (length, width / 2). `torch.arange(0, width, 2)` is 0, 2, 4, ..., the 2i of the equation. Positions as a column, `[:, None]`,
# divided by `10_000 ** (pairs / width)`.
#
# </details>
# <details><summary>Hint 2: the columns take turns</summary>
#
# Make a table of zeros, (length, width), and set `table[:, 0::2] = angles.sin()` and `table[:, 1::2] = angles.cos()`. Both halves have width / 2 columns, and so have the angles.
#
# </details>
# <details><summary>Hint 3: the sum</summary>
#
# `embeddings * math.sqrt(width) + table`: (batch, length, width) plus (length, width), so that every sentence gets the same table. `embeddings *= ...` would change the caller's tensor.
#
# </details>

# %% [markdown]
# ## 06.6 · Write the test yourself
#
# > **1 point · about 15 minutes · medium ★★☆**
#
# A layer that is blind to order is *equivariant*: shuffle the words that go in, and what comes out is shuffled in the same way, and otherwise the same. Attention is, without
# positions or a causal mask. Someone hands you a layer. Write the test that says whether it is.
#
# `layer` is a function from (batch, length, width) to (batch, length, width), and `x` an input for it. Return True if the layer does not care about the order of the words, and False if it does. The check runs
# your test on twelve layers: some are blind to order, and some care about it in ways that are easy to miss. It knows which.
#
# **A tiny example.** Words of width 1, `x = [1, 2, 3]`, and the layer adds the mean of all words: `[3, 4, 5]`. The same words as `[3, 1, 2]` give `[5, 3, 4]`: the same three outputs, moved with their
# words: True. A layer that adds to each word the one before it gives `[1, 3, 5]`, and then `[3, 4, 3]`: False.


# %% tags=["exercise:06.6"]
def equivariant(
    layer: Callable[[Float[Tensor, "batch length width"]], Float[Tensor, "batch length width"]],
    x: Float[Tensor, "batch length width"],
) -> bool:
    """Whether shuffling the words of x shuffles the outputs of the layer alike, and changes nothing else."""
    ### BEGIN SOLUTION
    outputs = layer(x)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):  # several orders, since one that is drawn may leave some words where they were
        order = torch.randperm(x.shape[1], generator=generator)
        if not torch.allclose(layer(x[:, order]), outputs[:, order], atol=1e-6):
            return False
    return True
    ### END SOLUTION


# %% tags=["check:06.6", "nbval-check-output"]
check("06.6", equivariant)

# %% [markdown]
# <details><summary>Hint 1: two ways to the same place</summary>
#
# Shuffle and then run the layer, or run the layer and then shuffle: for a layer that is blind to order both give the same. `x[:, order]` shuffles the words of every sentence, where `order` is a tensor of positions, such as `torch.randperm(x.shape[1])`.
#
# </details>
# <details><summary>Hint 2: which order</summary>
#
# A layer that looks at distances does not notice that a sentence is *reversed*, and one that looks at neighbours in a ring does not notice that it is rolled along. Take an order without a pattern, or several.
#
# </details>
# <details><summary>Hint 3: how to compare</summary>
#
# Word by word, with `torch.allclose`: sums in another order differ in their last digits, so exact equality asks too much, and a wide tolerance lets faint positions through. Compare
# `layer(x[:, order])` with `layer(x)[:, order]`.
#
# </details>

# %% [markdown]
# ## Your points

# %% tags=["summary", "nbval-check-output"]
summary("06")
