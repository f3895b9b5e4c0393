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
# # 03 · The seq2seq bottleneck: exercises
#
# <!-- badge -->
#
# In the lesson an encoder squeezed a sentence into one vector, and a decoder got it out again. Here you build what
# such a model needs around it: what the decoder reads and predicts, a loss and a state that padding cannot change, two
# ways to search for a translation, and the two factors of BLEU. Six exercises, 10 points, about 105 minutes.
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
# the short sentences of a batch at their end. Everything is batch first. Words are numbers; `bos`, `eos` and `pad` are the
# numbers of `<bos>` (begin), `<eos>` (end) and `<pad>`, and the checks choose other numbers than you might expect.

# %% tags=["setup"]
from course_utils import runtime

device = runtime.start("03")

# %%
import math
from collections import Counter
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_utils.checks import check, summary

# %% [markdown]
# ## 03.1 · What the decoder reads, and what it has to predict
#
# > **1 point · about 10 minutes · easy ★☆☆**
#
# With teacher forcing, the decoder reads the right words and predicts, at each place, the one that comes next. So the
# target is needed twice, one step apart: as it is **read**, `<bos> w1 ... wn`, and as it is to be **predicted**,
# `w1 ... wn <eos>`.
#
# `target` is (batch, target): the words of each sentence, then padding; without `<bos>` and without `<eos>`. Return
# `target_in` and `target_out`, both (batch, target + 1). Each row has its own length: its `<eos>` stands right behind its
# own last word, and what is left is padding. (What the decoder reads where there is nothing to predict any more is
# not looked at.) No word has the number `pad`, and a sentence may be empty.
#
# **A tiny example.** `bos` 1, `eos` 2, `pad` 0, and the target `[[7, 8, 0], [5, 6, 9]]`: two words and three. Then
# `target_in` is `[[1, 7, 8, 0], [1, 5, 6, 9]]` and `target_out` is `[[7, 8, 2, 0], [5, 6, 9, 2]]`.


# %% tags=["exercise:03.1"]
def shift_targets(
    target: Int[Tensor, "batch target"], bos: int, eos: int, pad: int
) -> tuple[Int[Tensor, "batch target+1"], Int[Tensor, "batch target+1"]]:
    """(target_in, target_out): what the decoder reads, and one step ahead what it has to predict."""
    ### BEGIN SOLUTION
    begin = target.new_full((len(target), 1), bos)  # (batch, 1)
    space = target.new_full((len(target), 1), pad)
    lengths = (target != pad).sum(dim=1, keepdim=True)  # (batch, 1): the place of <eos>
    target_in = torch.cat([begin, target], dim=1)  # (batch, target + 1)
    target_out = torch.cat([target, space], dim=1).scatter(1, lengths, eos)  # (batch, target + 1)
    return target_in, target_out
    ### END SOLUTION


# %% tags=["check:03.1", "nbval-check-output"]
check("03.1", shift_targets)

# %% [markdown]
# <details><summary>Hint 1: which of the two is easy</summary>
#
# `target_in` is a column of `bos` in front of the target: `torch.cat` along the axis of the words.
# `target.new_full((batch, 1), bos)` makes such a column, of the same dtype and on the same device.
#
# </details>
# <details><summary>Hint 2: the end of each row</summary>
#
# For `target_out`, put a column of `pad` behind the target, so that every row has room. A row with n words needs its
# `<eos>` at place n, counted from 0, and n is `(target != pad).sum(dim=1)`.
#
# </details>
# <details><summary>Hint 3: almost the code</summary>
#
# Either loop over the rows, `target_out[row, n] = eos`, or write all at once: `tensor.scatter(1, places, eos)` with places
# of shape (batch, 1), or `tensor[torch.arange(batch), places] = eos` on the tensor that `cat` made.
#
# </details>

