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
# **Time**: about 75 minutes, then 45 for the exercises in `exercises/04_bahdanau_attention.ipynb`. The notebook runs
# from top to bottom in about two minutes on two cores. **You need** lesson 03's idea of an encoder and a decoder, and some PyTorch.

# %% tags=["setup"]
from course_utils import runtime

device = runtime.start("04")

# %%
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
text = grammar.corpus(train=20_000, valid=300, test=900, seed=0, min_length=3, max_length=50).swapped()
for pair in sorted(text.test, key=lambda pair: len(pair.source))[40:900:215]:
    print(corpus.detokenise(pair.source, "fr"), "\n   ", corpus.detokenise(pair.target, "en"))

# %% [markdown]
# The sentences are lower-case words, with the French elisions split off: `l' homme`. Each side gets a vocabulary,
# and the training pairs become batches of sentences of similar length, each with at most 1,400 tokens (both sides and padding counted).

# %%
source_words = Vocabulary.from_sentences(pair.source for pair in text.train)
target_words = Vocabulary.from_sentences(pair.target for pair in text.train)
batches = Batches(text.train, source_words, target_words, max_tokens=1_400, seed=0)
print(f"{len(source_words)} French and {len(target_words)} English words, {len(batches)} batches an epoch")

# %% [markdown]
# Lesson 03's model reads the sentence with a GRU and keeps one vector. The decoder gets that vector at every step,
# and nothing else of the source. The model below is the best of its kind that we found for this budget: it
# reads the source backwards, as Sutskever et al. (2014) do, so that the first words are the freshest.
#
# > **Predict first.** The vector has 256 numbers, for a sentence of 5 words and for one of 50. How much of its
# > quality on short sentences will the model keep on long ones: nearly all, half, a tenth?

# %%
STEPS = runtime.by_scale(class_=900, full=8_000)
runtime.seed(0)
without = fixed_vector(len(source_words), len(target_words)).to(device)
history_without = train(without, batches, steps=STEPS, learning_rate=4e-3, label="fixed vector")
print(history_without.table())

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

# %% [markdown]
# The curve falls with every bin. Nothing in the data explains it: long sentences use the same words and the same
# grammar as short ones. What does not grow is the vector. Each word of a long sentence has to share it with 49 others.
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
# two projections are added before the tanh, people call it **additive** attention. Note the index: the decoder asks
# with $s_{t-1}$, the state it had *before* it writes word $t$ (section 3.1 and appendix A.1.2 of the paper).
#
# A picture to keep: a photocopy of the source page for every word of the translation, each with its own
# highlighting. The picture is good because the page stays whole and only the highlighting changes. It breaks in two
# places: no one marks the words by hand (the highlighting is *learned*, from nothing but translations), and the
# marker is *soft*: it can colour five words a little instead of one word fully.

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
# implementation that repeats it for every target word does the same work T times.
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
project_query, project_key = (
    random.randn(128, 256) * 0.05,
    random.randn(128, 256) * 0.05,
)  # (attention, hidden)
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
# everywhere in this course, is PyTorch's: a boolean mask in which **True means "may attend"**. The score of a
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
# The course's `AdditiveScore` is the numpy function of section 3, for a batch of sentences and all target words. We copy
# our weights into it and compare.

# %%
score = AdditiveScore(query_width=256, key_width=256, attention_width=128).double()
with torch.no_grad():
    score.query.weight.copy_(torch.tensor(project_query))
    score.key.weight.copy_(torch.tensor(project_key))
    score.v.copy_(torch.tensor(direction))

