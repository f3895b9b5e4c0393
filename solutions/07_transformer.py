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
# # 07 · The Transformer: exercises
#
# <!-- badge -->
#
# In the lesson you saw a Transformer train and translate. Here you build what makes it work: the sublayers and
# their norms, the decoder's layer, the loss, the schedule, the masks of a training step, and the cache that makes
# decoding fast. Six exercises, 10 points, about 105 minutes.
#
# **How it works.** Write your answer in place of the line that raises `NotImplementedError`, run the cell, then run
# the check below it. A check tries your function on small random inputs, shows the smallest case that goes wrong,
# and often recognises the mistake. Below each check stands what it prints for a right answer; running the cell
# replaces that by what it says of yours. Under each check wait three hints, each stronger than the one before.
#
# **Words we use.** `batch` counts sentences, `source` the words of the sentence that is read, `target` the words of
# the translation, `width` the numbers of a state. A mask is boolean: **True = may look**. Everything is batch first.

# %% tags=["setup"]
from course_utils import runtime

device = runtime.start("07")

# %%
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_utils.checks import check, summary

# %% [markdown]
# ## 07.1 · A stack of sublayers, in both orders
#
# > **2 points · about 20 minutes · medium ★★☆**
#
# A Transformer is a stack of sublayers $f_1 \dots f_n$ (attentions and feed-forward networks; here they are any
# functions that keep the shape). Each stands in a residual connection with a layer norm of its own:
#
# $$\text{post-LN:}\quad x \leftarrow \mathrm{LN}_i(x + f_i(x)) \qquad\qquad
# \text{pre-LN:}\quad x \leftarrow x + f_i(\mathrm{LN}_i(x))$$
#
# Layer norm treats each state, a vector of `width` numbers, for itself. With their mean $\mu$ and their variance
# $\sigma^2$ (the mean of the squared deviations), and with a gain $g$ and a bias $b$ for every number:
#
# $$\mathrm{LN}(x) = g \odot \frac{x - \mu}{\sqrt{\sigma^2 + 10^{-5}}} + b$$
#
# Write it yourself. A post-LN stack has $n$ norms. A pre-LN stack has one more, which comes at the very end: nothing
# else would keep the sum of so many outputs in size.
#
# | name | shape | what it is |
# |---|---|---|
# | `x` | (batch, length, width) | the states |
# | `sublayers` | a list of n functions (modules, usually) | each from (batch, length, width) to the same shape |
# | `gains`, `biases` | (n, width), or (n + 1, width) for pre-LN | one row a norm, in the order of their use |
# | `pre` | True or False | pre-LN or post-LN |
#
# **A tiny example.** One state `[1, 3]`, one sublayer that doubles, gains of 1 and biases of 0. Post-LN: the sum is
# `[3, 9]`, its norm `[-1, 1]` (to five digits). Pre-LN without the last norm: `[1, 3] + 2 · [-1, 1] = [-1, 5]`; and
# the last norm makes `[-1, 1]` of it.


# %% tags=["exercise:07.1"]
def residual_stack(
    x: Float[Tensor, "batch length width"],
    sublayers: list[nn.Module],
    gains: Float[Tensor, "norms width"],
    biases: Float[Tensor, "norms width"],
    pre: bool,
) -> Float[Tensor, "batch length width"]:
    """The states after all sublayers, in post-LN (Vaswani et al. 2017) or pre-LN (Xiong et al. 2020)."""

    ### BEGIN SOLUTION
    def norm(i: int, x: Tensor) -> Tensor:
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = centred.square().mean(dim=-1, keepdim=True)  # (batch, length, 1)
        return gains[i] * centred / torch.sqrt(variance + 1e-5) + biases[i]

    for i, sublayer in enumerate(sublayers):
        x = x + sublayer(norm(i, x)) if pre else norm(i, x + sublayer(x))
    return norm(-1, x) if pre else x
    ### END SOLUTION


# %% tags=["check:07.1", "nbval-check-output"]
check("07.1", residual_stack)

