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
# # 08 · After the Transformer: exercises
#
# <!-- badge -->
#
# The lesson trained three models on one text and looked at four ways round the square of the length. Now you
# build what they stand on: the corruptions that BERT and T5 learn from, GPT's loss, the masks, attention that
# never sees all keys at once, and attention with a state. Six exercises, 10 points, about 100 minutes.
#
# **How it works.** Write your answer in place of the line that raises `NotImplementedError`, run the cell,
# then run the check below it. A check tries your function on small random inputs. If something is wrong, it
# shows the smallest input that goes wrong, what you gave and what was expected; very often it recognises the
# mistake and says where to look. You can run it as often as you like. Below each check stands what it prints
# for a right answer; running the cell replaces that by what it says of yours. Under each check wait three hints,
# each stronger than the one before.
#
# **Words we use.** `batch` counts sentences, `length` their words; `target` are the words that ask, `source`
# those that are asked. Words are numbers (`torch.int64`). A mask is boolean: **True means may attend**, or a
# real word. Everything is batch first.

# %% tags=["setup"]
from course_utils import runtime

device = runtime.start("08")

# %%
import collections.abc

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_utils.checks import check, summary

# %% [markdown]
# ## 08.1 · BERT's corruption
#
# > **2 points · about 20 minutes · medium ★★☆**
#
# BERT learns from sentences with gaps ([Devlin et al. 2019](https://arxiv.org/abs/1810.04805), section 3.1).
# Each word is **chosen** with the probability `rate`, on its own. Of the chosen words,
#
# - 80% become `[MASK]`,
# - 10% become another word, drawn from `words`, all with the same chance (the old one may come up again),
# - 10% stay as they are.
#
# | name | shape | what it is |
# |---|---|---|
# | `tokens` | (batch, length) | the sentences, with special words (beginning, end, padding) among them |
# | `words` | (words,) | the numbers of the ordinary words; whatever else stands in `tokens` is special |
# | `mask_id` | an int | the number of `[MASK]`, which is not in `words` |
# | `rate` | a float | the share of the ordinary words that is chosen |
# | `generator` | `torch.Generator` | every random number comes out of it |
#
# Return the corrupted tokens and the labels, both (batch, length). The labels hold the original word at **every
# chosen place**, also where it stayed, and -100 everywhere else, the number that `F.cross_entropy` ignores.
# Special words are never chosen. Equal generators give equal results, and the tokens that you were given stay
# as they are.
#
# **A tiny example.** Let 1 be the beginning and 2 the end, `words = [3, 4, 5]`, `mask_id = 9` and the tokens `[1, 3, 5, 4, 2]`. If
# the words 3 and 4 are chosen, and the draws say *[MASK]* for the first and *stay* for the second, the corrupted
# tokens are `[1, 9, 5, 4, 2]`, and the labels `[-100, 3, -100, 4, -100]`. With a rate of 0.0 the tokens come back as
# they were, and all labels are -100.


# %% tags=["exercise:08.1"]
def corrupt_words(
    tokens: Int[Tensor, "batch length"],
    words: Int[Tensor, " words"],
    mask_id: int,
    rate: float,
    generator: torch.Generator,
) -> tuple[Int[Tensor, "batch length"], Int[Tensor, "batch length"]]:
    """(corrupted, labels) for a masked language model (Devlin et al. 2019, section 3.1)."""
    ### BEGIN SOLUTION
    chosen = torch.isin(tokens, words) & (torch.rand(tokens.shape, generator=generator) < rate)
    kind = torch.rand(tokens.shape, generator=generator)  # one number decides what becomes of a chosen word
    others = words[torch.randint(len(words), tokens.shape, generator=generator)]
    corrupted = torch.where(chosen & (kind < 0.9), others, tokens)
    corrupted = torch.where(chosen & (kind < 0.8), mask_id, corrupted)
    return corrupted, torch.where(chosen, tokens, -100)
    ### END SOLUTION


# %% tags=["check:08.1", "nbval-check-output"]
check("08.1", corrupt_words)

