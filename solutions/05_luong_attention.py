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
# # 05 · Luong attention: exercises
#
# <!-- badge -->
#
# The lesson compared Luong's scores and showed what input feeding is good for. Now you build the parts: the
# scores for whole batches, the attentional state, the decoder with and without feeding, and the moving window.
# Five exercises, 10 points, about 85 minutes.
#
# **How it works.** Write your answer in place of the line that raises `NotImplementedError`, run the cell,
# then run the check below it. A check tries your function on small random inputs. If something is wrong, it
# shows the smallest input that goes wrong, what you gave and what was expected; very often it recognises the
# mistake and says where to look. You can run it as often as you like. Below each check stands what it prints
# for a right answer; running the cell replaces that by what it says of yours. Under each check wait three hints,
# each stronger than the one before.
#
# **Words we use.** `batch` counts sentences, `source` the words of the sentence that is read, `target` the
# words of the translation. A mask is boolean: **True marks a real word**. Everything is batch first. Vectors
# stand in rows, so a product $W h_j$ of the lesson becomes `h @ W.T` in code.

# %% tags=["setup"]
from course_utils import runtime

device = runtime.start("05")

# %%
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from course_utils.checks import check, summary
from course_utils.models import AdditiveScore

# %% [markdown]
# ## 05.1 · Three scores
#
# > **3 points · about 20 minutes · medium ★★☆**
#
# One function, three scores ([Luong et al. 2015](https://arxiv.org/abs/1508.04025), section 3.1). Every query
# $s_t$ of a sentence meets every key $h_j$ of the same sentence:
#
# | `kind` | score | `W` | `v` |
# |---|---|---|---|
# | `"dot"` | $s_t^\top h_j$ | None | None |
# | `"general"` | $s_t^\top W h_j$ | (query_width, key_width) | None |
# | `"concat"` | $v^\top \tanh(W\,[s_t ; h_j])$ | (attention, query_width + key_width) | (attention,) |
#
# `queries` is (batch, target, query_width), `keys` is (batch, source, key_width). The two widths are equal for
# dot, and may differ for the others. Return the **scores**, (batch, target, source), before any softmax. There
# is a point for each score.
#
# **A tiny example.** One query `[1, 2]`, three keys `[1, 0]`, `[0, 1]`, `[1, 1]`. Dot gives `[1, 2, 3]`. General
# with `W = [[1, 2], [0, 1]]` gives `[1, 4, 5]`. Concat with `W = [[1, 0, 0, 1], [0, 1, 1, 0]]` and `v = [1, 1]`
# starts with `tanh(1 + 0) + tanh(2 + 1) = 0.7616 + 0.9951 = 1.7566`; all three are `[1.7566, 1.9281, 1.9591]`.


# %% tags=["exercise:05.1"]
def luong_scores(
    kind: str,
    queries: Float[Tensor, "batch target query_width"],
    keys: Float[Tensor, "batch source key_width"],
    W: Float[Tensor, "..."] | None,
    v: Float[Tensor, " attention"] | None,
) -> Float[Tensor, "batch target source"]:
    """The score of every query with every key of its sentence; `kind` is dot, general or concat."""
    ### BEGIN SOLUTION
    if kind == "dot":
        return queries @ keys.mT  # (batch, target, source)
    if kind == "general":
        return queries @ (keys @ W.T).mT
    target, source = queries.shape[1], keys.shape[1]
    asking = queries[:, :, None].expand(-1, -1, source, -1)  # (batch, target, source, query_width)
    asked = keys[:, None].expand(-1, target, -1, -1)  # (batch, target, source, key_width)
    return torch.tanh(torch.cat([asking, asked], dim=-1) @ W.T) @ v
    ### END SOLUTION


# %% tags=["check:05.1", "nbval-check-output"]
check("05.1", luong_scores)

# %% [markdown]
# <details><summary>Hint 1: dot is one product</summary>
#
# A product of matrices is all dot products of the rows of the one with the columns of the other. `keys.mT` turns
# (batch, source, width) into (batch, width, source), and leaves the batch alone.
#
# </details>
# <details><summary>Hint 2: general is dot, after a map</summary>
#
# $s^\top W h$ is the dot product of $s$ with $W h$. With the keys in rows, all $W h_j$ are `keys @ W.T`, (batch,
# source, query_width). Then go on as for dot. (The product `queries @ W` first, then the keys, is the same number.)
#
# </details>
# <details><summary>Hint 3: concat needs all pairs</summary>
#
# Give the queries a source axis and the keys a target axis, `queries[:, :, None].expand(-1, -1, source, -1)` and
# `keys[:, None].expand(-1, target, -1, -1)`, and join them along the last axis: (batch, target, source, both
# widths). Then `@ W.T`, `torch.tanh`, and `@ v`, which sums over the last axis.
#
# </details>

