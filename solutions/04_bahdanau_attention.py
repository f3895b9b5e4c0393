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
# # 04 · Bahdanau attention: exercises
#
# <!-- badge -->
#
# In the lesson you watched attention work, one sentence at a time in numpy. Now you build the parts that a
# real translator needs: batches of sentences, padding, gradients. Five exercises, 10 points, about 75
# minutes.
#
# **How it works.** Write your answer in place of the line that raises `NotImplementedError`, run the cell,
# then run the check below it. A check tries your function on small random inputs. If something is wrong, it
# shows the smallest input that goes wrong, what you gave and what was expected; very often it recognises the
# mistake and says where to look. You can run it as often as you like. Below each check stands what it prints
# for a right answer; running the cell replaces that by what it says of yours. Under each check wait three hints,
# each stronger than the one before.
#
# **Words we use.** `batch` counts sentences, `source` the words of the sentence that is read, `target` the
# words of the translation. A mask is boolean: **True marks a real word**, False marks padding, which fills up
# the short sentences of a batch. Everything is batch first.

# %% tags=["setup"]
from course_utils import runtime

device = runtime.start("04")

# %%
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from course_utils.checks import check, summary

# %% [markdown]
# ## 04.1 · A masked softmax that never breaks
#
# > **2 points · about 10 minutes · easy ★☆☆**
#
# Attention turns scores into weights. Write the softmax over the **source** words, in which padding takes no
# part:
#
# $$\alpha_{tj} = \frac{m_j \exp e_{tj}}{\sum_k m_k \exp e_{tk}},
# \qquad m_j = 1 \text{ for a real word, } 0 \text{ for padding}$$
#
# `scores` is (batch, target, source). `mask` is (batch, source): one row a sentence, the same for all its
# target words. The weights have the shape of the scores. Four things make the difference between an equation
# and a function that you can train with:
#
# - scores may be large (500, or -500), and no weight may become NaN;
# - a sentence without any real word gets **zeros**, and the gradient stays finite there too;
# - scores in half precision (`torch.float16`) work as well: its largest number is 65504;
# - the scores that you were given stay as they are.
#
# **A tiny example.** Scores `[1, 2, 3]` with the mask `[True, True, False]` give the weights `[0.2689,
# 0.7311, 0]`: the softmax of 1 and 2, as if the third word were not there. With the mask `[False, False,
# False]` they are `[0, 0, 0]`.


# %% tags=["exercise:04.1"]
def masked_softmax(
    scores: Float[Tensor, "batch target source"], mask: Bool[Tensor, "batch source"]
) -> Float[Tensor, "batch target source"]:
    """Weights over the source words: 0 at padding, and each row sums to 1.

    Rows of a sentence without a real word are zeros.
    """
    ### BEGIN SOLUTION
    hidden = ~mask[:, None, :]  # (batch, 1, source): the same for every target word
    lowest = torch.finfo(scores.dtype).min  # finite, so that an empty row does not become 0 / 0
    weights = torch.softmax(scores.masked_fill(hidden, lowest), dim=-1)  # (batch, target, source)
    return weights.masked_fill(hidden, 0.0)  # the empty rows, which are even until here
    ### END SOLUTION


# %% tags=["check:04.1", "nbval-check-output"]
check("04.1", masked_softmax)

# %% [markdown]
# <details><summary>Hint 1: the shapes</summary>
#
# The mask has no target axis, and it needs one of size 1 before it can meet the scores. `mask[:, None, :]` is
# (batch, 1, source), and PyTorch repeats it for all target words.
#
# </details>
# <details><summary>Hint 2: before the softmax</summary>
#
# A hidden word needs a score so low that its exponential is 0. `scores.masked_fill(condition, value)` returns
# a new tensor with `value` where the condition is True. `torch.softmax` already subtracts the largest score,
# so large scores are no trouble. The value `-1e9` does not fit into half precision;
# `torch.finfo(scores.dtype).min` fits into every dtype.
#
# </details>
# <details><summary>Hint 3: the empty row</summary>
#
# With `-inf` everywhere, an empty row divides 0 by 0. With the lowest finite number everywhere, it comes out
# even: every word gets the same weight. Fill the hidden words with 0 once more, after the softmax. For all
# other rows that changes nothing.
#
# </details>