# %% [markdown]
# <details><summary>Hint 1: three questions, in this order</summary>
#
# May this word be chosen at all (`torch.isin(tokens, words)`)? Is it chosen? What becomes of it? The labels
# depend on the first two only.
#
# </details>
# <details><summary>Hint 2: how to draw</summary>
#
# `torch.rand(tokens.shape, generator=generator) < rate` is True with the probability `rate`, word by word. For
# the kind, draw one more number for each word: below 0.8, between 0.8 and 0.9, above. Do not draw the 10% from
# what is left after the 80%, or take half of it then.
#
# </details>
# <details><summary>Hint 3: almost the code</summary>
#
# `words[torch.randint(len(words), tokens.shape, generator=generator)]` has a random word for every place.
# `torch.where(condition, a, b)` takes a where the condition is True and b elsewhere, and makes a new tensor; a and b
# may be numbers such as `mask_id` and -100.
#
# </details>

# %% [markdown]
# ## 08.2 · The causal loss
#
# > **2 points · about 10 minutes · easy ★☆☆**
#
# GPT-2 reads a sentence and predicts, at every place, the word that comes next. Its logits at place $t$ have seen
# the words $0 \dots t$, so they are compared with word $t + 1$:
#
# $$L = \frac{1}{N} \sum_{b} \sum_{t} -\log p_\theta(x_{b,t+1} \mid x_{b,0} \dots x_{b,t})$$
#
# where the sums run over all pairs of neighbours that are both real words, and $N$ is the number of these pairs in the whole
# batch. `logits` is (batch, length, vocabulary), `tokens` and `mask` are (batch, length); the mask is True for real
# words, which stand at the front of each row. Return one number, a tensor without axes. The word with the number
# 0 is a word like any other here, and the logits may be large.
#
# **A tiny example.** A vocabulary of 2 and the sentence `[1, 0, 1]`, all real. Logits `[0, 0]`, `[0, 2]`, `[7,
# 7]`. The first predict word 0 with the probability 0.5: a loss of 0.6931. The second predict word 1 with
# $e^2 / (1 + e^2) = 0.8808$: 0.1269. The third have nothing to predict. $L = (0.6931 + 0.1269) / 2 = 0.4100$.


# %% tags=["exercise:08.2"]
def causal_loss(
    logits: Float[Tensor, "batch length vocabulary"],
    tokens: Int[Tensor, "batch length"],
    mask: Bool[Tensor, "batch length"],
) -> Float[Tensor, ""]:
    """Mean cross-entropy, in nats a word, of predicting each real word from those before it."""
    ### BEGIN SOLUTION
    expected = tokens[:, 1:].masked_fill(~mask[:, 1:], -100)  # (batch, length - 1)
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), expected.flatten(), ignore_index=-100)
    ### END SOLUTION


# %% tags=["check:08.2", "nbval-check-output"]
check("08.2", causal_loss)

# %% [markdown]
# <details><summary>Hint 1: which logits meet which words</summary>
#
# A row of 3 words has 2 predictions. The logits lose their last place, the words their first. Write the pairs of
# the tiny example down before you write code.
#
# </details>
# <details><summary>Hint 2: padding</summary>
#
# A prediction counts if the word that is *predicted* is real. Put -100 there where it is not, a number that
# `F.cross_entropy` leaves out of its mean.
#
# </details>
# <details><summary>Hint 3: almost the code</summary>
#
# `F.cross_entropy` wants (places, vocabulary) and (places,). `logits[:, :-1].flatten(0, 1)` and
# `tokens[:, 1:].flatten()` are that; flatten after you have cut, so that no row runs over into the next.
#
# </details>

# %% [markdown]
# ## 08.3 · T5's span corruption
#
# > **2 points · about 20 minutes · medium ★★☆**
#
# T5 hides **spans**, runs of neighbouring words ([Raffel et al. 2020](https://arxiv.org/abs/1910.10683), section
# 3.1.4). In the source each span is replaced by one **sentinel**, a word that says nothing but *gap number k*.
# The target lists the gaps: each sentinel, and behind it the words that it stands for.
#
# | name | shape | what it is |
# |---|---|---|
# | `tokens` | (length,) | one sentence |
# | `hidden` | (length,) | True for the words to hide; neighbours that are both hidden belong to one span |
# | `sentinels` | (sentinels,) | what to call the spans, from left to right; there are enough of them |
# | `start`, `end` | ints | the words for the beginning (of what the decoder reads) and the end |
#
# Return three tensors without a batch axis:
#
# - `source`: the sentence with one sentinel for each span, then `end`;
# - `target_in`, which the decoder reads: `start`, then the target without its last number;
# - `target_out`, which it is to write: for each span its sentinel and its words, then `end`.
#
# (The paper closes the target with one more sentinel. `end` does that work here.)
#
# **A tiny example.** Tokens `[5, 6, 7, 8, 9]`, hidden are the second, the third and the last word: `[False, True,
# True, False, True]`. Sentinels `[99, 98, 97]`, start 0, end 1. Source `[5, 99, 8, 98, 1]`, `target_out` `[99, 6, 7, 98, 9,
# 1]`, `target_in` `[0, 99, 6, 7, 98, 9]`.