# %% [markdown]
# ## 05.2 · The attentional state
#
# > **1 point · about 10 minutes · easy ★☆☆**
#
# Luong's decoder predicts from the **attentional state**, which joins what was found with what was asked:
#
# $$c_t = \sum_j a_{tj} h_j, \qquad \tilde h_t = \tanh(W_c\,[c_t ; s_t])$$
#
# `states` is (batch, target, hidden), `encoder_states` (batch, source, encoder_width), `weights` (batch, target,
# source), `W_c` (attentional, encoder_width + hidden): its first columns are for the context. There is no bias.
# Return all attentional states, (batch, target, attentional).
#
# **A tiny example.** Encoder states `[4]` and `[8]`, weights `[0.25, 0.75]`: the context is `[7]`. With the state
# `[0.5]` and `W_c = [[0.1, 1]]` the attentional state is `tanh(0.7 + 0.5) = [0.8337]`.


# %% tags=["exercise:05.2"]
def attentional_states(
    states: Float[Tensor, "batch target hidden"],
    encoder_states: Float[Tensor, "batch source encoder_width"],
    weights: Float[Tensor, "batch target source"],
    W_c: Float[Tensor, "attentional encoder_width+hidden"],
) -> Float[Tensor, "batch target attentional"]:
    """tanh(W_c [c_t; s_t]) of every target word (Luong et al. 2015, equation 5)."""
    ### BEGIN SOLUTION
    contexts = weights @ encoder_states  # (batch, target, encoder_width)
    return torch.tanh(torch.cat([contexts, states], dim=-1) @ W_c.T)
    ### END SOLUTION


# %% tags=["check:05.2", "nbval-check-output"]
check("05.2", attentional_states)

# %% [markdown]
# <details><summary>Hint 1: the context first</summary>
#
# A weighted sum for every target word is a product of matrices: (batch, target, source) times (batch, source,
# encoder_width).
#
# </details>
# <details><summary>Hint 2: join in width</summary>
#
# `torch.cat` wants a list and a dim. Contexts and states have the same batch and target axes, and meet in the last
# one: the context first, since W_c has its columns in that order.
#
# </details>
# <details><summary>Hint 3: almost the code</summary>
#
# `torch.tanh(joined @ W_c.T)`.
#
# </details>

# %% [markdown]
# ## 05.3 · The decoder, with and without input feeding
#
# > **3 points · about 25 minutes · hard ★★★**
#
# The whole decoder of the paper, with a target that is known (teacher forcing). For each word $t$:
#
# 1. **step**: $\;s_t = \mathrm{RNN}(x_t, s_{t-1})$, where $x_t = [E y_{t-1} ; \tilde h_{t-1}]$ with input feeding, and
#    $x_t = E y_{t-1}$ without. Before the first step, $\tilde h_0$ is zeros.
# 2. **look**: $\;a_t = \text{masked softmax}_j(s_t^\top W_a h_j), \quad c_t = \sum_j a_{tj} h_j$
# 3. **combine**: $\;\tilde h_t = \tanh(W_c\,[c_t ; s_t])$
#
# | name | shape | what it is |
# |---|---|---|
# | `embeddings` | (batch, target, word_width) | the $E y_{t-1}$ of all steps |
# | `state` | (layers, batch, hidden) | the RNN's state before the first step |
# | `encoder_states`, `mask` | (batch, source, encoder_width), (batch, source) | the $h_j$, and True for real words |
# | `W_a` | (hidden, encoder_width) | of the general score |
# | `W_c` | (attentional, encoder_width + hidden) | of the attentional state |
# | `rnn` | `nn.GRU`, `batch_first=True`, of one layer or several | its input is as wide as $x_t$ |
# | `feeding` | bool | with or without input feeding |
#
# `rnn(x, state)` takes x of (batch, steps, width of $x_t$) and returns its output, which is the top layer's state of every
# step, (batch, steps, hidden), and the last state of all layers, (layers, batch, hidden). The **top layer** asks.
# Return the attentional states, (batch, target, attentional), and the weights, (batch, target, source). No sentence is
# empty. The check also asks for the gradient through all steps.
#
# **A tiny example.** One layer, everything of width 1, two source words `[1]` and `[3]`, `W_a = [[1]]`, `W_c = [[0.2, 0.4]]`. If the RNN
# steps to $s_1$ = `[0.5]`, the scores are `[0.5, 1.5]`, the weights `[0.2689, 0.7311]`, the context `[2.4621]` and the attentional state
# `tanh(0.2 · 2.4621 + 0.4 · 0.5) = [0.5995]`. With feeding, the second step reads the second embedding with this 0.5995 behind it.