# %% [markdown]
# ## 03.2 · A loss that padding cannot change
#
# > **2 points · about 15 minutes · medium ★★☆**
#
# The loss is the mean, over all **real** target words of the batch, of $-\log p$ of the right word (in nats, the natural
# logarithm):
#
# $$L = \frac{\sum_{b,t} m_{bt}\,\bigl(-\log p_{bt}[y_{bt}]\bigr)}{\sum_{b,t} m_{bt}},
# \qquad p_{bt} = \mathrm{softmax}(\text{logits}_{bt}),
# \qquad m_{bt} = 1 \text{ for a real word, } 0 \text{ for padding}$$
#
# `logits` is (batch, target, vocabulary), `target` holds the numbers of the words to be predicted, (batch, target), and
# `mask` is True for the real ones. Return a tensor without axes, so that `loss.backward()` works.
#
# - The mask decides what is padding. At padding, `target` holds the number of some word, and 0 is a word like any other.
# - Every real word counts the same, in a short sentence and in a long one.
# - Logits may be as large as 300, or as small as -300: no infinity, no NaN.
#
# **A tiny example.** Three places, three words: logits `[2, 0, 0]`, `[2, 0, 0]`, `[0, 0, 0]`, target `[0, 0, 1]`, mask
# `[True, True, False]`. The first two cost $\log(e^2 + 2) - 2 = 0.2395$ each, and so the loss is 0.2395. With the padding
# it would be 0.5259; zeroed at the padding and divided by three, 0.1597.


# %% tags=["exercise:03.2"]
def padded_loss(
    logits: Float[Tensor, "batch target vocabulary"],
    target: Int[Tensor, "batch target"],
    mask: Bool[Tensor, "batch target"],
) -> Float[Tensor, ""]:
    """The mean cross-entropy of the real words, in nats a word."""
    ### BEGIN SOLUTION
    log_probabilities = logits.log_softmax(dim=-1)  # (batch, target, vocabulary)
    of_target = log_probabilities.gather(2, target[:, :, None]).squeeze(2)  # (batch, target)
    return -(of_target * mask).sum() / mask.sum()
    ### END SOLUTION


# %% tags=["check:03.2", "nbval-check-output"]
check("03.2", padded_loss)

# %% [markdown]
# <details><summary>Hint 1: one number a word first</summary>
#
# Compute the loss of every place, (batch, target), padding included, and print it beside the mask. What is left is a mean
# over some of the places.
#
# </details>
# <details><summary>Hint 2: never leave the logarithms</summary>
#
# `logits.log_softmax(dim=-1)` gives the logarithms of the probabilities without computing a probability that might be
# too small for float32. `x.gather(2, target[:, :, None])` picks one entry of the last axis at each place.
#
# </details>
# <details><summary>Hint 3: or all in one</summary>
#
# `logits[mask]` is (real words, vocabulary) and `target[mask]` is (real words,). `nn.functional.cross_entropy` of these two is
# the answer: it applies the log-softmax itself, and its mean is over what it gets.
#
# </details>

# %% [markdown]
# ## 03.3 · A state that padding cannot change
#
# > **2 points · about 15 minutes · medium ★★☆**
#
# The encoder's GRU reads a batch of padded sentences from the first word to the last. Return, for each row, the state
# **after its own last real word**: (batch, hidden).
#
# `embedded` is (batch, source, width), and at padding it holds numbers like any other. `mask` is (batch, source). `gru` is an
# `nn.GRU` of one layer with `batch_first=True`: `gru(x)` returns all states, (batch, source, hidden), and the last one,
# (1, batch, hidden). Rows come in any order, a batch may have a single row, and every sentence has at least one word. The check also
# asks for the gradient: none may arrive at padding.
#
# **A tiny example.** Take a GRU of width 1 whose weights are all 0, except the candidate's for the input, which is 1. Its
# gates then are all 0.5, and $h_t = 0.5 \tanh(x_t) + 0.5\,h_{t-1}$. For the sentence `1, 2`, padded with zeros to four
# places, the states are 0.3808, **0.6724**, 0.3362, 0.1681. The second one is the answer: reading zeros is reading, too.


