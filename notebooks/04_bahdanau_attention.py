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
# # 04 · Bahdanau attention: let the decoder look back
#
# <!-- badge -->
#
# A translator who may look back at the page does not have to remember it. In this lesson a decoder learns to look
# back: for each word that it writes, it decides which words of the source to read. That is attention, as Bahdanau,
# Cho and Bengio introduced it ([2015](https://arxiv.org/abs/1409.0473)).
#
# **What you will be able to do**
#
# - explain why one fixed vector fails on long sentences, and show it with numbers;
# - write additive attention by hand: scores, softmax, weighted sum; first in numpy, then batched with a mask;
# - put the steps of the decoder in the paper's order, and say why the encoder's states have twice the width;
# - train a translator with and without attention under the same budget, and read the difference;
# - measure how far attention weights are word alignments, and where they are not.
#
# **Time**: about 75 minutes, then as long again for the exercises in `exercises/04_bahdanau_attention.ipynb`. The notebook runs
# from top to bottom in about two minutes on two cores. **You need** lesson 03's idea of an encoder and a decoder, and some PyTorch.

# %% tags=["setup"]
from course_utils import runtime

device = runtime.start("04", needs="training the two translators")

# %%
from collections import Counter

import numpy as np
import torch
from torch import nn

from course_utils import corpus, decoding, figures, metrics, probes
from course_utils.claims import claim
from course_utils.corpus import Batches, Vocabulary, grammar
from course_utils.models import AdditiveScore, bahdanau, fixed_vector, masked_softmax
from course_utils.training import train
from course_utils.widgets import attention_explorer

# %% [markdown]
# ## 1 · The text, and the failure in one picture
#
# We translate from French to English. The sentences come from a small hand-written grammar, which gives us two
# things that found text cannot: sentences of any length we ask for, and a *gold alignment* that says which words
# translate which. At the end of the lesson you will see the same on text that people wrote.

# %%
text = grammar.corpus(train=15_000, valid=100, test=800, seed=0, min_length=3, max_length=50).swapped()
for pair in sorted(text.test, key=lambda pair: len(pair.source))[40:800:190]:
    print(corpus.detokenise(pair.source, "fr"), "\n   ", corpus.detokenise(pair.target, "en"))

# %% [markdown]
# The sentences are lower-case words, with the French elisions split off: `l' homme`. Each side gets a vocabulary,
# and the training pairs become batches of sentences of similar length, each with at most 1,000 tokens (both sides and padding counted).

# %%
source_words = Vocabulary.from_sentences(pair.source for pair in text.train)
target_words = Vocabulary.from_sentences(pair.target for pair in text.train)
batches = Batches(text.train, source_words, target_words, max_tokens=1_000, seed=0)
print(f"{len(source_words)} French and {len(target_words)} English words, {len(batches)} batches an epoch")

# %% [markdown]
# Lesson 03's model reads the sentence with a GRU and keeps one vector. The decoder gets that vector at every step,
# and nothing else of the source. The model below has what helps such a model most: it feeds the vector at every step,
# and it reads the source backwards, as [Sutskever et al. (2014)](https://arxiv.org/abs/1409.3215) do, so that the first
# words are the freshest.
#
# > **Predict first.** The vector has 256 numbers, for a sentence of 5 words and for one of 50. How much of its
# > quality on short sentences will the model keep on long ones: nearly all, half, a quarter or less?

# %%
STEPS = runtime.by_scale(class_=650, full=8_000)
runtime.seed(0)
without = fixed_vector(len(source_words), len(target_words)).to(device)
history_without = train(without, batches, steps=STEPS, learning_rate=4e-3, label="fixed vector")
print(f"loss {np.mean(history_without.loss[-20:]):.2f} after {STEPS} steps, {history_without.seconds:.0f} s")

# %% [markdown]
# To see where it fails, we translate unseen sentences, sort them into bins by the length of the source, and compute
# BLEU in each bin. BLEU compares the words and word groups of a translation with those of the reference: 100 is a
# perfect copy. The error bars are 95% intervals from resampling the sentences of the bin (bootstrap).

# %%
BINS = [(5, 10), (11, 20), (21, 30), (31, 39), (40, 50)]  # words of the source, both ends included


def quality(model: nn.Module) -> list[metrics.LengthBin]:
    """BLEU of unseen sentences, by the length of the source."""
    sources = [pair.source for pair in text.test]
    translations = decoding.translate(model, sources, source_words, target_words)
    return metrics.bleu_by_length(
        [translation.tokens for translation in translations],
        [pair.target for pair in text.test],
        [len(source) for source in sources],
        BINS,
        seed=0,
    )


def points(bins: list[metrics.LengthBin]) -> list[tuple[float, float, float, float]]:
    """(middle of the bin, BLEU, lower end, upper end) for the figure."""
    return [((b.low + b.high) / 2, b.score, b.low_ci, b.high_ci) for b in bins]


# %%
quality_without = quality(without)
figures.quality_by_length({"fixed vector": points(quality_without)})

# %%
few, many = (
    next(p.source for p in text.test if low <= len(p.source) <= high) for low, high in (BINS[0], BINS[-1])
)
results = tuple(f"BLEU {each.score:.0f}" for each in (quality_without[0], quality_without[-1]))
figures.bottleneck_diagram(few, many, width=256, results=results)