queries = torch.tensor(query).expand(1, 1, 256)  # (batch, target, query)
keys = score.project_keys(torch.tensor(states).unsqueeze(0))  # (batch, source, attention)
torch_weights = masked_softmax(
    score(queries, keys), torch.ones(1, 1, 10, dtype=torch.bool)
)  # (batch, target, source)
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
# 2 × hidden). Descriptions that give $W_s$ and $W_h$ the same shape have a one-directional encoder in mind.

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
# In a batch, the sentences are *packed*, so that the backward GRU starts at each sentence's own last word and not
# in its padding. One test tells whether an implementation got this right: add padding, and nothing may change.
#
# ## 6 · One step of the decoder, in the paper's order
#
# 1. **Attend** with the old state: $e_{tj} = v^\top\tanh(W_s s_{t-1} + W_h h_j)$, $\alpha_t = \mathrm{softmax}(e_t)$, $c_t = \sum_j \alpha_{tj} h_j$
# 2. **Step** the recurrent cell with the previous word and the context: $s_t = \mathrm{GRU}([E y_{t-1}; c_t],\, s_{t-1})$
# 3. **Predict** word $t$ from the new state, the context and the previous word.
#
# The order is the point that implementations get wrong most often. Luong et al. (2015) reorder it (step, then attend with $s_t$):
# lesson 05 compares the two. Scoring with $s_t$ inside *this* decoder, or starting with a zero context, is neither.
# One of the exercises asks you to write the step. Here is what the course's model does with one sentence.

# %%
runtime.seed(1)
attentive = bahdanau(len(source_words), len(target_words)).to(device)
example = corpus.make_batch([text.test[0]], source_words, target_words).to(device)
memory = attentive.encode(example.source, example.source_mask)
state = attentive.start(memory)
step = attentive.step(example.target_in[:, 0], state, memory)
print(
    "logits",
    tuple(step.logits.shape),
    " weights",
    tuple(step.weights.shape),
    " sum",
    round(step.weights.sum().item(), 6),
)

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
    """Alignment error rate on 200 validation sentences, the gold translation fed in."""
    pairs = text.valid[:200]
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
    every=STEPS // 12,
    measure=alignment_error,
    label="with attention",
)
print(history.table())

# %%
history.plot()

# %%
quality_with = quality(attentive)
figures.quality_by_length({"fixed vector": points(quality_without), "with attention": points(quality_with)})

# %% tags=["nbval-check-output"]
short, long = quality_with[0].score, quality_with[-1].score
best_without, long_without = max(each.score for each in quality_without), quality_without[-1].score
claim(
    "04.5",
    "with attention, sentences of 40-50 words keep at least 80% of the BLEU of 5-10 words; without, under half of the best bin",
    holds=long >= 0.8 * short and long_without < 0.5 * best_without,
    measured=f"with {short:.1f} at 5-10, {long:.1f} at 40-50; without {best_without:.1f} at best, {long_without:.1f} at 40-50",
)

# %% [markdown]
# Both models train for the same number of steps on the same batches; the one with attention takes longer for each step. The
# history's table says how long. On a budget of equal *time* the fixed vector would get more steps; its curve does
# not catch up (more steps mostly raise its short bins).
#
# ## 8 · What it looks at
#
# A matrix with one row for each target word: its weights over the source words. Darker is more. The outlines are the
# gold alignment, which the model has never seen.
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
# One phrase proves nothing. The test set has many places where two neighbours trade places between the languages,
# as *maison bleue* and *blue house* do. These are the words that no one gets right by walking along the diagonal.
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
    "where adjective and noun trade places, an English word looks at the French word it translates (at least 70% of them)",
    holds=crossing.hit >= 0.7 and crossing.words >= 200,
    measured=f"{crossing.hit:.1%} of {crossing.words} crossing words, {everywhere.hit:.1%} of all {everywhere.words}",
)

# %% [markdown]
# A longer sentence, its attention beside the gold alignment. A solid outline is a *sure* link, a dashed one is merely
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
# zero, and the second line says why: most misses are off by one place. A state of a bidirectional encoder is not a
# word. $h_j$ has read the words to its left and to its right, so it *knows its neighbours*, and the decoder can find
# "maison" in the state of "la" or of "bleue". Attention tells where information is *read*, which need not be where it came from.

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
# Here is one of the softest words, in a sentence where it shares its mass most evenly.

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