# %% tags=["exercise:03.3"]
def encoder_state(
    embedded: Float[Tensor, "batch source width"], mask: Bool[Tensor, "batch source"], gru: nn.GRU
) -> Float[Tensor, "batch hidden"]:
    """The state of the GRU after the last real word of each row."""
    ### BEGIN SOLUTION
    states, _ = gru(embedded)  # (batch, source, hidden)
    last = mask.sum(dim=1) - 1  # (batch,): the place of each row's last word
    return states[torch.arange(len(states), device=states.device), last]  # (batch, hidden)
    ### END SOLUTION


# %% tags=["check:03.3", "nbval-check-output"]
check("03.3", encoder_state)

# %% [markdown]
# <details><summary>Hint 1: the state is there already</summary>
#
# A GRU that reads from left to right cannot know what comes later. So the state at the last real word is right in the
# states of the padded batch; only the states behind it are not. Pick it.
#
# </details>
# <details><summary>Hint 2: where it stands</summary>
#
# A sentence with n words has its last one at place n - 1, and n is `mask.sum(dim=1)`. Every row has its own place:
# `states[:, place]` would take all those places in every row.
#
# </details>
# <details><summary>Hint 3: almost the code</summary>
#
# `states[torch.arange(batch), place]` takes one place from each row. Or let PyTorch do it:
# `nn.utils.rnn.pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)` goes into the GRU, whose
# second result then is (1, batch, hidden); `[0]` takes the axis of the layers away and leaves the batch, even if it has one row.
#
# </details>

# %% [markdown]
# ## 03.4 · Greedy decoding, a batch at a time
#
# > **2 points · about 20 minutes · medium ★★☆**
#
# Now the decoder is on its own. You get it as a function: `step(token, state)` reads one word of each row, `token` (batch,), with
# the rows' states, `state` (batch, hidden), and returns the **log-probabilities** of the next word, (batch, vocabulary), and the
# new states, (batch, hidden). It never proposes `<bos>` or `<pad>` (their log-probability is $-\infty$).
#
# Start with `<bos>` and the given state. At each step, every row takes its most probable word and reads it at the next
# one. A row that has written `<eos>` is complete: what follows in it is `<pad>`. Stop as soon as **all** rows are complete, or
# after `max_length` words (`<eos>` is one of them).
#
# Return the words as a tensor of integers, (batch, longest row): without `<bos>`, with each row's `<eos>`.
#
# **A tiny example.** `bos` 1, `eos` 2, `pad` 0. If one row wants to say `7 8 <eos>` and the other `5 <eos>`, the tokens are
# `[[7, 8, 2], [5, 2, 0]]`. With `max_length` 2 they are `[[7, 8], [5, 2]]`.


# %% tags=["exercise:03.4"]
Step = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # (token, state) -> (log-probabilities, state)


def greedy_decode(
    step: Step, state: Float[Tensor, "batch hidden"], bos: int, eos: int, pad: int, max_length: int
) -> Int[Tensor, "batch longest"]:
    """The most probable word at each step, until every row has ended or has max_length words."""
    ### BEGIN SOLUTION
    token = torch.full((len(state),), bos, device=state.device)  # (batch,)
    ended = torch.zeros_like(token, dtype=torch.bool)
    columns = []
    while len(columns) < max_length and not ended.all():
        log_probabilities, state = step(token, state)
        token = log_probabilities.argmax(dim=-1).masked_fill(ended, pad)
        columns.append(token)
        ended = ended | (token == eos)
    return torch.stack(columns, dim=1)  # (batch, longest)
    ### END SOLUTION


# %% tags=["check:03.4", "nbval-check-output"]
check("03.4", greedy_decode)

# %% [markdown]
# <details><summary>Hint 1: what changes from step to step</summary>
#
# Three things: the words that were written last, (batch,); the states; and which rows are complete, a boolean (batch,) that
# begins as all False. Keep the columns in a list and stack them at the end.
#
# </details>
# <details><summary>Hint 2: complete rows</summary>
#
# `argmax(dim=-1)` gives one word a row. Where a row is complete, put `pad` in its place (`masked_fill`, or `torch.where`).
# Then mark the rows that have just written `<eos>`: `ended = ended | (token == eos)`. It does not matter what complete
# rows read on.
#
# </details>
# <details><summary>Hint 3: the loop</summary>
#
# `while len(columns) < max_length and not ended.all():` has both reasons to stop in one line. `torch.stack(columns, dim=1)`
# makes (batch, longest row) out of columns of shape (batch,).
#
# </details>