# %% [markdown]
# Whatever goes in on the left, the decoder sees the same 256 numbers. Two things are wrong. The short sentences are poor already: squeezing a sentence into a vector and getting it out
# again is hard to learn, and this budget is small (with `COURSE_SCALE=full` you can see which bins rise when it trains longer).
# And from there the curve only falls: on the longest sentences less than half of it is left. Nothing in the text explains
# it: the training text has sentences of all these lengths, and long ones use the same words and the same grammar as short
# ones. What does not grow is the vector: each word of a long sentence has to share it with 49 others. A larger vector and
# far more training move the limit (Sutskever et al. keep 8,000 numbers for a sentence, and report no difficulty with long
# ones), but the vector still does not grow with the sentence.
#
# ## 2 · The idea: look again
#
# Keep **all** the encoder's states $h_1 \dots h_S$, one for each source word. Before the decoder writes word $t$, it
# compares its own state with each of them and asks: *how useful are you for what I am about to write?* The answers
# become weights $\alpha_{t1} \dots \alpha_{tS}$ that are positive and sum to 1. Their weighted sum is the **context**,
# a fresh summary of the source made for this one word:
#
# $$e_{tj} = v^\top \tanh(W_s\, s_{t-1} + W_h\, h_j) \qquad
# \alpha_{tj} = \frac{\exp e_{tj}}{\sum_k \exp e_{tk}} \qquad
# c_t = \sum_j \alpha_{tj}\, h_j$$
#
# The paper calls the score $e_{tj}$ an *alignment model*. It is a small network with one hidden layer; because the
# two projections are added before the tanh, people call it **additive** attention. (The paper writes $W_a$ and $U_a$
# for our $W_s$ and $W_h$.) Note the index: the decoder asks
# with $s_{t-1}$, the state it had *before* it writes word $t$ (section 3.1 and appendix A.1.2 of the paper).
#
# A picture to keep: a photocopy of the source page for every word of the translation, each with its own
# highlighting. The picture is good because the page stays whole and only the highlighting changes. It breaks in two
# places: no one marks the words by hand (the highlighting is *learned*, from nothing but translations), and the
# marker is *soft*: it can colour five words a little instead of one word fully.
#
# The next figure draws one step, from the source words at the bottom to the context at the top. Its weights are made up.

# %%
figures.attention_diagram(
    weights=[0.05, 0.80, 0.15], source=["la", "maison", "bleue"], word="house", previous="blue"
)

# %% [markdown]
# ## 3 · One step by hand
#
# Three source words, states of width 2, an attention layer of width 2. Small enough to check with a pencil.

# %%
encoder_states = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])  # (source, hidden): la, maison, bleue
decoder_state = np.array([-0.5, 0.5])  # (hidden,): about to write "house"
W_s = np.array([[1.0, 0.0], [0.0, 1.0]])  # (attention, hidden)
W_h = np.array([[1.0, 0.0], [0.0, 1.0]])  # (attention, hidden)
v = np.array([-1.0, 2.0])  # (attention,)

for word, state in zip(["la", "maison", "bleue"], encoder_states, strict=True):
    hidden = np.tanh(W_s @ decoder_state + W_h @ state)  # (attention,)
    print(f"{word:7} tanh(...) = {hidden.round(3)}   score = {v @ hidden:.3f}")

# %% [markdown]
# Each score is one number for one source word. The softmax turns them into weights. It subtracts the largest
# score first: this changes nothing in the result, since numerator and denominator shrink by the same factor, and
# it keeps `exp` from overflowing.


# %%
def softmax(scores: np.ndarray) -> np.ndarray:
    """Weights that sum to 1, from scores of any size. (source,) -> (source,)"""
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum()


def attend_loop(decoder_state, encoder_states, W_s, W_h, v):
    """Additive attention, one source word at a time: the equations as they stand."""
    scores = np.zeros(len(encoder_states))  # (source,)
    for j, state in enumerate(encoder_states):
        scores[j] = v @ np.tanh(W_s @ decoder_state + W_h @ state)
    weights = softmax(scores)
    return weights @ encoder_states, weights  # (hidden,), (source,)


context, weights = attend_loop(decoder_state, encoder_states, W_s, W_h, v)
print("weights", weights.round(3), " sum", weights.sum().round(6), " context", context.round(3))

# %% [markdown]
# The context is a mixture of the three states, mostly of the second. Now without the loop. The product `W_s @ decoder_state`
# is the same for all source words, and `encoder_states @ W_h.T` does not depend on the decoder at all, so it can be
# computed **once for the sentence**, before the first word is written. That is worth remembering: an
# implementation that repeats it for each of T target words does the same work T times.
#
# > **Predict first.** With the sizes below (states of 256, attention layer of 128, ten words) and random, untrained
# > weights: will the ten attention weights be nearly equal, or will one of them win clearly?


# %%
def attend(decoder_state, encoder_states, W_s, W_h, v):
    """Additive attention, all source words at once."""
    keys = encoder_states @ W_h.T  # (source, attention): once a sentence
    scores = np.tanh(W_s @ decoder_state + keys) @ v  # (source,)
    weights = softmax(scores)
    return weights @ encoder_states, weights  # (hidden,), (source,)