# %% [markdown]
# ## 04.2 · Additive scores for a whole batch
#
# > **2 points · about 15 minutes · medium ★★☆**
#
# In the lesson one decoder state was scored against one sentence. Now every sentence of a batch has several
# queries, and each query meets every source word of *its* sentence:
#
# $$e_{tj} = v^\top \tanh(W_q\, q_t + W_k\, k_j)$$
#
# | name | shape | what it is |
# |---|---|---|
# | `queries` | (batch, target, query_width) | the states that ask |
# | `keys` | (batch, source, key_width) | the encoder states that are asked |
# | `W_q` | (attention, query_width) | the lesson's $W_s$ |
# | `W_k` | (attention, key_width) | the lesson's $W_h$ |
# | `v` | (attention,) | turns the hidden layer into one number |
#
# Return the **scores**, (batch, target, source), before any softmax. The three widths differ from one
# another. Loops are allowed, but can you do without?
#
# **A tiny example.** One query `[1, 0]`, three keys of width 1: `[1]`, `[0]`, `[-2]`. With `W_q = [[1, 0],
# [0, 1]]`, `W_k = [[1], [-1]]` and `v = [1, 2]`, the first score is `1 · tanh(1 + 1) + 2 · tanh(0 - 1) =
# 0.9640 - 1.5232 = -0.5592`, and all three are `[-0.5592, 0.7616, 1.1665]`.


# %% tags=["exercise:04.2"]
def additive_scores(
    queries: Float[Tensor, "batch target query_width"],
    keys: Float[Tensor, "batch source key_width"],
    W_q: Float[Tensor, "attention query_width"],
    W_k: Float[Tensor, "attention key_width"],
    v: Float[Tensor, " attention"],
) -> Float[Tensor, "batch target source"]:
    """The additive score of every query with every key of its sentence (Bahdanau et al. 2015, A.1.2)."""
    ### BEGIN SOLUTION
    asked = (queries @ W_q.T)[:, :, None]  # (batch, target, 1, attention)
    offered = (keys @ W_k.T)[:, None, :]  # (batch, 1, source, attention)
    return torch.tanh(asked + offered) @ v  # (batch, target, source)
    ### END SOLUTION


# %% tags=["check:04.2", "nbval-check-output"]
check("04.2", additive_scores)

# %% [markdown]
# <details><summary>Hint 1: project first</summary>
#
# The two products do not need each other: project all queries, project all keys, and only then let them meet.
# The queries stand on the left, so the matrix is transposed: `queries @ W_q.T` is (batch, target, attention).
#
# </details>
# <details><summary>Hint 2: let every query meet every key</summary>
#
# The sum has one number for each target word, each source word and each hidden unit: (batch, target, source,
# attention). Give the projected queries a source axis of size 1, and the projected keys a target axis of
# size 1. The addition repeats both.
#
# </details>
# <details><summary>Hint 3: almost the code</summary>
#
# `asked[:, :, None]` is (batch, target, 1, attention), `offered[:, None]` is (batch, 1, source, attention).
# Add, apply `torch.tanh`, and multiply with `v`: `x @ v` sums over the last axis.
#
# </details>

# %% [markdown]
# ## 04.3 · The context of a bidirectional encoder
#
# > **1 point · about 15 minutes · medium ★★☆**
#
# The encoder reads each sentence twice. The forward GRU leaves its states in the order of the sentence. The
# backward GRU starts at the **last real word** and leaves its states in the order in which *it* read,
# followed by padding:
#
# | | entry 0 | entry 1 | entry 2 | entry 3 |
# |---|---|---|---|---|
# | sentence of 3 words, `mask` | True | True | True | False |
# | `forward_states` | word 1 | word 2 | word 3 | padding |
# | `backward_states` | word 3 | word 2 | word 1 | padding |
#
# Put the backward states into sentence order, join the two directions word by word, and make the contexts:
#
# $$h_j = [\overrightarrow{h}_j ; \overleftarrow{h}_j], \qquad
# \alpha_t = \text{masked softmax}(e_t), \qquad c_t = \sum_j \alpha_{tj} h_j$$
#
# `scores` is (batch, target, source), both kinds of states are (batch, source, hidden). Return the contexts,
# (batch, target, 2 · hidden), and the weights, (batch, target, source). Every sentence has at least one real
# word. (`nn.GRU` with `bidirectional=True` and packed sentences does the turning for you; here you see what
# it takes.)
#
# **A tiny example.** Two words, states of width 1: forward `[1], [2]`, backward as read `[10], [20]`. So
# $h_1$ is `[1, 20]` and $h_2$ is `[2, 10]`. The scores `[0, 1.0986]` give the weights `[0.25, 0.75]` and the
# context `0.25 · [1, 20] + 0.75 · [2, 10] = [1.75, 12.5]`.