# %% tags=["exercise:08.3"]
def corrupt_spans(
    tokens: Int[Tensor, " length"],
    hidden: Bool[Tensor, " length"],
    sentinels: Int[Tensor, " sentinels"],
    start: int,
    end: int,
) -> tuple[Int[Tensor, " source"], Int[Tensor, " target"], Int[Tensor, " target"]]:
    """(source, target_in, target_out) of T5's span corruption (Raffel et al. 2020, section 3.1.4)."""
    ### BEGIN SOLUTION
    source, target = [], []
    spans, inside = 0, False
    for word, hide in zip(tokens.tolist(), hidden.tolist(), strict=True):
        if hide and not inside:  # a span begins
            source.append(int(sentinels[spans]))
            target.append(int(sentinels[spans]))
            spans += 1
        (target if hide else source).append(word)
        inside = hide
    parts = ([*source, end], [start, *target], [*target, end])
    return tuple(torch.tensor(part, dtype=tokens.dtype) for part in parts)
    ### END SOLUTION


# %% tags=["check:08.3", "nbval-check-output"]
check("08.3", corrupt_spans)

# %% [markdown]
# <details><summary>Hint 1: two lists</summary>
#
# Go through the sentence once. Each word goes into one of two lists, the source or the target. Only where a span
# *begins* does something go into both: its sentinel.
#
# </details>
# <details><summary>Hint 2: where a span begins</summary>
#
# At a hidden word whose neighbour on the left is not hidden, or that has none. Keep in a variable whether the word
# before was hidden, and count the spans so far: `sentinels[spans]` is next.
#
# </details>
# <details><summary>Hint 3: the shift</summary>
#
# With the list `target` before the end is added: `target_out = [*target, end]` and `target_in = [start,
# *target]`. Both have the same length. Turn each into a tensor with `torch.tensor(part, dtype=tokens.dtype)`.
#
# </details>

# %% [markdown]
# ## 08.4 · One function for four masks
#
# > **1 point · about 10 minutes · easy ★☆☆**
#
# BERT, GPT-2, T5 and their relatives share one block. What differs is who may see whom. Write the masks:
#
# | `kind` | word $t$ may see word $s$ if | who uses it |
# |---|---|---|
# | `"both"` | always | BERT, T5's encoder |
# | `"causal"` | $s \le t$ | GPT-2, T5's decoder |
# | `"prefix"` | $s \le t$, or $s$ is one of the first `size` words | a prefix language model |
# | `"window"` | $s$ is $t$ or one of the `size` - 1 words before it | models for long texts |
#
# In each of them only real words may be seen: `real` is (batch, length), True for real words. Return a boolean
# tensor of (batch, length, length): `mask[b, t, s]` says whether word $t$ of sentence $b$ may see word $s$. What the
# rows of padding hold is up to you, since nobody reads their outputs. `size` plays no part in `"both"` and `"causal"`.
#
# **A tiny example.** Four real words. With `"window"` and size 2, the last row is `[False, False, True, True]`; with
# `"prefix"` and size 2, the first row is `[True, True, False, False]`, and the third `[True, True, True, False]`.


# %% tags=["exercise:08.4"]
def attention_mask(
    kind: str, real: Bool[Tensor, "batch length"], size: int
) -> Bool[Tensor, "batch length length"]:
    """Who may see whom; True = may attend. kind: "both", "causal", "prefix" or "window"."""
    ### BEGIN SOLUTION
    here = torch.arange(real.shape[1], device=real.device)
    t, s = here[:, None], here[None]  # who asks, who is asked
    allowed = {
        "both": (s >= 0) & (t >= 0),
        "causal": s <= t,
        "prefix": (s <= t) | (s < size),
        "window": (s <= t) & (t - s < size),
    }[kind]
    return allowed & real[:, None]  # (batch, length, length)
    ### END SOLUTION