random = np.random.RandomState(42)
states = random.randn(10, 256) * 0.1  # (source, hidden)
query = random.randn(256) * 0.1  # (hidden,)
project_query = random.randn(128, 256) * 0.05  # (attention, hidden)
project_key = random.randn(128, 256) * 0.05  # (attention, hidden)
direction = random.randn(128) * 0.05  # (attention,)

context, weights = attend(query, states, project_query, project_key, direction)
looped = attend_loop(query, states, project_query, project_key, direction)
print("weights", weights.round(3), "\nlargest at position", weights.argmax())
print("loop and vectorised form agree:", np.allclose(context, looped[0]) and np.allclose(weights, looped[1]))

# %% tags=["nbval-check-output"]
claim(
    "04.1",
    "additive scores v·tanh(W_s s + W_h h_j) give weights that sum to 1 and a context as wide as a state",
    holds=weights.shape == (10,)
    and context.shape == (256,)
    and np.isclose(weights.sum(), 1.0)
    and weights.argmax() == 8,
    measured=f"context {context.shape}, weights {weights.shape}, sum {weights.sum():.6f}, "
    f"largest {weights.max():.4f} at position {weights.argmax()}, smallest {weights.min():.4f}",
    source="measured here; Bahdanau et al. 2015, A.1.2",
)

# %% [markdown]
# Position 8 wins, but by a hair: before training, attention is close to a plain average. Where to look is learned.
#
# ## 4 · Batched, with a mask
#
# A batch holds sentences of different lengths, filled up with padding. Padding must get no weight. Our convention,
# everywhere in this course, is that of PyTorch's `scaled_dot_product_attention`: a boolean mask in which **True means
# "may attend"**. (Look before you use another function: in `nn.MultiheadAttention`, True means "ignore".) The score of a
# padded position is set to $-\infty$ *before* the softmax, so that it becomes exactly 0 and the others sum to 1.

# %%
scores = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])  # (batch, source)
mask = torch.tensor([[True, True, True], [True, True, False], [False, False, False]])  # (batch, source)

with_infinity = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
print("fill with -inf, then softmax:", *with_infinity.tolist(), sep="\n  ")
print("the course's masked_softmax:", *masked_softmax(scores, mask).tolist(), sep="\n  ")

# %% [markdown]
# The third row may attend to nothing. A bare softmax gives it NaN, and one NaN reaches every weight of the model in
# the next update. We define such a row as zeros, as `torch.nn.functional.scaled_dot_product_attention` does.
#
# The course's `AdditiveScore` computes the scores of section 3, for a batch of sentences and all target words. We copy
# our weights into it and compare what the softmax makes of them.

# %%
score = AdditiveScore(query_width=256, key_width=256, attention_width=128).double()
with torch.no_grad():
    score.query.weight.copy_(torch.tensor(project_query))
    score.key.weight.copy_(torch.tensor(project_key))
    score.v.copy_(torch.tensor(direction))

queries = torch.tensor(query).expand(1, 1, 256)  # (batch, target, query)
keys = score.project_keys(torch.tensor(states).unsqueeze(0))  # (batch, source, attention)
every_word = torch.ones(1, 1, 10, dtype=torch.bool)  # (batch, 1, source)
torch_weights = masked_softmax(score(queries, keys), every_word)  # (batch, target, source)
print("numpy and torch agree:", torch.allclose(torch_weights[0, 0], torch.tensor(weights)))

# %% [markdown]
# ## 5 · Why $h_j$ has twice the width
#
# If the decoder is going to read $h_j$ on its own, then $h_j$ should know about the words after $j$ as well as those
# before. So the encoder is **bidirectional**: one GRU reads from left to right, another from right to left, and
#
# $$h_j = [\overrightarrow{h}_j ; \overleftarrow{h}_j]$$
#
# Two states of width 128 make an $h_j$ of width 256, and that fixes the shape of $W_h$: it is (attention,
# 2 × hidden). Many descriptions give $W_s$ and $W_h$ the same shape, as section 3 did. That fits only where the decoder's
# state happens to be as wide as $h_j$, both directions together.

# %%
encoder = nn.GRU(input_size=32, hidden_size=128, bidirectional=True, batch_first=True)
states, final = encoder(torch.randn(1, 10, 32))  # (batch, source, 2 x hidden), (2, batch, hidden)
forward, backward = states.chunk(2, dim=-1)  # (batch, source, hidden) each
print("h_j:", tuple(states.shape), " forward:", tuple(forward.shape), " backward:", tuple(backward.shape))
print("forward has read all at the last word: ", torch.equal(forward[:, -1], final[0]))
print("backward has read all at the first word:", torch.equal(backward[:, 0], final[1]))