# %% tags=["exercise:04.3"]
def bidirectional_context(
    scores: Float[Tensor, "batch target source"],
    forward_states: Float[Tensor, "batch source hidden"],
    backward_states: Float[Tensor, "batch source hidden"],
    mask: Bool[Tensor, "batch source"],
) -> tuple[Float[Tensor, "batch target 2*hidden"], Float[Tensor, "batch target source"]]:
    """(context, weights) over states of both directions; backward_states come last real word first."""
    ### BEGIN SOLUTION
    lengths = mask.sum(dim=1, keepdim=True)  # (batch, 1)
    entry = (
        lengths - 1 - torch.arange(mask.shape[1], device=mask.device)
    )  # (batch, source): each word's place
    sentence = torch.arange(len(mask), device=mask.device)[:, None]  # (batch, 1)
    backward_states = backward_states[sentence, entry.clamp(min=0)]  # (batch, source, hidden)

    encoder_states = torch.cat([forward_states, backward_states], dim=-1)  # (batch, source, 2 * hidden)
    weights = masked_softmax(scores, mask)  # (batch, target, source)
    return weights @ encoder_states, weights
    ### END SOLUTION


# %% tags=["check:04.3", "nbval-check-output"]
check("04.3", bidirectional_context)

# %% [markdown]
# <details><summary>Hint 1: three steps</summary>
#
# Turn the backward states round, join them with the forward states along the last axis (`torch.cat`),
# multiply with the weights. Your `masked_softmax` from 04.1 makes the weights; since no sentence is empty
# here, a softmax with `-inf` at the padding does as well.
#
# </details>
# <details><summary>Hint 2: turn round the words, not the padding</summary>
#
# `backward_states.flip(1)` would bring the padding to the front. In a sentence of n words, the state of word
# j (counted from 0) stands at entry n - 1 - j, and n is `mask.sum(dim=1)`. For padding that number is
# negative; any entry will do there, because its weight is 0.
#
# </details>
# <details><summary>Hint 3: almost the code</summary>
#
# `entry = (lengths - 1 - torch.arange(source)).clamp(min=0)` is (batch, source). A loop over the sentences
# may then pick `backward_states[b, entry[b]]` and stack the results; or index all at once with
# `backward_states[torch.arange(batch)[:, None], entry]`. The context is `weights @ encoder_states`.
#
# </details>

# %% [markdown]
# ## 04.4 · One step of the decoder, in the right order
#
# > **3 points · about 20 minutes · hard ★★★**
#
# Now the decoder takes one step. It writes word $t$ and comes from the state $s_{t-1}$:
#
# 1. **ask** with the old state: $\;e_{tj} = v^\top \tanh(W_q\, s_{t-1} + W_k\, h_j)$
# 2. **weigh and sum**: $\;\alpha_t = \text{masked softmax}(e_t), \quad c_t = \sum_j \alpha_{tj} h_j$
# 3. **move on**: $\;s_t = \mathrm{GRU}([E y_{t-1} ; c_t],\; s_{t-1})$
#
# | name | shape | what it is |
# |---|---|---|
# | `state` | (batch, hidden) | $s_{t-1}$ |
# | `embedding` | (batch, word_width) | $E y_{t-1}$, the embedding of the previous word |
# | `encoder_states` | (batch, source, encoder_width) | $h_1 \dots h_S$ |
# | `mask` | (batch, source) | True for the real words |
# | `W_q`, `W_k`, `v` | as in 04.2 | the parameters of the score |
# | `cell` | `nn.GRUCell` | its input is the embedding, then the context: word_width + encoder_width |
#
# Return the new state, (batch, hidden), the context, (batch, encoder_width), and the weights, (batch,
# source). There is a single query, so nothing that you return has a target axis. The check takes three steps
# in a row, each from the state that you returned, and then asks for the gradient through all of them.
#
# **A tiny example.** State `[0.5]`, encoder states `[1, 0]` and `[0, 1]`, `W_q = [[1]]`, `W_k = [[1, -1]]`,
# `v = [2]`. The scores are `2 · tanh(0.5 + 1) = 1.8103` and `2 · tanh(0.5 - 1) = -0.9242`, the weights
# `[0.9390, 0.0610]`, and so is the context: `[0.9390, 0.0610]`. The cell then gets the embedding with these
# two numbers behind it.