# %%
emoji = corpus.emoji_names(valid=100, test=200, seed=0).swapped()
emoji_source = Vocabulary.from_sentences(pair.source for pair in emoji.train)
emoji_target = Vocabulary.from_sentences(pair.target for pair in emoji.train)
emoji_batches = Batches(emoji.train, emoji_source, emoji_target, max_tokens=1_000, seed=0)
runtime.seed(0)
emoji_model = bahdanau(len(emoji_source), len(emoji_target), dropout=0.2).to(device)
EMOJI_STEPS = runtime.by_scale(class_=400, full=2_000)
history_emoji = train(emoji_model, emoji_batches, steps=EMOJI_STEPS, learning_rate=3e-3, label="emoji names")
print(history_emoji.table())

# %%
shown = [("petit", "carré", "noir"), ("cœur", "bleu"), ("maison", "avec", "jardin")]
panels = [
    {"weights": t.weights, "source": t.source, "target": t.tokens}
    for t in decoding.translate(emoji_model, [list(words) for words in shown], emoji_source, emoji_target)
]
figures.attention_matrices(panels, title="Emoji names, French to English")

# %% [markdown]
# Adjectives cross here as well. Look for the places where a weight sits beside its word, too: with names this short, a
# state knows its whole neighbourhood.
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
# sentence that it was trained on; *search* is attention. BLEU from Table 1 of the paper:
#
# | model | all sentences | without unknown words |
# |---|---|---|
# | RNNencdec-30 | 13.93 | 24.19 |
# | RNNsearch-30 | 21.50 | 31.44 |
# | RNNencdec-50 | 17.82 | 26.71 |
# | RNNsearch-50 | 26.75 | 34.16 |
# | RNNsearch-50* (trained much longer) | 28.45 | 36.15 |
# | Moses (phrase-based system) | 33.30 | 35.63 |
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
for longest in (30, 50):
    without_attention, with_attention = table_1[f"encdec-{longest}"], table_1[f"search-{longest}"]
    gains = [
        round(after - before, 2) for before, after in zip(without_attention, with_attention, strict=True)
    ]
    print(
        f"sentences up to {longest}: {without_attention} -> {with_attention}: +{gains[0]} and +{gains[1]} BLEU"
    )

# %% tags=["nbval-check-output"]
claim(
    "04.4",
    "like for like, attention adds 7.6 to 8.9 BLEU on all sentences of WMT'14 English to French",
    holds=round(21.50 - 13.93, 1) == 7.6 and round(26.75 - 17.82, 1) == 8.9,
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
# **A literal such as -1e9.** It does not exist in half precision, where the largest number is 65,504.

# %%
try:
    row.half().masked_fill(~keep, -1e9)
except RuntimeError as error:
    print("float16:", error)

# %% [markdown]
# **Attention that never looks at the source.** The official PyTorch tutorial computed its weights from the decoder's
# input and state alone from 2017 to 2023. Such weights are positive and sum to 1, and the model even trains. Here is a test
# that finds it: shuffle the encoder's states, and the weights must be shuffled in the same way.

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
# trains; but it is not what the equations say, and weights loaded from a right model give wrong translations.
#
# ## 15 · Check yourself
#
# **1. What does the decoder compare its state with?**
#
# <details><summary>a) The last state of the encoder</summary>No. That is the fixed vector of lesson 03.</details>
# <details><summary>b) All states of the encoder</summary>Yes: s<sub>t-1</sub> is scored against every h<sub>j</sub>, and the weights say how much of each is read.</details>
# <details><summary>c) The embeddings of the source words</summary>No. An embedding knows one word; h<sub>j</sub> has read the sentence from both sides. (Reading embeddings would work a little, and align more sharply.)</details>
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
# <details><summary>c) The backward states, since they start in the padding</summary>No. Packing starts each sentence at its own last word.</details>
#
# **4. A model with AER 0.25 translates perfectly. Is a quarter of its attention wrong?**
#
# <details><summary>a) Yes, and it was lucky</summary>No. It reads from states that know their neighbours; looking one place beside the word can give it all it needs.</details>
# <details><summary>b) No: attention shows where it reads, and a state holds more than its own word</summary>Yes. Attention is evidence of alignment, not the alignment itself.</details>
# <details><summary>c) No, because AER counts only the end of the sentence</summary>No. It counts all words that have a gold link.</details>
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