# %% [markdown]
# The decoder's first state comes from there too: $s_0 = \tanh(W\, \overleftarrow{h}_1)$, the backward state at the first word,
# which has read the whole sentence and has just seen how it begins.
#
# In a batch, the backward GRU has to start at each sentence's own last word and not in its padding (PyTorch's packed
# sequences see to that; the course's encoder turns the real words of each row around, which comes to the same). One
# test tells whether an implementation got this right: add padding, and nothing may change.
#
# ## 6 · One step of the decoder, in the paper's order
#
# 1. **Attend** with the old state: $e_{tj} = v^\top\tanh(W_s s_{t-1} + W_h h_j)$, $\alpha_t = \mathrm{softmax}(e_t)$, $c_t = \sum_j \alpha_{tj} h_j$
# 2. **Step** the recurrent cell with the previous word and the context: $s_t = \mathrm{GRU}([E y_{t-1}; c_t],\, s_{t-1})$
# 3. **Predict** word $t$ from the new state, the context and the previous word.
#
# The order is a point that published implementations have got wrong. Luong et al. (2015) reorder it (step, then attend with $s_t$):
# lesson 05 compares the two. Scoring with $s_t$ inside *this* decoder, or giving its first step a context of zeros, is neither.
# One of the exercises asks you to write the step. Here is what the course's model does with one sentence.

# %%
runtime.seed(1)
attentive = bahdanau(len(source_words), len(target_words)).to(device)
example = corpus.make_batch([text.test[0]], source_words, target_words).to(device)
memory = attentive.encode(example.source, example.source_mask)
state = attentive.start(memory)
step = attentive.step(example.target_in[:, 0], state, memory)
print("logits", tuple(step.logits.shape), " weights", tuple(step.weights.shape))
print(f"the weights sum to {step.weights.sum().item():.4f}")

# %% [markdown]
# And the test of section 5, on the whole model: one sentence alone, and the same one in a batch with the longest.

# %% tags=["nbval-check-output"]
longest = max(text.test, key=lambda pair: len(pair.source))
alone, padded = (
    corpus.make_batch(pairs, source_words, target_words).to(device)
    for pairs in ([text.test[0]], [text.test[0], longest])
)
with torch.no_grad():
    one, same = (attentive(b.source, b.source_mask, b.target_in).logits[0] for b in (alone, padded))
print("padding changes nothing:", torch.allclose(one, same[: len(one)], atol=1e-5))

# %% [markdown]
# Training uses the same three steps for each word in turn. What does not depend on the previous state is done for all
# steps at once: the projected states $W_h h_j$, the embeddings of the previous words, the predictions at the end.
#
# ## 7 · With and without, side by side
#
# The same text, the same batches in the same order, the same number of steps. While it trains, we also record how
# far its attention is from the gold alignment; section 9 explains the measure.


# %%
def alignment_error(model: nn.Module) -> dict[str, float]:
    """Alignment error rate on the validation sentences, the gold translation fed in."""
    pairs = text.valid
    weights = decoding.attend(model, pairs, source_words, target_words)
    links = [
        metrics.links_from_weights(row, len(pair.source), len(pair.target))
        for row, pair in zip(weights, pairs, strict=True)
    ]
    return {"AER": metrics.alignment_error_rate(links, [p.links for p in pairs], [p.possible for p in pairs])}


history = train(
    attentive,
    batches,
    steps=STEPS,
    learning_rate=4e-3,
    every=STEPS // 10,
    measure=alignment_error,
    label="with attention",
)
print(history.table())