# %% [markdown]
# <details><summary>Hint 1: the norm first</summary>
#
# Write the norm as a small function of its own, and try it on one state: `[1, 0, 0, 0]` becomes `[1.732, -0.577,
# -0.577, -0.577]`. If you get `[1.5, -0.5, -0.5, -0.5]`, your deviation divides by n - 1, as `x.std()` does.
#
# </details>
# <details><summary>Hint 2: what passes beside the sublayer</summary>
#
# In both orders the left side of the sum is x as it came in, never its norm. And x moves on: the second sublayer
# starts from what the first has left.
#
# </details>
# <details><summary>Hint 3: almost the code</summary>
#
# In a loop over `enumerate(sublayers)`: `x = x + sublayer(norm(i, x))` for pre-LN, `x = norm(i, x + sublayer(x))` for
# post-LN. After the loop, pre-LN returns `norm(-1, x)`: row -1 of gains and biases, which no sublayer has used.
#
# </details>

# %% [markdown]
# ## 07.2 · The layer of a decoder
#
# > **2 points · about 20 minutes · medium ★★☆**
#
# A decoder's layer has three sublayers: the target looks at itself, then at the source, then a feed-forward network
# works on each state. Wire them, in pre-LN:
#
# 1. **self-attention** over the target, in which word t sees the words up to t, itself included;
# 2. **attention to the source**: the target asks, the encoder's states answer, and padding is not looked at;
# 3. the **feed-forward network**.
#
# | name | what it is |
# |---|---|
# | `x` | (batch, target, width): the states of the target |
# | `encoder_states` | (batch, source, width): what the encoder gave, used as they are |
# | `source_mask` | (batch, source): True for the real words of the source |
# | `own`, `cross` | the two attentions: `own(asking, asked, mask)` gives (batch, target, width). The mask is boolean, True = may look, and broadcasts against (batch, heads, target, source); `None` hides nothing |
# | `feed_forward` | a function of the states |
# | `norms` | three functions: `norms[0]` belongs to the first sublayer, and so on |
#
# The target's padding stands at the end of a row, where the causal mask hides it from all real words.
#
# **A tiny example.** Let every norm change nothing, and let both attentions be the plain mean of the states that
# may be looked at. The target is `[1], [3]`, the source `[10], [20]` and padding `[99]`. Self-attention: the first
# word sees `[1]`, the second the mean of both, `[2]`, and with x beside it that makes `[2], [5]`. The source adds
# `[15]` to each: `[17], [20]`. With a feed-forward network that gives 0, this is the result.


# %% tags=["exercise:07.2"]
def decoder_layer(
    x: Float[Tensor, "batch target width"],
    encoder_states: Float[Tensor, "batch source width"],
    source_mask: Bool[Tensor, "batch source"],
    own: nn.Module,
    cross: nn.Module,
    feed_forward: nn.Module,
    norms: list[nn.Module],
) -> Float[Tensor, "batch target width"]:
    """The states after one decoder layer in pre-LN (Vaswani et al. 2017, section 3.1 and figure 1)."""
    ### BEGIN SOLUTION
    target = x.shape[1]
    causal = torch.ones(target, target, dtype=torch.bool, device=x.device).tril()  # (target, target)
    h = norms[0](x)
    x = x + own(h, h, causal)
    x = x + cross(norms[1](x), encoder_states, source_mask[:, None, None, :])  # (batch, 1, 1, source)
    return x + feed_forward(norms[2](x))
    ### END SOLUTION


# %% tags=["check:07.2", "nbval-check-output"]
check("07.2", decoder_layer)

# %% [markdown]
# <details><summary>Hint 1: three lines of one form</summary>
#
# Each of the three is `x = x + sublayer(norm(x))`. What differs is whom the sublayer looks at, and through which mask.
#
# </details>
# <details><summary>Hint 2: the two masks</summary>
#
# The causal mask is a square, (target, target), True on the diagonal and below it: `torch.ones(...).tril()`. The
# source's mask comes as (batch, source) and needs two axes of size 1, for the heads and for the target words:
# `source_mask[:, None, None, :]`.
#
# </details>
# <details><summary>Hint 3: who asks whom</summary>
#
# Self-attention: `h = norms[0](x)`, then `own(h, h, causal)`. Source: `cross(norms[1](x), encoder_states, ...)`; the
# encoder's states have been through a norm at the end of the encoder and get no other.
#
# </details>