# %% tags=["check:08.4", "nbval-check-output"]
check("08.4", attention_mask)

# %% [markdown]
# <details><summary>Hint 1: two kinds of places</summary>
#
# Give the places two shapes: `t` of (length, 1) for those who ask, and `s` of (1, length) for those who are asked.
# Each condition of the table is then one line: `s <= t` is the whole causal mask.
#
# </details>
# <details><summary>Hint 2: padding</summary>
#
# `real[:, None]` is (batch, 1, length): it lies along the axis of those who are *asked*. Join it with `&`.
#
# </details>
# <details><summary>Hint 3: prefix and window</summary>
#
# The prefix opens something (an *or*): `(s <= t) | (s < size)`. The window closes something (an *and*): the
# distance `t - s` is 0 for the word itself, so `t - s < size`.
#
# </details>

# %% [markdown]
# ## 08.5 · Attention in blocks
#
# > **2 points · about 25 minutes · hard ★★★**
#
# A softmax needs all its scores, or so it seems. The lesson showed how to do without for one query. Now do it for a
# batch, with a mask, so that the gradient passes and no case breaks it. Keys and values arrive in blocks, and each
# block **can be read once**:
#
# $$\text{output}_t = \frac{\sum_s m_s\, e^{q_t \cdot k_s / \sqrt{d}}\; v_s}{\sum_s m_s\, e^{q_t \cdot k_s / \sqrt{d}}}$$
#
# `query` is (batch, target, width). `blocks` is an iterator; each of its items is a triple `(key, value, mask)` of
# (batch, block, width), (batch, block, value) and (batch, block), where the blocks differ in size, and True in the mask
# means that the key may be seen. Return (batch, target, value). Four things to take care of:
#
# - what you keep from block to block must not grow: no list of blocks, no `torch.cat`;
# - scores may be large (their exponentials overflow), in any order;
# - everything in a block may be hidden, also in the first one;
# - a sentence that may see nothing at all gets zeros, and its gradient is not NaN.
#
# **A tiny example.** Width 1, one query `[1]`. First block: one key `[0]` with the value `[4]`. Second block: one key
# `[1.0986]`, which is log 3, with the value `[8]`. After the first block: highest score 0, sum 1, weighted sum 4.
# The second raises the highest score to 1.0986, so what is old shrinks by exp(-1.0986) = 1/3: sum 1/3 + 1, weighted
# sum 4/3 + 8. The output is (28/3) / (4/3) = `[7]`, as the weights 1/4 and 3/4 say.


# %% tags=["exercise:08.5"]
def attention_in_blocks(
    query: Float[Tensor, "batch target width"],
    blocks: collections.abc.Iterator[tuple[Tensor, Tensor, Tensor]],
) -> Float[Tensor, "batch target value"]:
    """Scaled dot-product attention over blocks of (key, value, mask), each read once (Milakov, Gimelshein 2018)."""
    ### BEGIN SOLUTION
    top = query.new_full((*query.shape[:2], 1), -torch.inf)  # (batch, target, 1): the highest score so far
    total, output = 0.0, 0.0  # sums of exponentials, and of values, relative to it
    for key, value, mask in blocks:
        scores = query @ key.mT / query.shape[-1] ** 0.5  # (batch, target, block)
        scores = scores.masked_fill(~mask[:, None], -torch.inf)
        higher = torch.maximum(top, scores.amax(-1, keepdim=True)).detach()
        base = higher.masked_fill(higher == -torch.inf, 0.0)  # nothing seen yet: any finite number will do
        parts = torch.exp(scores - base)  # 0 where hidden
        shrink = torch.exp(top - base)  # at most 1
        total = total * shrink + parts.sum(-1, keepdim=True)
        output = output * shrink + parts @ value
        top = higher
    return output / total.masked_fill(total == 0, 1.0)
    ### END SOLUTION


# %% tags=["check:08.5", "nbval-check-output"]
check("08.5", attention_in_blocks)