# %% [markdown]
# ## 03.5 · Beam search with length normalisation
#
# > **2 points · about 30 minutes · hard ★★★**
#
# Greedy search cannot take a word back. Beam search keeps the `width` most probable **beginnings** and lets them
# compete. This time there is one sentence: `state` is (1, hidden), and `step` takes any number of rows, one for each beginning.
#
# 1. There is one beginning at first: no words, the total 0, the given state, and `<bos>` to be read.
# 2. Every beginning is continued by every word. The total of a continuation is the beginning's total plus the word's
#    log-probability. The `width` best continuations are kept, all beginnings together; there may be fewer of them than `width`, and
#    those with $-\infty$ do not count.
# 3. Each beginning that is kept goes on from the state of the beginning **it came from**.
# 4. A continuation by `<eos>` is a complete sentence and goes on no further. Put it aside with its score
#
# $$\text{score} = \frac{\log p}{\text{length}^{\alpha}} \qquad \text{length: the words and the } \langle\text{eos}\rangle$$
#
# Go on until no beginning is left, or `max_length` words are reached (`<eos>` is one of them). You may stop before, when no
# open beginning can win any more; that a sentence has ended is no such reason. Return the best complete sentence: its words with
# the `<eos>`, a tensor of integers (length,), and its score. Only where nothing is complete by `max_length`, return the best of the
# open beginnings, scored in the same way.
#
# (Books differ in what happens to the place of a complete sentence: free again, gone, or occupied. Take what you like, the
# check's cases come out the same.)
#
# **A tiny example.** The words are *a* and *b*. First comes *a* with 0.6 or *b* with 0.4. After *a* the sentence ends with 0.5
# (*a* and *b*: 0.25 each), after *b* with 0.9 (0.05 each). Greedy search says "a `<eos>`", which has the probability 0.30. A beam of 2 keeps both
# words and finds "b `<eos>`" with 0.36. With $\alpha = 1$ its score is $\log 0.36 / 2 = -0.5108$.


# %% tags=["exercise:03.5"]
def beam_search(
    step: Step, state: Float[Tensor, "1 h"], bos: int, eos: int, width: int, max_length: int, alpha: float
) -> tuple[Int[Tensor, " length"], float]:
    """(tokens, score) of the best sentence that a beam of `width` finds; score = log p / length ** alpha."""
    ### BEGIN SOLUTION
    words, token = torch.zeros(1, 0, dtype=torch.long), torch.tensor([bos])  # (beams, length), (beams,)
    totals, complete = torch.zeros(1), []  # (beams,)
    for length in range(1, max_length + 1):
        log_probabilities, state = step(token, state)  # (beams, vocabulary), (beams, hidden)
        candidates = (totals[:, None] + log_probabilities).flatten()  # (beams * vocabulary,)
        totals, index = candidates.topk(min(width, int((candidates > -math.inf).sum())))
        parent, token = index // log_probabilities.shape[1], index % log_probabilities.shape[1]
        words, state = torch.cat([words[parent], token[:, None]], dim=1), state[parent]
        ended = token == eos
        complete += zip((totals[ended] / length**alpha).tolist(), words[ended], strict=True)
        if ended.all():
            break
        words, state, token, totals = words[~ended], state[~ended], token[~ended], totals[~ended]
    complete = complete or [(float(totals[0]) / max_length**alpha, words[0])]
    score, best = max(complete, key=lambda sentence: sentence[0])
    return best, score
    ### END SOLUTION


# %% tags=["check:03.5", "nbval-check-output"]
check("03.5", beam_search)