# %% [markdown]
# ## 07.3 · A loss that is never quite sure
#
# > **2 points · about 15 minutes · medium ★★☆**
#
# Plain cross-entropy asks for the right word with probability 1, which no softmax can give. Label smoothing asks for
# a softer distribution: $\epsilon$ of the probability is spread evenly over **all** V words of the vocabulary, the
# right one and `<pad>` included (PyTorch does the same; other libraries leave some words out):
#
# $$q_v = (1 - \epsilon)\,[v = \text{right}] + \frac{\epsilon}{V} \qquad
# \text{loss of one word} = -\sum_v q_v \log p_v, \quad p = \mathrm{softmax}(\text{logits})$$
#
# Return the mean over the **real** words of the batch: a place whose `target` is `pad` counts for nothing. `logits`
# is (batch, target, vocabulary), `target` (batch, target), and `pad` the number of `<pad>` in the vocabulary. Logits
# may be large, 300 or so, and the loss must stay finite; with `epsilon = 0` it is the plain cross-entropy. Write the
# formula, and compare with `torch.nn.functional.cross_entropy(..., label_smoothing=...)` afterwards if you like.
#
# **A tiny example.** Three words, logits `[2, 0, 0]`, the first is right, epsilon 0.3. So q is `[0.8, 0.1, 0.1]`; the
# log-probabilities are `[-0.2395, -2.2395, -2.2395]`; the loss is `0.8 · 0.2395 + 0.1 · 2.2395 + 0.1 · 2.2395 = 0.6395`.


# %% tags=["exercise:07.3"]
def smoothed_loss(
    logits: Float[Tensor, "batch target vocabulary"],
    target: Int[Tensor, "batch target"],
    pad: int,
    epsilon: float,
) -> Float[Tensor, ""]:
    """The label-smoothed cross-entropy in nats, the mean over real words (Szegedy et al. 2016, section 7)."""
    ### BEGIN SOLUTION
    log_probabilities = torch.log_softmax(logits, dim=-1)  # (batch, target, vocabulary)
    right = log_probabilities.gather(-1, target[..., None]).squeeze(-1)  # (batch, target)
    each = -(1 - epsilon) * right - epsilon * log_probabilities.mean(dim=-1)  # (batch, target)
    return each[target != pad].mean()
    ### END SOLUTION


# %% tags=["check:07.3", "nbval-check-output"]
check("07.3", smoothed_loss)

# %% [markdown]
# <details><summary>Hint 1: two sums</summary>
#
# Put q into the formula: the loss is (1 - epsilon) times the loss of the right word, plus epsilon times the *mean* of
# -log p over all words.
#
# </details>
# <details><summary>Hint 2: the right word's number</summary>
#
# `log_probabilities.gather(-1, target[..., None]).squeeze(-1)` picks one number at each place: (batch, target). Use
# `torch.log_softmax`: the log of a softmax is -inf where a probability rounds to 0.
#
# </details>
# <details><summary>Hint 3: the mean</summary>
#
# With the loss of each place in `each`, (batch, target), `each[target != pad]` holds those of the real words, and
# their mean is the answer. `each.mean()` would divide by the padding as well.
#
# </details>

# %% [markdown]
# ## 07.4 · Warm up, then slow down
#
# > **1 point · about 10 minutes · easy ★☆☆**
#
# The paper's learning rate rises in a straight line for `warmup` steps, and then falls with the square root of the
# step (equation 3, and a plot in the lesson). Its formula hides how high it gets. Write the same shape with the peak
# in the open: rate 0 at step 0, `peak` at step `warmup`, and after that $1/\sqrt{\text{step}}$, scaled so that nothing
# jumps at the peak. `step` is a whole number, 0 or more; return a number.
#
# **A tiny example.** With a peak of 1 and 100 steps of warm-up: step 50 has the rate 0.5, step 100 has 1, step 400
# has 0.5 again, step 10,000 has 0.1.