# %% tags=["exercise:04.4"]
def decoder_step(
    state: Float[Tensor, "batch hidden"],
    embedding: Float[Tensor, "batch word_width"],
    encoder_states: Float[Tensor, "batch source encoder_width"],
    mask: Bool[Tensor, "batch source"],
    W_q: Float[Tensor, "attention hidden"],
    W_k: Float[Tensor, "attention encoder_width"],
    v: Float[Tensor, " attention"],
    cell: nn.GRUCell,
) -> tuple[Tensor, Tensor, Tensor]:
    """(new_state, context, weights) of one step of Bahdanau's decoder (2015, section 3.1 and A.1.2)."""
    ### BEGIN SOLUTION
    scores = additive_scores(state[:, None], encoder_states, W_q, W_k, v)  # (batch, 1, source)
    weights = masked_softmax(scores, mask)  # (batch, 1, source)
    context = (weights @ encoder_states).squeeze(1)  # (batch, encoder_width)
    new_state = cell(torch.cat([embedding, context], dim=-1), state)  # (batch, hidden)
    return new_state, context, weights.squeeze(1)
    ### END SOLUTION


# %% tags=["check:04.4", "nbval-check-output"]
check("04.4", decoder_step)

# %% [markdown]
# <details><summary>Hint 1: you have most of it already</summary>
#
# Step 1 is 04.2 with a single query for each sentence, and step 2 is 04.1 and a product. What is left is the
# cell. Write the three steps in the order of the list; a GRU that runs before the attention belongs to
# another model.
#
# </details>
# <details><summary>Hint 2: one query has a target axis too</summary>
#
# `additive_scores` wants queries of (batch, target, query_width). `state[:, None]` is (batch, 1, hidden).
# Scores and weights then are (batch, 1, source), and `weights @ encoder_states` is (batch, 1, encoder_width).
# `squeeze(1)` takes the axis out again.
#
# </details>
# <details><summary>Hint 3: the cell</summary>
#
# `cell(input, state)` returns the new state. Its input is `torch.cat([embedding, context], dim=-1)`, in this
# order, and its state is the old one, the very state that has just asked.
#
# </details>

# %% [markdown]
# ## 04.5 · Alignment error rate
#
# > **2 points · about 15 minutes · medium ★★☆**
#
# How well do attention weights agree with what people say translates what? People mark two kinds of links
# between a source word and a target word: **sure** ones, which an aligner has to find, and **possible** ones,
# which it may find or not. With the links $A$ that it proposes, the sure links $S$ and the possible links $P$
# (every sure link is possible as well: $S \subseteq P$), Och and Ney
# ([2003](https://aclanthology.org/J03-1002/)) define
#
# $$\mathrm{AER} = 1 - \frac{|A \cap S| + |A \cap P|}{|A| + |S|}$$
#
# Your function gets a corpus: three lists with one set for each sentence. A link is a pair (source index,
# target index). As in our corpora, `possible` holds only the *further* links, so that $P$ is `sure |
# possible`. Count over the **whole corpus**: add up the four numbers of all sentences, and divide once. A
# corpus with neither links nor sure links has the rate 0.0.
#
# **A tiny example.** *la maison bleue / the blue house*, one sentence. Sure: la-the, maison-house,
# bleue-blue, which is `{(0, 0), (1, 2), (2, 1)}`. Possible: la-house, `{(0, 2)}`. Someone proposes `{(0, 0),
# (0, 2), (1, 2)}`: two of the three are sure, all three are possible, and *blue* was missed:
# AER = 1 - (2 + 3) / (3 + 3) = 0.1667.

# %% tags=["exercise:04.5"]
Links = list[set[tuple[int, int]]]  # one set of (source index, target index) a sentence


def alignment_error_rate(links: Links, sure: Links, possible: Links) -> float:
    """The alignment error rate of a corpus, from 0 (best) to 1 (Och and Ney 2003)."""
    ### BEGIN SOLUTION
    hits = total = 0
    for proposed, certain, further in zip(links, sure, possible, strict=True):
        hits += len(proposed & certain) + len(proposed & (certain | further))
        total += len(proposed) + len(certain)
    return 1 - hits / total if total else 0.0
    ### END SOLUTION


# %% tags=["check:04.5", "nbval-check-output"]
check("04.5", alignment_error_rate)

# %% [markdown]
# <details><summary>Hint 1: sets do the counting</summary>
#
# `a & b` is the intersection of two sets, `a | b` their union, `len` their size. Neither changes `a`, but `a
# |= b` does.
#
# </details>
# <details><summary>Hint 2: one sentence first</summary>
#
# For one sentence, four numbers are enough: `len(a & s)`, `len(a & (s | p))`, `len(a)` and `len(s)`. Compute
# them for the tiny example by hand: 2, 3, 3, 3.
#
# </details>
# <details><summary>Hint 3: a corpus</summary>
#
# Go through the three lists together with `zip`, and keep two sums: one for the numerator, one for the
# denominator. Divide after the loop. Do not join the sets of different sentences: (0, 0) means another pair
# of words in each of them.
#
# </details>

# %% [markdown]
# ## Your points

# %% tags=["summary", "nbval-check-output"]
summary("04")