# %% [markdown]
# <details><summary>Hint 1: what a beginning is</summary>
#
# Its words, its total, its state. Lists of Python objects are quite all right: (total, words, state of shape (1, hidden)), and
# one call of `step` for each. With tensors, the beams are the rows of one call, and the three are rows of three tensors.
#
# </details>
# <details><summary>Hint 2: one topk for all</summary>
#
# `candidates = (totals[:, None] + log_probabilities).flatten()` has an entry for every beginning and every word. `topk` gives values and
# places; a place is `parent * vocabulary + word`, so that `parent = index // vocabulary` and `word = index % vocabulary`. At the
# first step there is one row only, perhaps with fewer candidates than `width`.
#
# </details>
# <details><summary>Hint 3: after topk</summary>
#
# Reorder everything by the parent: `words = torch.cat([words[parent], token[:, None]], 1)` and `state = state[parent]`. Then split: where `token
# == eos`, append (total / length ** alpha, words) to the list of complete sentences; keep the other rows of words, state, token and
# totals. At the end take the maximum of the list by its first entry.
#
# </details>

# %% [markdown]
# ## 03.6 · The two factors of BLEU
#
# > **1 point · about 15 minutes · medium ★★☆**
#
# BLEU multiplies a precision and a penalty. Both guard against a cheap trick, and both are easy to get wrong.
#
# **Clipped precision** of the n-grams (n words in a row): of the candidate's n-grams, the share that the references have, where an n-gram counts at most
# as often as the **single** reference that has most of it:
#
# $$p_n = \frac{\sum_g \min\bigl(\mathrm{count}(g),\ \max_r \mathrm{count}_r(g)\bigr)}{\sum_g \mathrm{count}(g)}$$
#
# **Brevity penalty**: with the candidate's length $c$ and the length $r$ of the reference whose length is **closest** to it (of two that
# are as close, the shorter one), it is 1 if $c \ge r$, and $e^{1 - r/c}$ otherwise.
#
# `candidate` is a list of words, `references` a list of such lists, `n` the length of the n-grams. Return the precision and the
# penalty, two numbers from 0 to 1. A candidate with fewer than `n` words has precision 0, and one without words has
# penalty 0 as well. (BLEU itself is the penalty times the geometric mean of $p_1$ to $p_4$, the counts added up over a whole
# corpus before dividing.)
#
# **A tiny example.** `the the the the the the the` against *the cat is on the mat* and *there is a cat on the mat*: the first reference has two
# *the*, so $p_1$ = 2/7 = 0.2857. The penalty is 1: the second reference is as long. But `the cat` against the first reference alone has $p_1$ =
# 1 and the penalty $e^{1 - 6/2}$ = 0.1353.


# %% tags=["exercise:03.6"]
def bleu_factors(candidate: list[str], references: list[list[str]], n: int) -> tuple[float, float]:
    """(precision, penalty): the clipped n-gram precision and the brevity penalty (Papineni et al. 2002)."""

    ### BEGIN SOLUTION
    def ngrams(words: list[str]) -> Counter:
        return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))

    allowed = Counter()
    for reference in references:
        allowed |= ngrams(reference)  # the larger count of each n-gram
    found = ngrams(candidate)
    precision = (found & allowed).total() / found.total() if found else 0.0  # the smaller count of each

    c = len(candidate)
    r = min((len(reference) for reference in references), key=lambda length: (abs(length - c), length))
    penalty = min(1.0, math.exp(1 - r / c)) if c else 0.0
    return precision, penalty
    ### END SOLUTION


# %% tags=["check:03.6", "nbval-check-output"]
check("03.6", bleu_factors)

# %% [markdown]
# <details><summary>Hint 1: counting</summary>
#
# `Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))` counts the n-grams of a list of words. For an n-gram that it
# does not have, a Counter answers 0.
#
# </details>
# <details><summary>Hint 2: clipping</summary>
#
# For each n-gram of the candidate: the largest of its counts in the references, and of that and the candidate's own count the smaller one.
# Add them up, and divide by the number of the candidate's n-grams, if it has any.
#
# </details>
# <details><summary>Hint 3: the closest length</summary>
#
# `min(lengths, key=lambda length: (abs(length - c), length))` compares by the distance first and takes the shorter one in a tie. Treat `c == 0`
# apart; otherwise the penalty is `min(1.0, math.exp(1 - r / c))`.
#
# </details>

# %% [markdown]
# ## Your points

# %% tags=["summary", "nbval-check-output"]
summary("03")