# %% tags=["exercise:07.4"]
def warmup_rate(step: int, peak: float, warmup: int) -> float:
    """The learning rate of a step: linear warm-up, then the inverse square root (Vaswani et al. 2017, 5.3)."""
    ### BEGIN SOLUTION
    if step <= warmup:
        return peak * step / warmup
    return peak * (warmup / step) ** 0.5
    ### END SOLUTION


# %% tags=["check:07.4", "nbval-check-output"]
check("07.4", warmup_rate)

# %% [markdown]
# <details><summary>Hint 1: shares of the peak</summary>
#
# Divide by the peak: the first branch is then a line from 0 to 1, and the second starts at 1 and falls.
#
# </details>
# <details><summary>Hint 2: where they meet</summary>
#
# At step = warmup both are 1. The second is c / sqrt(step); which c makes it 1 there?
#
# </details>
# <details><summary>Hint 3: almost the code</summary>
#
# `step / warmup` up to the peak, `sqrt(warmup / step)` after it, both times `peak`. With `min` of the two you need no
# `if`, but mind step 0 in the second.
#
# </details>

# %% [markdown]
# ## 07.5 · What goes into a training step
#
# > **1 point · about 15 minutes · medium ★★☆**
#
# A batch arrives as word numbers: `source`, (batch, source), and `target`, (batch, target), whose rows already begin
# with `<bos>` and end with `<eos>`. Each side has its own vocabulary, so that `<pad>` is `source_pad` on one side and
# `target_pad` on the other. Some batches are padded on the right, others on the left. Make the four things that the
# model needs:
#
# - `target_in`, (batch, target - 1), what the decoder reads: all but the last column;
# - `target_out`, (batch, target - 1), what it has to predict at each place: the next word;
# - `source_mask`, (batch, 1, 1, source): True for the real words of the source;
# - `target_mask`, (batch, 1, target - 1, target - 1): row t is True for the words of `target_in` that place t may look
#   at: real ones, up to and including t.
#
# The two axes of size 1 are for the heads, and (in the source's mask) for the target words. What places of padding
# look at does not matter.
#
# **A tiny example.** `<pad>` 0, `<bos>` 1, `<eos>` 2 in the target, whose rows are `[1, 7, 8, 2]` and `[1, 7, 2, 0]`.
# `target_in` is `[1, 7, 8]` and `[1, 7, 2]`, `target_out` is `[7, 8, 2]` and `[7, 2, 0]`. In the first row place 0 sees
# place 0 alone, place 1 sees 0 and 1, place 2 all three.