# %% tags=["exercise:05.3"]
def decode(
    embeddings: Float[Tensor, "batch target word_width"],
    state: Float[Tensor, "layers batch hidden"],
    encoder_states: Float[Tensor, "batch source encoder_width"],
    mask: Bool[Tensor, "batch source"],
    W_a: Float[Tensor, "hidden encoder_width"],
    W_c: Float[Tensor, "attentional encoder_width+hidden"],
    rnn: nn.GRU,
    feeding: bool,
) -> tuple[Tensor, Tensor]:
    """(attentional, weights) of all steps of Luong's decoder (2015, section 3, equation 5, section 3.3)."""
    ### BEGIN SOLUTION
    steps, fed = [], embeddings.new_zeros(len(embeddings), 1, len(W_c))  # fed: (batch, 1, attentional)
    for word in embeddings.split(1, dim=1):  # (batch, 1, word_width)
        query, state = rnn(torch.cat([word, fed], dim=-1) if feeding else word, state)
        scores = query @ W_a @ encoder_states.mT  # (batch, 1, source)
        weights = scores.masked_fill(~mask[:, None], -torch.inf).softmax(dim=-1)
        fed = attentional_states(query, encoder_states, weights, W_c)
        steps.append((fed, weights))
    attentional, weights = (torch.cat(each, dim=1) for each in zip(*steps, strict=True))
    return attentional, weights
    ### END SOLUTION


# %% tags=["check:05.3", "nbval-check-output"]
check("05.3", decode)

# %% [markdown]
# <details><summary>Hint 1: one step at a time</summary>
#
# Go through the words with a loop: `embeddings[:, t : t + 1]` is (batch, 1, word_width), a sequence of one step. `rnn` gives
# back an output of (batch, 1, hidden), which is your query, and the state for the next step. The list of three steps
# above is the body of the loop.
#
# </details>
# <details><summary>Hint 2: what goes from step to step</summary>
#
# Two things: the state that `rnn` returned, and the attentional state. The first is handed to `rnn` as its state, the second
# joins the next embedding, behind it, if `feeding` is True. Start the second with zeros of (batch, 1, attentional);
# `len(W_c)` is its width.
#
# </details>
# <details><summary>Hint 3: the look</summary>
#
# Scores: `query @ W_a @ encoder_states.mT`, (batch, 1, source). Padding: `.masked_fill(~mask[:, None], -torch.inf)`. Then
# the softmax over the last axis, and your `attentional_states` from 05.2 for the rest. `torch.cat(list, dim=1)` puts the
# steps together.
#
# </details>

# %% [markdown]
# ## 05.4 · A window that moves: local-p
#
# > **2 points · about 20 minutes · medium ★★☆**
#
# Local attention looks at a window of the source. In its predictive form, local-p, the decoder's state says where the
# middle of the window is (equations 9 and 10 of the paper):
#
# $$p_t = S \cdot \mathrm{sigmoid}\big(v_p^\top \tanh(W_p s_t)\big) \qquad
# a_{tj} = \mathrm{softmax}(e_t)_j \cdot \exp\!\left(-\frac{(j - p_t)^2}{2\sigma^2}\right), \quad \sigma = \frac{D}{2}$$
#
# - $S$ is the number of **real** words of the sentence. Words are counted from 0, and $p_t$ is a real number: don't
#   round it.
# - The window holds the real words with $|j - p_t| \le D$. All others have weight 0, and the softmax runs over the window.
#
# `scores` is (batch, target, source), `states` (batch, target, hidden), `mask` (batch, source), `W_p` (inner, hidden), `v_p`
# (inner,), and `reach` is $D$, an int. Return the weights, (batch, target, source), and the centres $p_t$, (batch, target).
#
# In the paper the Gaussian makes a row sum to less than 1. Some implementations divide by the sum afterwards. The
# check accepts both: it divides every row by its sum before it compares.
#
# **A tiny example.** Five words with equal scores, $p_t$ = 2.4 and $D$ = 2. The window holds the words 1 to 4, each with
# 0.25; the Gaussian leaves `[0, 0.0938, 0.2308, 0.2088, 0.0695]`.