# %% [markdown]
# <details><summary>Hint 1: three running numbers</summary>
#
# For each query keep the highest score so far, the sum of exp(score - highest), and the weighted sum of the values with
# the same exponentials. At the end divide the third by the second.
#
# </details>
# <details><summary>Hint 2: when the highest score rises</summary>
#
# The two sums are relative to the *old* highest score. Multiply both by exp(old - new), a number of at most 1, before you add the
# block's share. At the start the old one is -inf, and exp(-inf) = 0 makes the empty sums vanish, which is right.
#
# </details>
# <details><summary>Hint 3: hidden blocks and empty rows</summary>
#
# As long as everything was hidden, the highest score is -inf, and -inf - (-inf) is NaN. Subtract another number there, such as
# 0: `base = higher.masked_fill(higher == -torch.inf, 0.0)`. All exponentials are 0 then. At the end a
# sum of 0 must not divide: `total.masked_fill(total == 0, 1.0)`.
#
# </details>

# %% [markdown]
# ## 08.6 · Linear attention in pieces
#
# > **1 point · about 15 minutes · medium ★★☆**
#
# The lesson wrote linear attention in two ways: all words at once, and word by word with a state. In practice one wants
# both: a text is read in pieces, in parallel inside of a piece, with a state between the pieces. With the features
# $\phi(x) = \mathrm{elu}(x) + 1$,
#
# $$\text{output}_t = \frac{\phi(q_t)^\top \left(M + \sum_{s \le t} \phi(k_s)\, v_s^\top\right)}
# {\phi(q_t)^\top \left(n + \sum_{s \le t} \phi(k_s)\right)}$$
#
# where the sums run over the words of the piece up to $t$, and the state $(M, n)$ holds the same sums over all pieces before.
#
# `query` and `key` are (batch, length, width), `value` is (batch, length, value). `state` is a pair: `memory`, $M$, of (batch,
# width, value), and `total`, $n$, of (batch, width). Return the outputs, (batch, length, value), and the new state, a pair of the same shapes. The check
# reads one sequence in one piece, in several uneven ones and word by word, and wants the same every time.
#
# **A tiny example.** Width 1. Keys `[0]` and `[1]` have the features 1 and 2; values `[10]` and `[40]`; both queries are
# `[0]`, with the feature 1. From a state of zeros, the first output is 10, the second is (1 · 10 + 2 · 40) / (1 + 2) =
# 30. The new state is `memory = [[90]]` and `total = [3]`.


# %% tags=["exercise:08.6"]
def linear_attention(
    query: Float[Tensor, "batch length width"],
    key: Float[Tensor, "batch length width"],
    value: Float[Tensor, "batch length value"],
    state: tuple[Float[Tensor, "batch width value"], Float[Tensor, "batch width"]],
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """(outputs, new state) of causal linear attention on one piece (Katharopoulos et al. 2020, equations 9-12)."""
    ### BEGIN SOLUTION
    memory, total = state
    query, key = F.elu(query) + 1, F.elu(key) + 1
    weights = (query @ key.mT).tril()  # (batch, length, length): of the words of the piece
    above = weights @ value + query @ memory  # (batch, length, value)
    below = weights.sum(-1, keepdim=True) + query @ total[:, :, None]  # (batch, length, 1)
    return above / below, (memory + key.mT @ value, total + key.sum(1))
    ### END SOLUTION


# %% tags=["check:08.6", "nbval-check-output"]
check("08.6", linear_attention)

# %% [markdown]
# <details><summary>Hint 1: word by word is right too</summary>
#
# A loop over the words of the piece passes the check: add $\phi(k_t) v_t^\top$ to the memory and $\phi(k_t)$ to the total, *then*
# read them with $\phi(q_t)$. The new state is what is left after the last word.
#
# </details>
# <details><summary>Hint 2: without a loop</summary>
#
# The products of all queries with all keys of the piece, `query @ key.mT`, are (batch, length, length). With `.tril()` a word
# sees itself and what came before. The share of the state is `query @ memory`.
#
# </details>
# <details><summary>Hint 3: almost the code</summary>
#
# Above the bar: `weights @ value + query @ memory`. Below: `weights.sum(-1, keepdim=True) + query @ total[:, :, None]`. The new
# memory is `memory + key.mT @ value`. Use `+` and not `+=`, so that the state that you were given stays as it is.
#
# </details>

# %% [markdown]
# ## Your points

# %% tags=["summary", "nbval-check-output"]
summary("08")