# %% tags=["exercise:07.5"]
def training_step(
    source: Int[Tensor, "batch source"],
    target: Int[Tensor, "batch target"],
    source_pad: int,
    target_pad: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(target_in, target_out, source_mask, target_mask) of one batch."""
    ### BEGIN SOLUTION
    target_in, target_out = target[:, :-1], target[:, 1:]
    source_mask = (source != source_pad)[:, None, None, :]  # (batch, 1, 1, source)
    length = target_in.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=target.device).tril()
    real = (target_in != target_pad)[:, None, None, :]  # (batch, 1, 1, target - 1)
    return target_in, target_out, source_mask, real & causal
    ### END SOLUTION


# %% tags=["check:07.5", "nbval-check-output"]
check("07.5", training_step)

# %% [markdown]
# <details><summary>Hint 1: the shift</summary>
#
# Two slices of one tensor, one word apart: `target[:, :-1]` and `target[:, 1:]`. Shift once, along the second axis.
#
# </details>
# <details><summary>Hint 2: who is looked at</summary>
#
# The last axis of a mask stands for those who are looked at. Padding must not be looked at, so its mask lies along the
# last axis: (batch, 1, 1, length).
#
# </details>
# <details><summary>Hint 3: both at once</summary>
#
# `real & causal`: (batch, 1, 1, length) and (length, length) broadcast to (batch, 1, length, length). Compare
# `target_in` with `target_pad`, and `source` with `source_pad`.
#
# </details>

# %% [markdown]
# ## 07.6 · Attention that remembers
#
# > **2 points · about 25 minutes · hard ★★★**
#
# When a Transformer writes, it reads one new token a step. The keys and values of the earlier tokens do not change, so
# they are kept in a **cache**. Write causal self-attention that reads `new` tokens behind those of the cache (one at a
# time, or several, as when a prompt is read), and gives the same as one that reads all at once:
#
# 1. add to each state the encoding of its **place in the whole sequence**: row i of `places` belongs to token i;
# 2. queries, keys and values: $Q = x W_q^\top$ and so on, cut into `heads` of width `own = width / heads`, head 0 being
#    the first `own` columns;
# 3. join the new keys and values behind those of the cache;
# 4. each new token attends to all tokens up to itself: $\mathrm{softmax}(QK^\top / \sqrt{\text{own}})\,V$;
# 5. put the heads side by side again.
#
# | name | shape | what it is |
# |---|---|---|
# | `x` | (batch, new, width) | the new tokens |
# | `cache` | a pair: keys and values, (batch, heads, past, own) each | of the tokens before; at first past is 0 |
# | `places` | (longest, width) | the encoding of each place |
# | `W_q`, `W_k`, `W_v` | (width, width) | |
#
# Return the output, (batch, new, width), and the new cache, a pair of (batch, heads, past + new, own).
#
# **A tiny example.** One head of width 1, all three matrices `[[1]]`, no places (zeros). The first call reads `[0]`: it
# sees itself, the output is `[0]`, the cache holds the keys `[0]` and the values `[0]`. The second call reads `[2]`: its
# scores are `2 · 0 = 0` and `2 · 2 = 4`, the weights `[0.0180, 0.9820]`, the output `[1.9640]`, and the cache `[0, 2]`
# twice.


# %% tags=["exercise:07.6"]
def cached_attention(
    x: Float[Tensor, "batch new width"],
    cache: tuple[Tensor, Tensor],
    places: Float[Tensor, "longest width"],
    W_q: Float[Tensor, "width width"],
    W_k: Float[Tensor, "width width"],
    W_v: Float[Tensor, "width width"],
    heads: int,
) -> tuple[Float[Tensor, "batch new width"], tuple[Tensor, Tensor]]:
    """(output, cache): causal self-attention of new tokens that stand behind those of the cache."""
    ### BEGIN SOLUTION
    past, new = cache[0].shape[2], x.shape[1]
    x = x + places[past : past + new]
    # Each (batch, heads, new, own).
    query, key, value = ((x @ W.T).unflatten(-1, (heads, -1)).transpose(1, 2) for W in (W_q, W_k, W_v))
    key, value = torch.cat([cache[0], key], dim=2), torch.cat([cache[1], value], dim=2)
    may_look = torch.ones(new, past + new, dtype=torch.bool, device=x.device).tril(past)
    scores = query @ key.mT / query.shape[-1] ** 0.5  # (batch, heads, new, past + new)
    weights = scores.masked_fill(~may_look, -torch.inf).softmax(dim=-1)
    return (weights @ value).transpose(1, 2).flatten(2), (key, value)
    ### END SOLUTION


# %% tags=["check:07.6", "nbval-check-output"]
check("07.6", cached_attention)

# %% [markdown]
# <details><summary>Hint 1: how many are there already?</summary>
#
# `past = cache[0].shape[2]`. Everything that depends on the place starts from there: the new tokens stand at the places
# past, past + 1, and so on.
#
# </details>
# <details><summary>Hint 2: who sees whom</summary>
#
# With several new tokens, the mask is not square: (new, past + new). New token i sees the past, and the new ones up to
# itself: keys 0 ... past + i. `torch.ones(new, past + new).tril(past)` has True just there; without `past` the diagonal
# would start in the corner, and hide the past.
#
# </details>
# <details><summary>Hint 3: heads and joining</summary>
#
# `(x @ W.T).unflatten(-1, (heads, -1)).transpose(1, 2)` is (batch, heads, new, own). Join along dim 2, the cache first.
# After the weighted sum, `.transpose(1, 2).flatten(2)` puts the heads side by side.
#
# </details>

# %% [markdown]
# ## Your points

# %% tags=["summary", "nbval-check-output"]
summary("07")