# %%
def averaged(history) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and the loss averaged over 20 steps each."""
    loss = np.reshape(history.loss[: len(history.loss) // 20 * 20], (-1, 20)).mean(axis=1)
    return 20 * np.arange(1, len(loss) + 1), loss


losses = {"fixed vector": averaged(history_without), "with attention": averaged(history)}
figures.lines(losses, xlabel="training step", ylabel="training loss (nats a word)")

# %% [markdown]
# The two start alike, and then attention pulls away. Now the same by length, on unseen sentences.

# %%
quality_with = quality(attentive)
figures.quality_by_length({"fixed vector": points(quality_without), "with attention": points(quality_with)})


# %% tags=["nbval-check-output"]
def ends(measured: metrics.LengthBin) -> str:
    return f"{measured.low_ci:.1f} to {measured.high_ci:.1f}"


short, long = quality_with[0].score, quality_with[-1].score
best_without, long_without = max(each.score for each in quality_without), quality_without[-1].score
claim(
    "04.5",
    "with attention, sentences of 40-50 words keep at least 80% of the BLEU of 5-10 words; without, under half of the best bin",
    holds=long >= 0.8 * short and long_without < 0.5 * best_without,
    measured=f"with {short:.1f} at 5-10, {long:.1f} at 40-50; without {best_without:.1f} at best, "
    f"{long_without:.1f} at 40-50 (95% intervals at 40-50: {ends(quality_with[-1])}, {ends(quality_without[-1])})",
)

# %% [markdown]
# The curve with attention stays almost level from the shortest sentences to the longest, far above the other. (Fifty words
# is also about the longest that either was trained on; how they do far beyond is another question.)
#
# Both models trained for the same number of steps on the same batches. Equal steps need not be equal time; here is what
# each cost. (The model with attention is the smaller of the two, so size does not explain the difference.)

# %%
runs = {"fixed vector": (without, history_without), "with attention": (attentive, history)}
for name, (model, run) in runs.items():
    size = sum(parameter.numel() for parameter in model.parameters())
    print(
        f"{name}: {size:,} parameters, {run.seconds:.0f} s, {run.tokens_per_second:,.0f} target tokens a second"
    )

# %% [markdown]
# ## 8 · What it looks at
#
# A matrix with one row for each target word: its weights over the source words. Darker is more. Both sentences end with
# `<eos>`, the mark of their end, which the model reads and writes like a word.
#
# > **Predict first.** French puts *bleue* after *maison*, English puts *blue* before *house*. What will the matrix
# > of "la maison bleue" look like: a diagonal, or something else?

# %%
phrase = next(pair for pair in text.test if 12 <= len(pair.source) <= 15)
translation, sentence = decoding.translate(
    attentive, [["la", "maison", "bleue"], phrase.source], source_words, target_words
)
print(" ".join(translation.source), "->", " ".join(translation.tokens))
figures.attention_matrix(translation.weights, translation.source, translation.tokens, title="la maison bleue")

# %% [markdown]
# The rows stand in English order, and at *blue* and *house* the dark cells leave the diagonal: *house* looks at *maison*,
# which comes before *bleue*.
#
# One phrase proves nothing. The test set has many places where two neighbours trade places between the languages,
# as *maison bleue* and *blue house* do; *me voit* and *sees me* is another case. No one gets these words right by
# walking along the diagonal.
# For each, we ask whether its largest weight falls on the word that it translates.

# %%
weights = decoding.attend(attentive, text.test, source_words, target_words)
crossing = probes.looks(weights, text.test, where=lambda pair, t: t in probes.crossed(pair))
everywhere = probes.looks(weights, text.test)
chance = np.mean([1 / len(pair.source) for pair in text.test])
print(f"{crossing.words} words that cross: {crossing.hit:.1%} look most at the word they translate")
print(f"{everywhere.words} words in all:     {everywhere.hit:.1%}; a random look would hit {chance:.1%}")

# %% tags=["nbval-check-output"]
claim(
    "04.2",
    "where two neighbours trade places (maison bleue / blue house), a word looks at the word it translates, 70% or more",
    holds=crossing.hit >= 0.7 and crossing.words >= 200,
    measured=f"{crossing.hit:.1%} of {crossing.words} crossing words, {everywhere.hit:.1%} of all {everywhere.words}",
)

# %% [markdown]
# A longer sentence, its attention beside the gold alignment, which the model has never seen. A solid outline is a *sure*
# link, a dashed one is merely
# *possible* (a word of grammar that has no counterpart of its own, such as the *does* of a negation).

# %%
[row] = decoding.attend(attentive, [phrase], source_words, target_words)
links = {"gold": phrase.links, "possible": phrase.possible}
words = {"source": phrase.source, "target": phrase.target}
figures.attention_matrix(row, **words, **links, title="weights (dark) and gold alignment (outlined)")

# %% [markdown]
# ## 9 · Is it an alignment?
#
# Statistical machine translation kept tables of which word translates which. To compare attention with such a table, link each
# target word to the source word with its largest weight. Call these links $A$, the sure gold links $S$ and the
# possible ones $P$ (every sure link is possible too). Och and Ney (2003) define the **alignment error rate** as
#
# $$\mathrm{AER} = 1 - \frac{|A \cap S| + |A \cap P|}{|A| + |S|}$$
#
# It is 0 when all sure links are found and nothing outside the possible ones is. A word whose largest weight is on
# the end of the sentence gets no link, and counts as a miss.

# %%
steps, error = history.measured("AER")
figures.curve(steps, {"attention": error}, xlabel="training step", ylabel="alignment error rate (0 to 1)")

# %%
links = [
    metrics.links_from_weights(row, len(pair.source), len(pair.target))
    for row, pair in zip(weights, text.test, strict=True)
]
test_error = metrics.alignment_error_rate(
    links, [pair.links for pair in text.test], [pair.possible for pair in text.test]
)
distance = probes.offsets(weights, text.test)
near = sum(distance[offset] for offset in (-1, 1)) / (distance.total() - distance[0])
print(f"alignment error rate on {len(text.test)} unseen sentences: {test_error:.3f}")
print(f"of the words that miss, {near:.0%} look at a direct neighbour of the right word")

# %% [markdown]
# The error falls while the model learns to translate, although no one told it about alignment. It does not reach
# zero, and the second line hints at why: most misses are off by one place. A state of a bidirectional encoder is not a
# word. $h_j$ has read the words to its left and to its right, so it *knows its neighbours*, and the decoder can find
# *maison* in the state of *la* or of *bleue*. Attention tells where information is *read*, which need not be where it came from.

# %% tags=["nbval-check-output"]
claim(
    "04.3",
    "attention comes close to a word alignment that it was never shown: error rate under 0.30 on unseen sentences",
    holds=test_error < 0.30 and error[-1] < error[0] - 0.3,
    measured=f"AER {test_error:.3f} on the test set; from {error[0]:.2f} to {error[-1]:.2f} in training",
)

# %% [markdown]
# ## 10 · Soft, not a pointer; cross, not self
#
# The weights are a distribution. Its entropy says how many words share the mass: 0 bits is a pointer to one word, 1 bit is
# two words with a half each.
#
# > **Predict first.** Which English words will spread their attention: nouns, or little words such as *the*, *of*, *not*?

# %%
spread = [probes.entropy(row[: len(pair.target)]) for row, pair in zip(weights, text.test, strict=True)]
bits = np.concatenate(spread)
print(
    f"mean entropy {bits.mean():.2f} bits; {np.mean(bits < 0.1):.0%} of the words are near a pointer (< 0.1 bit),"
)
print(f"{np.mean(bits > 1):.0%} share their mass as two words or more would (> 1 bit)")

by_word = {}
for row, pair in zip(spread, text.test, strict=True):
    for value, word in zip(row, pair.target, strict=True):
        by_word.setdefault(word, []).append(value)
often = sorted((np.mean(v), word) for word, v in by_word.items() if len(v) >= 30)
print("sharpest:", ", ".join(f"{word} {value:.2f}" for value, word in often[:6]))
print("softest: ", ", ".join(f"{word} {value:.2f}" for value, word in often[-6:]))

# %% [markdown]
# The two lists answer the question. A noun or an adjective has one French word to look at. A word of grammar often has
# none of its own, such as the *did* of a negation, or two, such as *not* (*ne ... pas*). And where the decoder knows the
# next word already, nothing forces it to look anywhere in particular.
#
# Here is the softest word, in the sentence of up to 15 words where it shares its mass most evenly.

# %%
softest = often[-1][1]
value, i, t = max(
    (spread[i][t], i, t)
    for i, pair in enumerate(text.test)
    if len(pair.source) <= 15
    for t, word in enumerate(pair.target)
    if word == softest
)
figures.word_weights(weights[i][t], text.test[i].source, softest, entropy=value)
print("in the translation:", corpus.detokenise(text.test[i].target, "en"))

# %% tags=["nbval-check-output"]
sizes = {(len(pair.target) + 1, len(pair.source) + 1) for pair in text.test}
shapes_fit = {row.shape for row in weights} == sizes
claim(
    "04.6",
    "attention here is cross-attention (target rows, source columns) and soft: some words share their mass",
    holds=shapes_fit and any(rows != columns for rows, columns in sizes) and np.mean(bits > 1) > 0.01,
    measured=f"mean {bits.mean():.2f} bits, largest {bits.max():.2f}; {np.mean(bits > 1):.1%} of words above 1 bit; "
    f"'{softest}' {often[-1][0]:.2f} bits on average",
)

# %% [markdown]
# And it is **cross**-attention: the rows are target words, the columns source words, and the matrix is not
# square. The query comes from the decoder, keys and values from the encoder. When all three come from one
# sequence, it is *self*-attention; that is lesson 06.
#
# ## 11 · Real text
#
# The grammar is ours, so its regularity is too. The names of emoji are not: Unicode's translators wrote
# them. They are short (one to eight words), so they say nothing about long sentences, and there are too few of them
# to learn a language from. What they can show is whether alignment appears on text that people wrote.
#
# Attention learns from what recurs: a word that stands in a single name could be anything in it. So we keep the
# names whose words all occur in at least three names. The model is small, with much dropout, for so little text.

# %%
emoji = corpus.emoji_names(seed=0).swapped()
names = emoji.train + emoji.valid + emoji.test
french = Counter(word for pair in names for word in set(pair.source))
english = Counter(word for pair in names for word in set(pair.target))
recurring = [
    pair
    for pair in names
    if min(french[word] for word in pair.source) >= 3 and min(english[word] for word in pair.target) >= 3
]
emoji_source = Vocabulary.from_sentences(pair.source for pair in recurring)
emoji_target = Vocabulary.from_sentences(pair.target for pair in recurring)
print(
    f"{len(recurring)} of {len(names)} names, {len(emoji_source)} French and {len(emoji_target)} English words"
)

# %%
EMOJI_STEPS = runtime.by_scale(class_=400, full=1_500)
runtime.seed(0)
emoji_model = bahdanau(len(emoji_source), len(emoji_target), hidden=64, encoder_hidden=32, dropout=0.3).to(
    device
)
emoji_batches = Batches(recurring, emoji_source, emoji_target, max_tokens=1_000, seed=0)
history_emoji = train(
    emoji_model, emoji_batches, steps=EMOJI_STEPS, learning_rate=5e-3, every=EMOJI_STEPS, label="emoji names"
)
shown = [["cœur", "bleu"], ["petit", "carré", "noir"], ["grand", "carré", "blanc"]]
panels = [
    {"weights": found.weights, "source": found.source, "target": found.tokens}
    for found in decoding.translate(emoji_model, shown, emoji_source, emoji_target)
]
figures.attention_matrices(panels, title="Emoji names, French to English")

# %% [markdown]
# No one has drawn gold links for emoji names. But we know some words, and a small dictionary gives a sample of links.

# %%
DICTIONARY = {
    "black": "noir noire noirs", "white": "blanc blanche", "blue": "bleu bleue", "red": "rouge", "green": "vert verte",
    "heart": "cœur cœurs", "square": "carré", "circle": "cercle disque", "face": "visage", "eyes": "yeux",
    "small": "petit petite", "large": "grand grande", "man": "homme", "woman": "femme", "hand": "main",
}  # fmt: skip


def linked(pair: corpus.Pair) -> corpus.Pair:
    """The pair with the links that the dictionary knows."""
    known = [(t, DICTIONARY[word].split()) for t, word in enumerate(pair.target) if word in DICTIONARY]
    return pair._replace(
        links=frozenset((s, t) for t, words in known for s, w in enumerate(pair.source) if w in words)
    )


sample = [linked(pair) for pair in recurring if len(pair.source) > 1]
emoji_weights = decoding.attend(emoji_model, sample, emoji_source, emoji_target)
emoji_all = probes.looks(emoji_weights, sample)
emoji_chance = np.mean([1 / len(pair.source) for pair in sample for _ in pair.links])
print(f"{emoji_all.words} words of the dictionary: {emoji_all.hit:.0%} look most at their translation")
print(f"(a random look would hit {emoji_chance:.0%})")

# %% [markdown]
# In these names adjectives cross as they do in the grammar, and nobody arranged it. These are names that the model was trained on: the figure says
# that it learned an alignment of real text, not that it could translate a name it has never seen.
#
# ## 12 · Explore
#
# Step through a translation with the arrow keys, or type a French sentence of your own (words that the grammar does
# not have are named). Without a running kernel you see one sentence as a picture.


# %%
def translate_one(sentence: list[str]) -> decoding.Translation:
    return decoding.translate(attentive, [sentence], source_words, target_words)[0]


examples = [pair for pair in text.test if 4 <= len(pair.source) <= 20][:12]
attention_explorer(translate_one, examples, source_language="fr", target_language="en")

# %% [markdown]
# ## 13 · What the paper measured
#
# English to French, WMT'14 data, a vocabulary of 30,000 words a side. The number in a model's name is the longest
# sentence that it was trained on, in words; *search* is attention, *encdec* the fixed vector. BLEU from Table 1 of the
# paper; the right-hand column has only the sentences without unknown words, in the source and in the reference:
#
# | model | all sentences | without unknown words |
# |---|---|---|
# | RNNencdec-30 | 13.93 | 24.19 |
# | RNNsearch-30 | 21.50 | 31.44 |
# | RNNencdec-50 | 17.82 | 26.71 |
# | RNNsearch-50 | 26.75 | 34.16 |
# | RNNsearch-50* (trained much longer) | 28.45 | 36.15 |
# | Moses (phrase-based system, which also used a monolingual corpus of 418 million words) | 33.30 | 35.63 |
#
# Figure 2 of the paper has BLEU by sentence length, as our section 7: RNNsearch-50 does not get worse even on sentences
# of 50 words and more.
#
# You will read that attention took BLEU "from about 26 to about 31". Those are two numbers of the right-hand column, from
# models trained on different lengths: 26.71 with sentences up to 50, and 31.44 with sentences up to 30. Compare like with like:

# %%
table_1 = {
    "encdec-30": (13.93, 24.19),
    "search-30": (21.50, 31.44),
    "encdec-50": (17.82, 26.71),
    "search-50": (26.75, 34.16),
}
all_gains = []
for longest in (30, 50):
    before, after = table_1[f"encdec-{longest}"], table_1[f"search-{longest}"]
    gains = [round(with_it - without_it, 2) for without_it, with_it in zip(before, after, strict=True)]
    all_gains.append(gains[0])
    print(f"sentences up to {longest}: {before} -> {after}: +{gains[0]} and +{gains[1]} BLEU")

# %% tags=["nbval-check-output"]
claim(
    "04.4",
    "like for like, attention adds 7.6 to 8.9 BLEU on all sentences of WMT'14 English to French",
    holds=all_gains == [7.57, 8.93],
    measured="13.93 to 21.50 (up to 30 words), 17.82 to 26.75 (up to 50 words)",
    source="Bahdanau et al. 2015, Table 1",
)

# %% [markdown]
# ## 14 · Common mistakes
#
# Each of these has been found in published code. Each runs without an error, or nearly.
#
# **Multiplying the scores by the mask.** A score of 0 is not "nothing": exp(0) = 1, so padding keeps its share.

# %%
row, keep = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, True, False])
print("mask multiplied:", (row * keep).softmax(dim=0).tolist())
print("right:          ", masked_softmax(row, keep).tolist())

# %% [markdown]
# **Filling with -inf in the wrong place.** After the softmax it lands in the weights. And `(1 - mask) * -inf` is NaN
# wherever the mask is 1, because 0 times infinity is not a number.

# %%
print("filled after the softmax:", row.softmax(dim=0).masked_fill(~keep, -torch.inf).tolist())
print("(1 - mask) * -inf:       ", ((1 - keep.float()) * -torch.inf).tolist())

# %% [markdown]
# **A literal such as -1e9.** It does not exist in half precision (float16), where the largest number is 65,504.

# %%
try:
    row.half().masked_fill(~keep, -1e9)
except RuntimeError as error:
    print("float16:", error)

# %% [markdown]
# **Attention that never looks at the source.** The official PyTorch tutorial computed its weights from the decoder's
# input and state alone, from 2017 until a
# [correction in 2023](https://github.com/pytorch/tutorials/pull/2452). Such weights are positive and sum to 1, and the
# model even trains. Here is a test that finds it: shuffle the encoder's states, and the weights must be shuffled in the same way.

# %%
generator = torch.Generator().manual_seed(0)
states = torch.randn(1, 5, 256, generator=generator)  # (batch, source, width)
query = torch.randn(1, 1, 256, generator=generator)  # (batch, target, width)
from_query_alone = nn.Linear(256, 5)  # "weights" for five positions, whatever stands there
additive = AdditiveScore(256, 256, 96)
order = torch.tensor([3, 0, 4, 1, 2])


def shuffled_alike(weights_of) -> bool:
    """Does shuffling the source words shuffle the weights in the same way?"""
    before, after = weights_of(states), weights_of(states[:, order])
    return torch.allclose(before[..., order], after, atol=1e-6)


print("from the query alone:", shuffled_alike(lambda states: from_query_alone(query).softmax(-1)))
print(
    "additive attention:  ", shuffled_alike(lambda s: additive(query, additive.project_keys(s)).softmax(-1))
)

# %% [markdown]
# **The context of the projected keys.** The weighted sum is of the states $h_j$, not of $W_h h_j$. When the widths are
# equal, nothing complains.

# %%
H, W = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), torch.tensor([[1.0, 2.0], [0.0, 1.0]])
alpha = torch.tensor([0.2, 0.3, 0.5])
print(
    "sum of the states:", (alpha @ H).tolist(), "  sum of the projected keys:", (alpha @ (H @ W.T)).tolist()
)

# %% [markdown]
# **Scoring with the new state.** With $s_t$ in place of $s_{t-1}$ the model is another one (closer to Luong's). It
# trains; but it is not what the equations say, and the parameters of the one do not fit the other.
#
# ## 15 · Check yourself
#
# **1. What does the decoder compare its state with?**
#
# <details><summary>a) The last state of the encoder</summary>No. That is the fixed vector of lesson 03.</details>
# <details><summary>b) All states of the encoder</summary>Yes: s<sub>t-1</sub> is scored against every h<sub>j</sub>, and the weights say how much of each is read.</details>
# <details><summary>c) The embeddings of the source words</summary>No. An embedding knows one word; h<sub>j</sub> has read the sentence from both sides.</details>
#
# **2. The weights of one target word are 0.5, 0.5, 0, 0. What is their entropy, and what does it mean?**
#
# <details><summary>a) 0 bits: it points to two words</summary>No. 0 bits is one word with all the mass.</details>
# <details><summary>b) 1 bit: as spread as two equal words</summary>Yes: -2 · 0.5 · log<sub>2</sub> 0.5 = 1, and 2<sup>1</sup> = 2 words.</details>
# <details><summary>c) 2 bits: there are four words</summary>No. 2 bits would be four equal weights of 0.25.</details>
#
# **3. You add ten padding tokens to every sentence of a batch. What may change?**
#
# <details><summary>a) Nothing but the zeros in the weights of the padding</summary>Yes. If anything else moves, the encoder reads padding or the softmax does not mask it.</details>
# <details><summary>b) The weights, a little, since they have to sum to 1 over more words</summary>No. Masked positions get exactly 0 and the others are as before.</details>
# <details><summary>c) The backward states, since they start in the padding</summary>No. The backward reading starts at each sentence's own last word.</details>
#
# **4. A model with AER 0.25 translates perfectly. Is a quarter of its attention wrong?**
#
# <details><summary>a) Yes, and it was lucky</summary>No. It reads from states that know their neighbours; looking one place beside the word can give it all it needs.</details>
# <details><summary>b) No: attention shows where it reads, and a state holds more than its own word</summary>Yes. Attention is evidence of alignment, not the alignment itself.</details>
# <details><summary>c) No, because AER counts only the end of the sentence</summary>No. It counts every link, those proposed and the sure ones.</details>
#
# ## 16 · What to take away
#
# - One vector of fixed size loses long sentences; looking back at all states keeps them.
# - Attention is a score, a softmax and a weighted sum. Bahdanau's score is additive: $v^\top\tanh(W_s s_{t-1} + W_h h_j)$.
# - Order: attend with the old state, step the cell with the context, predict.
# - The encoder is bidirectional, so $h_j$ has twice the width and knows its neighbours.
# - Weights are soft, and close to word alignments without being them.
#
# **Further reading**: [Bahdanau, Cho, Bengio (2015)](https://arxiv.org/abs/1409.0473), appendix A has every equation ·
# [Cho et al. (2014)](https://arxiv.org/abs/1409.1259), quality against length without attention ·
# [Och and Ney (2003)](https://aclanthology.org/J03-1002/), alignment and its error rate ·
# [Jain and Wallace (2019)](https://arxiv.org/abs/1902.10186) and
# [Wiegreffe and Pinter (2019)](https://arxiv.org/abs/1908.04626), what attention weights can and cannot explain.
#
# **Now do the exercises**: `exercises/04_bahdanau_attention.ipynb`. **Next**, lesson 05: Luong's three scores, and
# what asking with $s_t$ changes.