# %% tags=["exercise:05.4"]
def local_weights(
    scores: Float[Tensor, "batch target source"],
    states: Float[Tensor, "batch target hidden"],
    mask: Bool[Tensor, "batch source"],
    W_p: Float[Tensor, "inner hidden"],
    v_p: Float[Tensor, " inner"],
    reach: int,
) -> tuple[Float[Tensor, "batch target source"], Float[Tensor, "batch target"]]:
    """(weights, centre) of local-p attention with D = reach (Luong et al. 2015, equations 9 and 10)."""
    ### BEGIN SOLUTION
    lengths = mask.sum(dim=1, keepdim=True)  # (batch, 1): S
    centre = lengths * torch.sigmoid(torch.tanh(states @ W_p.T) @ v_p)  # (batch, target)
    away = torch.arange(scores.shape[-1], device=scores.device) - centre[..., None]  # (batch, target, source)
    window = (away.abs() <= reach) & mask[:, None]
    weights = scores.masked_fill(~window, -torch.inf).softmax(dim=-1)
    return weights * torch.exp(-(away**2) / (2 * (reach / 2) ** 2)), centre
    ### END SOLUTION


# %% tags=["check:05.4", "nbval-check-output"]
check("05.4", local_weights)

# %% [markdown]
# <details><summary>Hint 1: the centre</summary>
#
# From the inside out: `states @ W_p.T` is (batch, target, inner); after the tanh, `@ v_p` leaves (batch, target). The sigmoid is
# the share of the sentence that lies before the centre. $S$ is `mask.sum(dim=1, keepdim=True)`, (batch, 1).
#
# </details>
# <details><summary>Hint 2: distances instead of slices</summary>
#
# A slice for each row is possible, but its ends are full of traps. Compute the distance of every word from every
# centre: `torch.arange(source) - centre[..., None]` is (batch, target, source). The window is then one comparison, joined with
# the mask by `&`.
#
# </details>
# <details><summary>Hint 3: the weights</summary>
#
# Fill the scores outside the window with `-torch.inf`, take the softmax over the last axis, and multiply by
# `torch.exp(-away**2 / (2 * sigma**2))` with `sigma = reach / 2`. Each window holds at least one real word, so no row is empty.
#
# </details>

# %% [markdown]
# ## 05.5 · Concat is additive
#
# > **1 point · about 10 minutes · medium ★★☆**
#
# You have found the weights of a trained concat score, `W` of (attention, query_width + key_width) and `v` of (attention,), and want to
# use them with the course's `AdditiveScore`, which computes $v^\top\tanh(W_q q + W_k k)$. Return an `AdditiveScore` that
# gives the same scores as concat. It is made with `AdditiveScore(query_width, key_width, attention_width)`, and has three parameters: `query.weight`
# of (attention, query_width), `key.weight` of (attention, key_width) and `v`.
#
# **A tiny example.** `W = [[1, 2, 3]]`, `v = [2]` and `query_width = 1`: the score's `query.weight` becomes `[[1]]`, its `key.weight`
# `[[2, 3]]`, its `v` `[2]`. For the query `[0.5]` and the key `[0.1, -0.2]` both say `2 · tanh(0.5 + 0.2 - 0.6) = 0.1993`.


# %% tags=["exercise:05.5"]
def as_additive(
    W: Float[Tensor, "attention query_width+key_width"], v: Float[Tensor, " attention"], query_width: int
) -> AdditiveScore:
    """An AdditiveScore with the scores of concat: v . tanh(W [s; h])."""
    ### BEGIN SOLUTION
    score = AdditiveScore(query_width, W.shape[1] - query_width, len(v))
    with torch.no_grad():
        score.query.weight.copy_(W[:, :query_width])
        score.key.weight.copy_(W[:, query_width:])
        score.v.copy_(v)
    return score
    ### END SOLUTION


# %% tags=["check:05.5", "nbval-check-output"]
check("05.5", as_additive)

# %% [markdown]
# <details><summary>Hint 1: a product with a concatenation</summary>
#
# $W\,[s ; h]$ multiplies the first columns of $W$ with $s$ and the others with $h$, and adds. So the columns of $W$ are two
# matrices that stand side by side.
#
# </details>
# <details><summary>Hint 2: the three widths</summary>
#
# `query_width` is given, the key has the rest of W's columns, and the attention width is the number of W's rows.
#
# </details>
# <details><summary>Hint 3: writing into a parameter</summary>
#
# `score.query.weight.copy_(values)` writes into the parameter that is there; do it under `with torch.no_grad():`. (Or collect the three
# in a dict and call `score.load_state_dict`.)
#
# </details>

# %% [markdown]
# ## Your points

# %% tags=["summary", "nbval-check-output"]
summary("05")
