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
# # 03 · The seq2seq bottleneck: a sentence through one vector
#
# <!-- badge -->
#
# Translation maps a sequence to a sequence, and the two need not have the same length or the same order. In 2014 Sutskever, Vinyals and Le
# ([2014](https://arxiv.org/abs/1409.3215)) and Cho et al. ([2014](https://arxiv.org/abs/1406.1078)) did it with two recurrent networks: one reads the sentence until
# only a vector is left, the other writes the translation out of that vector. It works, astonishingly well for short
# sentences. This lesson builds it, measures where it stops working, and asks why.
#
# **What you will be able to do**
#
# - build an encoder and a decoder, and say exactly what passes from one to the other;
# - train them with teacher forcing, and with a loss and a state that padding cannot change;
# - search for a translation, greedily and with a beam, and say what length normalisation does;
# - compute BLEU by hand for one sentence, and say why you then leave it to sacrebleu;
# - measure quality by length, with intervals, and tell what a wider vector changes from what it does not.
#
# **Time**: about 80 minutes, then 105 for the exercises in `exercises/03_seq2seq_bottleneck.ipynb`. The notebook runs from
# top to bottom in about two minutes on two cores. **You need** lesson 02's GRU, and lesson 01's idea that a state is all that a recurrent network remembers.

# %% tags=["setup"]
from course_utils import runtime

device = runtime.start("03", needs="training the translators")

# %%
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import sacrebleu
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from course_utils import corpus, decoding, figures, metrics, training
from course_utils.claims import claim
from course_utils.corpus import BOS, EOS, Batches, Pair, Vocabulary, grammar, tokenise
from course_utils.models import fixed_vector
from course_utils.training import train

# %% [markdown]
# ## 1 · The text
#
# We translate from French to English. The sentences come from a small hand-written grammar, so that we can have as many as we like of any
# length. As in most text, short sentences are frequent and long ones are not.

# %%
long = grammar.corpus(train=12_000, valid=100, test=800, seed=0, min_length=3, max_length=50).swapped()
short = grammar.corpus(train=12_000, valid=1, test=1, seed=1, min_length=3, max_length=15).swapped()
held_out = {pair.source for pair in long.test + long.valid}
pairs = long.train + [pair for pair in short.train if pair.source not in held_out]
source_words = Vocabulary.from_sentences(pair.source for pair in pairs)
target_words = Vocabulary.from_sentences(pair.target for pair in pairs)

# %%
lengths = np.array([len(pair.source) for pair in pairs])
for pair in sorted(long.test, key=lambda pair: len(pair.source))[150:600:200]:
    print(corpus.detokenise(pair.source, "fr"), "\n   ", corpus.detokenise(pair.target, "en"))
print(f"{len(pairs)} pairs for training, {len(source_words)} French and {len(target_words)} English words")
print(
    f"{np.mean(lengths > 15):.0%} have more than 15 words, and {lengths[lengths > 15].sum() / lengths.sum():.0%} of the words"
)

# %% [markdown]
# ## 2 · The encoder: what is left of a sentence
#
# The encoder is lesson 02's GRU. It reads one word after another, and its last state has seen them all. **That state is
# the vector.** Its size does not depend on the sentence.
#
# $$h_j = \mathrm{GRU}(E\,x_j,\; h_{j-1}) \qquad v = h_S$$
#
# $E\,x_j$ is the embedding of word $j$: a row of a table with one learned vector for each word.

# %%
runtime.seed(0)
embedding, gru = nn.Embedding(len(source_words), 8), nn.GRU(8, 16, batch_first=True)
example = long.test[0]
for words in (example.source[:3], example.source):
    states, final = gru(embedding(torch.tensor([source_words.encode(words)])))
    print(f"{len(words):2} words -> states {tuple(states.shape)}, last state {tuple(final.shape)}")

# %% [markdown]
# ### Padding, and the wrong number
#
# A batch holds sentences of different lengths, and the short ones are filled up with `<pad>`. A GRU does not know that: it reads
# on. Take the first sentence alone, and then in one batch with the longest.
#
# > **Predict first.** `<pad>` is one word like another to the GRU. After 30 of them, how much of the sentence is left in its state?

# %%
longest = max(long.test, key=lambda pair: len(pair.source))
alone, both = (
    corpus.make_batch(these, source_words, target_words) for these in ([example], [example, longest])
)
_, right = gru(embedding(alone.source))  # (1, 1, hidden)
_, read_on = gru(embedding(both.source))  # (1, 2, hidden): row 0 has read its padding, too
packed = pack_padded_sequence(
    embedding(both.source), both.source_mask.sum(1), batch_first=True, enforce_sorted=False
)
_, stopped = gru(packed)  # (1, 2, hidden)
for name, state in {"alone": right, "padded": read_on, "packed": stopped}.items():
    print(f"{name:7}", state[0, 0, :5].detach().numpy().round(3))

# %% [markdown]
# The second line is not a little off: it is another vector, mostly about the padding. And it depends on what else is in the batch, so that
# the same sentence has another translation in other company. `pack_padded_sequence` tells the GRU each row's length. (So does
# taking each row's state at its own last word; that is one of the exercises.)

# %% tags=["nbval-check-output"]
print("padded equals alone:", torch.allclose(read_on[0, 0], right[0, 0], atol=1e-5))
print("packed equals alone:", torch.allclose(stopped[0, 0], right[0, 0], atol=1e-5))

# %% [markdown]
# ## 3 · The decoder, teacher forcing, and the shift
#
# The decoder is a second GRU. It starts from the vector, and at each step it reads the previous word of the translation
# and predicts the next one. Ours gets the vector at every step as well, and so does the output layer, as in Cho et al.:
#
# $$s_0 = \tanh(W v) \qquad s_t = \mathrm{GRU}([E\,y_{t-1};\, v],\; s_{t-1}) \qquad
# p(y_t \mid y_{<t}, x) = \mathrm{softmax}\bigl(\mathrm{out}([s_t;\, E\,y_{t-1};\, v])\bigr)$$
#
# In training we know the translation, so we let the decoder read the **right** previous word, whatever it would have said itself. That is
# **teacher forcing**. All steps can then be computed in one call, and each word gives its own lesson. So the translation is needed twice,
# shifted by one: as it is read, and as it is to be predicted. In use there is nothing to force: the decoder reads its own words.

# %%
figures.forcing_diagram(["the", "blue", "house"], ["the", "old", "house"])

# %%
batch = corpus.make_batch(
    [Pair(("la", "maison", "bleue"), ("the", "blue", "house")), example], source_words, target_words
)
for name in ("target_in", "target_out"):
    print(f"{name:11}", *(f"{target_words.words[word]:6}" for word in getattr(batch, name)[0, :7]))

# %% [markdown]
# Where `target_out` is `<pad>` there is nothing to predict, and the loss must not count it. The loss is the mean of $-\log p$ over the
# **real** words, in nats. Here for an untrained model, by hand, beside the two numbers that one gets by forgetting a part of that sentence.

# %%
runtime.seed(0)
model = fixed_vector(len(source_words), len(target_words)).to(device)
batch = batch.to(device)
with torch.no_grad():
    logits = model(batch.source, batch.source_mask, batch.target_in).logits  # (batch, target, vocabulary)
    of_target = logits.log_softmax(-1).gather(2, batch.target_out[:, :, None]).squeeze(2)  # (batch, target)
by_hand = -of_target[batch.target_mask].mean()
print(f"the real words:                            {by_hand:.3f} nats a word")
print(f"padding counted:                           {-of_target.mean():.3f}")
print(f"padding set to 0, but counted as a place:  {-(of_target * batch.target_mask).mean():.3f}")

# %% tags=["nbval-check-output"]
ours = training.loss(logits, batch.target_out, batch.target_mask)
print("by hand equals the course's loss:", torch.allclose(by_hand, ours, atol=1e-5))

# %% [markdown]
# ## 4 · The whole model, by hand
#
# Here is all of it for one sentence, a word at a time, with the parameters of the course's `fixed_vector`. One thing is new: it reads
# the French sentence from its **end**. That is a trick of Sutskever et al.; section 9 measures what it is worth.


# %%
def logits_by_hand(model, source, target_in):
    """The logits of every next word, (target, vocabulary), for one sentence."""
    encoder, decoder = model.encoder, model.decoder
    backwards = encoder.embedding(source.flip(0))[None]  # (1, source, embedding)
    vector = encoder.backward_rnn(backwards)[1][0]  # (1, hidden): all that the decoder will ever know
    state, logits = torch.tanh(decoder.bridge(vector)), []  # s_0: (1, hidden)
    for word in target_in:
        embedded = decoder.embedding(word[None])  # (1, embedding)
        read = torch.cat([embedded, vector], dim=-1)
        state = decoder.rnn(read[:, None], state[None])[1][0]  # s_t: (1, hidden)
        logits.append(decoder.readout(torch.cat([state, embedded, vector], dim=-1)))
    return torch.cat(logits)


with torch.no_grad():
    real = batch.source[0, batch.source_mask[0]], batch.target_in[0, batch.target_mask[0]]
    ours, theirs = logits_by_hand(model, *real), logits[0, batch.target_mask[0]]

# %% tags=["nbval-check-output"]
print("by hand equals the course's model:", torch.allclose(ours, theirs, atol=1e-5))

# %% [markdown]
# Count what passes from the one network to the other: `vector`, and nothing else. Now train it.

# %%
STEPS = runtime.by_scale(class_=600, full=8_000)
batches = Batches(pairs, source_words, target_words, max_tokens=1_000, seed=0)


def trained(hidden: int, reverse: bool = True) -> nn.Module:
    """A translator with a vector of `hidden` numbers; the same batches in the same order for all of them."""
    runtime.seed(0)
    model = fixed_vector(len(source_words), len(target_words), hidden=hidden, reverse=reverse).to(device)
    history = train(model, batches, steps=STEPS, learning_rate=4e-3, label=f"{hidden} numbers")
    direction = "from the end" if reverse else "from the start"
    print(
        f"vector of {hidden}, read {direction}: loss {np.mean(history.loss[-20:]):.2f} after {STEPS} steps, "
        f"{history.seconds:.0f} s, {history.tokens_per_second:,.0f} target tokens a second"
    )
    return model


model = trained(256)

# %%
shown = [
    next(pair for pair in long.test if len(pair.source) == length and "." in pair.source)
    for length in (7, 14, 40)
]
for pair, found in zip(
    shown, decoding.translate(model, [pair.source for pair in shown], source_words, target_words), strict=True
):
    print("French:    ", corpus.detokenise(pair.source, "fr"))
    print("it should: ", corpus.detokenise(pair.target, "en"))
    print("it says:   ", corpus.detokenise(found.tokens, "en"), "\n")

# %% [markdown]
# The short one is near, or right. Look at the long one: it is English, it is grammatical over long stretches, and it is about
# something else. The decoder has learned the language. What it lacks is the sentence.
#
# ## 5 · Searching for a translation
#
# The model gives the probability of the next word. A translation is a whole sequence, with the probability
# $p(y \mid x) = \prod_t p(y_t \mid y_{<t}, x)$. There are too many to try. **Greedy search** takes the most probable word each time, and cannot
# take it back. A sentence that has a good start and a bad end may win over a better one whose start is only second best.
#
# **Beam search** keeps the $k$ most probable *beginnings*. At each step every beginning is continued by every word, and of all
# continuations together the $k$ best are kept. Here are the pieces: a beginning is its words, its log-probability and **its own** state.


# %%
@torch.no_grad()
def continuations(beginnings, memory, count=3):
    """Each beginning (words, log-probability, state) with its `count` best next words, the best first."""
    grown = []
    for place, (words, total, state) in enumerate(beginnings):
        last = torch.tensor([words[-1] if words else BOS], device=device)
        step = model.step(last, state, memory)
        best = step.logits.log_softmax(-1)[0].topk(count)
        for value, word in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            grown.append((place, ([*words, word], total + value, step.state)))
    return sorted(grown, key=lambda one: -one[1][1])


# %% [markdown]
# And a sentence for it: a short one for which a beam of 2 finds a more probable translation than greedy search.


# %%
def differs(pair: Pair) -> bool:
    """Does a beam of 2 find a more probable sentence than greedy search?"""
    greedy, beam = (
        decoding.translate(model, [pair.source], source_words, target_words, beam=width, length_penalty=0)[0]
        for width in (1, 2)
    )
    return len(greedy.tokens) <= 8 and beam.score > greedy.score + 0.1


sentence = next((pair for pair in long.test if len(pair.source) <= 8 and differs(pair)), shown[0])
print(corpus.detokenise(sentence.source, "fr"), "->", corpus.detokenise(sentence.target, "en"))

# %% [markdown]
# Three steps of a beam of two, by hand. Each step makes six continuations and keeps the two best.

# %%
alone = corpus.make_batch([sentence], source_words, target_words).to(device)
with torch.no_grad():
    memory = model.encode(alone.source, alone.source_mask)
beam = [([], 0.0, model.start(memory))]
for number in range(1, 4):
    grown = continuations(beam, memory)
    for n, (place, (words, total, _)) in enumerate(grown[:4]):
        said = " ".join(target_words.words[word] for word in words)
        print(f"step {number}  {total:6.2f}  {said}  (from {place + 1})" + ("  kept" if n < 2 else ""))
    beam = [beginning for _, beginning in grown[:2]]

# %% [markdown]
# A beginning that is kept goes on from the state of the one that it came from. With batched states this is the line that
# people forget: after each choice the rows of the state have to be reordered, too.
#
# The rest is going on until sentences end. One that has written `<eos>` is complete and is put aside. The tree shows all steps.


# %%
def tree(memory, width=2, longest=12):
    """The steps of a beam search for the figure: (word, log-probability, parent, kept)."""
    beginnings, places, steps = [([], 0.0, model.start(memory))], [0], []
    while beginnings and len(steps) < longest:
        grown = continuations(beginnings, memory)[: width + 2]
        steps.append(
            [
                (target_words.words[words[-1]], total, places[place], n < width)
                for n, (place, (words, total, _)) in enumerate(grown)
            ]
        )
        open_ones = [(n, one) for n, (_, one) in enumerate(grown[:width]) if one[0][-1] != EOS]
        places, beginnings = [n for n, _ in open_ones], [one for _, one in open_ones]
        width = len(open_ones)
    return steps


figures.beam_tree(tree(memory))

# %% [markdown]
# ### Length normalisation
#
# Each further word multiplies the probability by something below 1, so that shorter sentences have an advantage. So most systems
# compare $\log p(y \mid x) / |y|^\alpha$ (Wu et al. [2016](https://arxiv.org/abs/1609.08144) use a relative of it), where $|y|$ counts the words and the `<eos>`. With $\alpha = 0$ it is the probability, with $\alpha = 1$ the mean
# log-probability of a word. It also means that the first sentence to end need not be the best: a longer one with a smaller probability may have the better mean.
# A search may stop only when nothing that is still open can win.

# %%
short_test = [pair for pair in long.test if len(pair.source) <= 20][:120]
for width, alpha in ((1, 1.0), (4, 0.0), (4, 1.0), (12, 0.0), (12, 1.0)):
    found = decoding.translate(
        model, [p.source for p in short_test], source_words, target_words, beam=width, length_penalty=alpha
    )
    score = metrics.bleu([one.tokens for one in found], [pair.target for pair in short_test])
    words = sum(len(one.tokens) for one in found) / sum(len(pair.target) for pair in short_test)
    mean = np.mean([one.score for one in found])
    print(
        f"beam {width:2}, alpha {alpha:.0f}: log p {mean:6.2f}   BLEU {score:5.1f}   length {words:.2f} of the reference's"
    )

# %% [markdown]
# A wider beam finds more probable sentences; look at the column of log p. That need not make better translations: the two columns are different questions, the
# search answers the first. With $\alpha = 0$ the translations are the shortest of their width.
#
# ## 6 · BLEU, by hand and then not
#
# BLEU (Papineni et al. [2002](https://aclanthology.org/P02-1040/)) asks which words and word groups of a translation stand in the reference. For $n = 1$ to 4, the precision
# $p_n$ is the share of the candidate's n-grams that the reference has, each counted at most as often as it stands there (*clipped*: otherwise
# "the the the" would be perfect). Leaving out what is difficult would make the precision high, so there is a **brevity penalty** for candidates shorter
# than the reference ($c$ and $r$ are the lengths):
#
# $$\mathrm{BLEU} = \min\bigl(1,\; e^{1 - r/c}\bigr)\cdot \exp\Bigl(\tfrac14 \sum_{n=1}^{4} \log p_n\Bigr)$$

# %%
reference = tokenise("the old king sees the blue house near the tree .", "en")
candidate = tokenise("the old king sees the house near the tree .", "en")
precisions = []
for n in range(1, 5):
    found, known = (
        Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
        for words in (candidate, reference)
    )
    hits = sum((found & known).values())  # & takes the smaller count of each
    precisions.append(hits / sum(found.values()))
    print(f"p_{n} = {hits}/{sum(found.values())} = {precisions[-1]:.3f}")
penalty = min(1.0, math.exp(1 - len(reference) / len(candidate)))
by_hand = 100 * penalty * math.exp(sum(math.log(p) for p in precisions) / 4)
print(
    f"brevity penalty {penalty:.3f}, BLEU {by_hand:.2f} by hand, {metrics.bleu([candidate], [reference]):.2f} by sacrebleu"
)

# %% tags=["nbval-check-output"]
print("by hand equals sacrebleu:", abs(by_hand - metrics.bleu([candidate], [reference])) < 1e-6)

# %% [markdown]
# So why not keep these ten lines? Because a score is for comparing, and the details that make it comparable are not in the ten lines. Four of them, each with
# the numbers that differ:

# %%
perfect = tokenise("the blue house", "en")
print(
    f"a perfect sentence of three words: 0 by the formula, {metrics.bleu([perfect], [perfect]):.0f} by sacrebleu"
)

texts = [
    ("the old king sees the house near the tree .", "the old king sees the blue house near the tree ."),
    ("the cat", "the old cat sleeps ."),
    ("a dog sees the horse .", "a dog sees the small horse ."),
]
singly = [metrics.bleu([said], [wanted]) for said, wanted in texts]
together = metrics.bleu(*zip(*texts, strict=True))
print(f"mean of three sentences' BLEU {np.mean(singly):.1f}, BLEU of the corpus of three {together:.1f}")

# %%
said, wanted = ["It's the king's house."], ["It's the king's house!"]
for name in ("none", "13a", "char"):
    score = sacrebleu.BLEU(tokenize=name, force=True).corpus_score(said, [wanted]).score
    print(f"one text, tokenisation {name:5}: {score:.1f}")

c, near, far = 9, 10, 7  # the words of a candidate and of two references
closest, shortest = (min(1, math.exp(1 - r / c)) for r in (near, far))
print(f"brevity penalty by the closest reference {closest:.3f}, by the shortest {shortest:.3f}")

# %% [markdown]
# - **Zero counts.** One order without a match makes the whole product 0. Over a corpus that hardly happens, in a single sentence often; every tool has its own way out.
# - **Add first, divide once.** BLEU adds up the counts of the whole corpus. A mean of sentence scores is another number.
# - **Tokens.** The same two texts score differently when they are cut into other words. Scores of papers with different tokenisation cannot be compared
#   (Post [2018](https://aclanthology.org/W18-6319/)).
# - **Several references.** The penalty uses the one whose length is *closest*; the shortest would forgive short translations.
#
# sacrebleu fixes all of that and prints a signature that says how. The course calls it with our own tokens, which is fair as long as we compare only with ourselves.
#
# ## 7 · The bottleneck, measured
#
# > **Predict first.** The vector has 256 numbers, for a sentence of 5 words and for one of 50. Which share of its quality on the
# > shortest sentences will the model keep at 21 to 30 words, and which at 40 to 50?

# %%
BINS = [(5, 10), (11, 20), (21, 30), (31, 39), (40, 50)]  # words of the source, both ends included


def quality(model: nn.Module) -> list[metrics.LengthBin]:
    """BLEU of unseen sentences by the length of the source, with 95% intervals (bootstrap)."""
    sources = [pair.source for pair in long.test]
    found = decoding.translate(model, sources, source_words, target_words)
    said, wanted = [one.tokens for one in found], [pair.target for pair in long.test]
    return metrics.bleu_by_length(said, wanted, [len(source) for source in sources], BINS, seed=0)


def points(bins: list[metrics.LengthBin]) -> list[tuple[float, float, float, float]]:
    """(middle of the bin, BLEU, lower end, upper end) for the figure."""
    return [((b.low + b.high) / 2, b.score, b.low_ci, b.high_ci) for b in bins]


# %%
main = quality(model)
figures.quality_by_length({"one vector of 256": points(main)})
for b in main:
    kept = f"{b.score / main[0].score:.0%} of the first"
    print(f"{b.low:2}-{b.high} words: BLEU {b.score:4.1f} (95% {b.low_ci:.1f} to {b.high_ci:.1f}), {kept}")

# %%
few, many = (
    next(p.source for p in long.test if b.low <= len(p.source) <= b.high) for b in (main[0], main[-1])
)
figures.bottleneck_diagram(
    few, many, width=256, results=(f"BLEU {main[0].score:.0f}", f"BLEU {main[-1].score:.0f}")
)

# %% tags=["nbval-check-output"]
best = max(b.score for b in main)
claim(
    "03.1",
    "through one vector, BLEU falls sharply with length: above 20 words, and at 40-50, it is under half of its best bin",
    holds=all(b.score < best / 2 for b in main[2:]) and main[-1].high_ci < best / 2,
    measured="; ".join(f"{b.low}-{b.high}: {b.score:.1f} ({b.low_ci:.1f} to {b.high_ci:.1f})" for b in main),
    source="measured here; Cho et al. 2014 (arXiv 1409.1259)",
)

# %% [markdown]
# Cho et al. ([2014](https://arxiv.org/abs/1409.1259)) drew such a curve for English to French, and it is the reason why lesson 04 exists. Nothing in the text explains the
# fall: long sentences are made of the same words and by the same rules as short ones. But they are rarer, so be careful: how far longer training lifts
# each bin, `COURSE_SCALE=full` shows. The next section takes rarity, grammar and vocabulary out of the question.
#
# ## 8 · How much fits into a vector?
#
# How much would have to fit? Count in bits. If the 50 words were drawn independently, as often as each occurs, a sentence would need its entropy times 50. Words are
# not independent, so less is enough: given the word before, the next one surprises less.

# %%
counts, following = Counter(), Counter()
for pair in pairs:
    counts.update(pair.target)
    following.update(zip(("<bos>", *pair.target), pair.target, strict=False))
before = Counter()
for (first, _), count in following.items():
    before[first] += count
share = np.array(list(counts.values())) / counts.total()
single = -(share * np.log2(share)).sum()
given = -sum(n * math.log2(n / before[first]) for (first, _), n in following.items()) / following.total()
print(
    f"{single:.1f} bits a word, {given:.1f} given the word before: {50 * given:.0f} to {50 * single:.0f} bits for 50 words"
)
for numbers in (256, 1024):
    print(f"{numbers} float32 numbers: {4 * numbers:,} bytes, {32 * numbers:,} bits")

# %% [markdown]
# A sentence of 50 words is a few hundred bits, and the vector has thousands. If bits were all, twenty such sentences and more would fit. So the limit is not
# the memory of the machine. It is what *training* manages to put into such a vector, and to get out again.
#
# That can be measured without any language. Let the model **copy**: random sequences of 8 symbols, each worth 3 bits, no grammar, nothing to
# guess. The same model, the same loop, and a vector of 16, 32 or 64 numbers.
#
# > **Predict first.** Doubling the vector from 16 to 32 numbers lets it copy longer sequences. Will doubling it once more add as many symbols again, or
# > twice as many?

# %%
SYMBOLS, LONGEST = list("abcdefgh"), 16
rng = np.random.default_rng(0)


def sequences(count: int, shortest: int, longest: int) -> list[Pair]:
    """Random sequences of symbols, each its own translation."""
    drawn = [tuple(rng.choice(SYMBOLS, rng.integers(shortest, longest + 1)).tolist()) for _ in range(count)]
    return [Pair(sequence, sequence) for sequence in drawn]


# %%
symbols = Vocabulary(SYMBOLS)
copies = Batches(sequences(40_000, 1, LONGEST), symbols, symbols, max_tokens=2_000, seed=0)
tests = {length: sequences(200, length, length) for length in range(2, LONGEST + 1, 2)}


def copied(model: nn.Module) -> dict[int, np.ndarray]:
    """For each length the share of right symbols in each new sequence, (sequences,)."""
    result = {}
    for length, group in tests.items():
        found = decoding.translate(model, [pair.source for pair in group], symbols, symbols)
        right = [
            sum(a == b for a, b in zip(f.tokens, p.target, strict=False))
            for f, p in zip(found, group, strict=True)
        ]
        result[length] = np.array(right) / length
    return result


# %%
COPY_STEPS = runtime.by_scale(class_=500, full=4_000)
shares = {}
for hidden in (16, 32, 64):
    runtime.seed(0)
    copier = fixed_vector(len(symbols), len(symbols), embedding=16, hidden=hidden).to(device)
    train(copier, copies, steps=COPY_STEPS, learning_rate=6e-3, label=f"copy through {hidden}")
    shares[hidden] = copied(copier)


def with_interval(length: int, share: np.ndarray) -> tuple[float, float, float, float]:
    """Mean in percent with its 95% interval (normal approximation over the sequences)."""
    half = 1.96 * share.std() / math.sqrt(len(share))
    return length, 100 * share.mean(), 100 * (share.mean() - half), 100 * (share.mean() + half)


curves = {
    f"{hidden} numbers": [with_interval(*item) for item in found.items()] for hidden, found in shares.items()
}
figures.quality_by_length(
    curves, xlabel="length of the sequence (symbols)", ylabel="symbols copied rightly (%)"
)

# %% [markdown]
# Chance is one in eight. Halfway between chance and perfect is a good place to compare the curves.


# %%
def halfway(found: dict[int, np.ndarray]) -> float:
    """The length at which the share of right symbols falls through the middle between 1 and chance (1/8)."""
    at, means = list(found), [share.mean() for share in found.values()]
    middle = (1 + 1 / len(SYMBOLS)) / 2
    n = next(n for n, mean in enumerate(means) if mean < middle)
    return at[n - 1] + (at[n] - at[n - 1]) * (means[n - 1] - middle) / (means[n - 1] - means[n])


halves = {hidden: halfway(found) for hidden, found in shares.items()}
for hidden, length in halves.items():
    bits = length * math.log2(len(SYMBOLS))
    print(
        f"{hidden} numbers ({32 * hidden:,} bits of memory): half way at {length:.1f} symbols, {bits:.0f} bits"
    )

# %% tags=["nbval-check-output"]
claim(
    "03.2",
    "the one vector is the bottleneck: halve it or widen it, and the length at which copying breaks down moves",
    holds=halves[16] * 1.15 < halves[32] and halves[32] * 1.15 < halves[64],
    measured="half way at "
    + ", ".join(f"{length:.1f} symbols with {hidden} numbers" for hidden, length in halves.items()),
)

# %% [markdown]
# The breaking point moves with the width, and with nothing else, since nothing else was changed. It does not move in step: doubling the vector adds a few symbols. And the vector's bits are
# never filled: what it holds is a small part of its memory. More training may move the curves, and a wider vector costs the square of its width in every step. Neither makes the vector
# grow with the sentence.
#
# ## 9 · Width and direction in translation
#
# Back to French. Three widths, and for one of them the other reading direction: from the first word to the last.
#
# Why should the direction matter? The decoder writes from the first word on. Read from the start, the first French word is the oldest thing in the vector when the first English word is wanted; read from the
# end, it is the freshest. The mean distance between a word and its translation stays the same, but some distances become short, and a start is easier to learn
# from there.
#
# > **Predict first.** In section 8, width moved the point where the curve falls. Will it move it here, under the same budget for all?

# %%
others = {
    "128 numbers": trained(128),
    "64 numbers": trained(64),
    "128, from the start": trained(128, reverse=False),
}
measured = {"256 numbers": main} | {name: quality(other) for name, other in others.items()}
figures.quality_by_length({name: points(bins) for name, bins in measured.items() if "start" not in name})

# %%
for name, bins in measured.items():
    relative = ", ".join(f"{b.score:4.1f} ({b.score / bins[0].score:4.0%})" for b in bins)
    print(f"{name:20} {relative}")

# %% [markdown]
# Each line has BLEU in the five bins, and in brackets the share of the line's own first bin.
#
# Width changes the *level*: the narrow models are worse on the short sentences, where there is something to lose. The *shape* is much the same for all: by 11 to 20 words each has lost more than half of its own quality. So at this
# budget the length at which quality halves hardly moves with the width, other than in copying. What binds here is how much language so few steps can teach, and as long as that
# is so, a wider vector buys better short sentences first. (Copying needs no vocabulary and no grammar, so there the vector itself was what ran out.)

# %%
pair_of_directions = {
    "from the end": measured["128 numbers"],
    "from the start": measured["128, from the start"],
}
figures.quality_by_length({name: points(bins) for name, bins in pair_of_directions.items()})
gap = [a.score - b.score for a, b in zip(*pair_of_directions.values(), strict=True)]
print("reading from the end gains", ", ".join(f"{g:+.1f}" for g in gap), "BLEU in the five bins")

# %% tags=["nbval-check-output"]
end, start = (bins[0] for bins in pair_of_directions.values())
claim(
    "03.3",
    "reading the source from its end helps: on 5-10 words the 95% intervals of the two directions do not meet",
    holds=end.low_ci > start.high_ci,
    measured=f"from the end {end.score:.1f} ({end.low_ci:.1f} to {end.high_ci:.1f}), "
    f"from the start {start.score:.1f} ({start.low_ci:.1f} to {start.high_ci:.1f})",
)

# %% [markdown]
# Sutskever et al. report the same for English to French: BLEU on the test set rose from 25.9 to 30.6 when the source was reversed. It is a trick, not a cure: the vector stays as it is.
#
# ## 10 · Exposure bias: trained on the right words, left with its own
#
# In training the decoder has never read a word of its own. In use it reads nothing else, and after a first mistake it is in a place where it has never been. Two measurements on the same sentences: how often is the word at each place
# right when all words before are right (teacher forcing), and when they are its own (free running)?

# %%
PLACES = 15
group = [pair for pair in long.test if len(pair.target) > PLACES]
these = corpus.make_batch(group, source_words, target_words).to(device)
with torch.no_grad():
    forced = model(these.source, these.source_mask, these.target_in).logits.argmax(-1)  # (batch, target)
free = decoding.greedy(model, these.source, these.source_mask, PLACES + 1).tokens  # (batch, up to PLACES + 1)
accuracy = {
    name: (said[:, :PLACES] == these.target_out[:, :PLACES]).float().mean(0).cpu().numpy()
    for name, said in (("teacher forcing", forced), ("free running", nn.functional.pad(free, (0, PLACES))))
}
places = np.arange(1, PLACES + 1)
figures.lines(
    {name: (places, 100 * share) for name, share in accuracy.items()},
    xlabel="place of the word in the translation",
    ylabel="right words (%)",
)

# %% tags=["nbval-check-output"]
at_first = abs(accuracy["teacher forcing"][0] - accuracy["free running"][0])
print("alike at the first word:", bool(at_first < 0.02))
print(
    "free running is worse from the fifth on:",
    bool((accuracy["free running"] < accuracy["teacher forcing"])[4:].all()),
)

# %% [markdown]
# At the first word both have read `<bos>` and nothing else, so they agree. From there they part, and the distance grows. Not all of the gap is harm: a translation may be right and one place off, and then every word counts as wrong. But it is the reason why a low training loss promises
# less than it seems to. (Ranzato et al. [2016](https://arxiv.org/abs/1511.06732) gave the effect its name. Scheduled sampling, Bengio et al. [2015](https://arxiv.org/abs/1506.03099), lets the decoder read its own words now and then in training.)
#
# ## 11 · Real text
#
# The grammar is ours, so its regularity is too. Emoji have names that people wrote, in both languages: "cœur bleu", "blue heart". There are too few of them to learn a language from, so we keep those
# whose words all occur in at least three names, and hold back some for the test.
#
# > **Predict first.** Which will come out right more often, new names of one or two words, or new names of five and more?


# %%
def reader(text: corpus.Corpus, steps: int, rate: float, **sizes):
    """A translator through one vector, trained on a corpus, and its two vocabularies."""
    words = [
        Vocabulary.from_sentences(pair[side] for pair in text.train)
        for side in (0, 1)  # source, target
    ]
    runtime.seed(0)
    model = fixed_vector(*map(len, words), dropout=0.3, **sizes).to(device)
    batches = Batches(text.train, *words, max_tokens=1_000, seed=0)
    train(model, batches, steps=steps, learning_rate=rate, label=text.name)
    return model, words


# %%
emoji = corpus.emoji_names(seed=0).swapped()
names = emoji.train + emoji.valid + emoji.test
counts = [Counter(word for pair in names for word in set(pair[side])) for side in (0, 1)]
recurring = [p for p in names if min(counts[side][word] for side in (0, 1) for word in p[side]) >= 3]
emoji = replace(emoji, train=recurring[120:], test=recurring[:120])
namer, name_words = reader(emoji, runtime.by_scale(class_=300, full=2_000), 4e-3, hidden=128, embedding=64)

# %%
for kind, group in (("seen", emoji.train), ("unseen", emoji.test)):
    found = decoding.translate(namer, [pair.source for pair in group], *name_words)
    for low, high in ((1, 2), (3, 4), (5, 11)):
        right = [
            tuple(f.tokens) == pair.target
            for f, pair in zip(found, group, strict=True)
            if low <= len(pair.source) <= high
        ]
        print(f"{kind:6} {low}-{high:2} words: {np.mean(right):4.0%} of {len(right)} names exactly right")
for pair in [pair for pair in emoji.test if len(pair.source) >= 5][:4]:
    print("  ", corpus.detokenise(pair.source, "fr"), "->", corpus.detokenise(pair.target, "en"))

# %% [markdown]
# The names that it was trained on go through the vector and come back almost without a fault: that is a memory, and there are few of them. New names are another matter. And the curve
# goes the other way round here: *long* new names come out right more often than short ones. Look at the examples: the long names are formulas in which a word or two change, and there is little to say in them. So it is not words that fill a
# vector, it is what cannot be guessed.
#
# At full scale (`COURSE_SCALE=full`, on a GPU) the next cell does the same for real sentences: descriptions of photographs from Multi30K, 29,000 pairs
# of 4 to 40 words. It is downloaded, or put the path of your own copy into `MULTI30K`; and with the path of any file of sentence pairs in `OWN_TEXT` (tab-separated, English first)
# the same curve is drawn for that.

# %%
MULTI30K, OWN_TEXT = None, None  # paths, or None


def draw_quality(text: corpus.Corpus, bins: list[tuple[int, int]]) -> None:
    """Train on a corpus and draw its quality by length."""
    model, words = reader(text, 12_000, 1e-3, hidden=512, embedding=256)
    found = decoding.translate(model, [pair.source for pair in text.test], *words, beam=4)
    said, wanted = [one.tokens for one in found], [pair.target for pair in text.test]
    by_length = metrics.bleu_by_length(said, wanted, [len(pair.source) for pair in text.test], bins, seed=0)
    figures.quality_by_length({text.name: points(by_length)})
    print(f"{text.name}: BLEU {metrics.bleu(said, wanted):.1f} on {len(wanted)} unseen sentences")


# %%
if runtime.scale() == "full":
    draw_quality(corpus.multi30k(MULTI30K).swapped(), [(5, 10), (11, 15), (16, 20), (21, 40)])
else:
    print("Real sentences are trained on at full scale only.")
if runtime.scale() == "full" and OWN_TEXT:
    own = [pair for pair in corpus.from_file(OWN_TEXT) if max(len(pair.source), len(pair.target)) <= 100]
    test, valid, learned = own[:1000], own[1000:1100], own[1100:]
    text = corpus.Corpus("your text", learned, valid, test, "yours", "you", ("en", "fr"))
    draw_quality(text.swapped(), [(5, 20), (21, 40), (41, 60), (61, 100)])

# %% [markdown]
# ## 12 · Common mistakes
#
# Each of these has been found in published code. Each runs without an error, or nearly.
#
# **The state after the padding.** Section 2 showed the number. The test that finds it: a sentence alone and the same one in a batch must give one state.
#
# **Not shifting, or shifting twice.** If the decoder reads the word that it should predict, the loss falls to almost nothing, and the model has learned to copy its input.

# %%
pair_in, pair_out = batch.target_in[0, :4], batch.target_out[0, :4]
words = target_words.words
rows = {
    "right": (pair_in, pair_out),
    "not shifted": (pair_out, pair_out),
    "shifted twice": (pair_in[:-1], pair_out[1:]),
}
for name, (read, wanted) in rows.items():
    print(f"{name:14}", ", ".join(f"{words[a]} -> {words[b]}" for a, b in zip(read, wanted, strict=True)))

# %% [markdown]
# **A softmax too many.** `cross_entropy` wants logits. Given probabilities it applies a second softmax, and the loss cannot fall below a floor. `nll_loss` of probabilities is
# negative. (A `log_softmax` before `cross_entropy` is merely superfluous: doing it twice changes nothing.)

# %%
cross_entropy, nll = nn.functional.cross_entropy, nn.functional.nll_loss
three, first = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0])
print(
    f"logits {cross_entropy(three, first):.4f}, log_softmax first {cross_entropy(three.log_softmax(-1), first):.4f}"
)
print(
    f"softmax first {cross_entropy(three.softmax(-1), first):.4f}, nll_loss of probabilities {nll(three.softmax(-1), first):.4f}"
)
sure = torch.tensor([[50.0, 0.0, 0.0]])
print(
    f"where the model is sure and right: {cross_entropy(sure, first):.4f}, with a softmax first {cross_entropy(sure.softmax(-1), first):.4f}"
)

# %% [markdown]
# **The mean of means.** One batch with 10 words at a loss of 1.0 and one with 2 words at 3.0: per word that is not 2.0.

# %%
print(f"mean of the batches {np.mean([1.0, 3.0]):.2f}, mean of the words {(10 * 1.0 + 2 * 3.0) / 12:.2f}")

# %% [markdown]
# **The reference leaks into the evaluation.** If the length of the output is taken from the reference, or some of its words are still forced in, the score is too good. The test: replace the reference by nonsense, and the translation must not
# change. Here are the words that our model gets right when it is forced, and when it is not (means of section 10).

# %%
for name, share in accuracy.items():
    print(f"{name}: {share.mean():.0%} of the words right")

# %% [markdown]
# **A coin for each batch, or for each word?** Where a share of the training is free running, some code decides once for a whole sentence and some at every word. Both are in use; with a share of 1 and of 0 they agree exactly.
#
# **No upper bound.** An untrained model need not write `<eos>` for a long time. `while word != EOS` then never ends; `max_length` has to.

# %%
runtime.seed(0)
untrained = fixed_vector(len(source_words), len(target_words)).to(device)
found = decoding.greedy(untrained, alone.source, alone.source_mask, 60)
print("words:", int(found.lengths[0]), " ended by itself:", bool((found.tokens == EOS).any()))

# %% [markdown]
# **A beam of equal copies.** If all $k$ beginnings start alike with the total 0, the first step picks the best word $k$ times, and all that follows is greedy. Only one of them may count at first: totals of
# $0, -\infty, -\infty$.

# %%
p = torch.tensor([0.5, 0.3, 0.2]).log()
for name, start in {"equal copies": [0.0, 0.0, 0.0], "one counts": [0.0, -math.inf, -math.inf]}.items():
    totals, index = (torch.tensor(start)[:, None] + p).flatten().topk(3)
    print(f"{name:13} words {(index % 3).tolist()}, totals {[round(t, 3) for t in totals.tolist()]}")

# %% [markdown]
# **A test that cannot see the mistake.** Someone looked for states that were not reordered by comparing the *sum* of the states before and after. A permutation does not change a sum.

# %%
states, order = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([2, 0, 1])
print(
    "sums agree:",
    states.sum().item() == states[order].sum().item(),
    "  rows agree:",
    torch.equal(states, states[order]),
)

# %% [markdown]
# **A string where a list of words should be.** A string is a sequence too, of letters, and BLEU's n-grams are then letters: "the cat" and "the bat" share one word of two, and six letters of seven. Likewise, references that are nested the wrong way round are
# scored without a complaint, or only the first sentence is. The test: score a sentence against itself, and drop the last sentence of the corpus.

# %%
for name, one, other in (
    ("words", tokenise("the cat", "en"), tokenise("the bat", "en")),
    ("letters", "the cat", "the bat"),
):
    print(f"{name}: {sum((Counter(one) & Counter(other)).values())} of {len(one)}")

# %% [markdown]
# ## 13 · Check yourself
#
# **1. What does the decoder know of the source?**
#
# <details><summary>a) All states of the encoder</summary>No. It could, they are there; that it looks at them is lesson 04.</details>
# <details><summary>b) One vector, the same at every step</summary>Yes. It is fed again at every step, but it is the same one, and as large for 50 words as for 5.</details>
# <details><summary>c) The words, one at each step</summary>No. The words that it reads are those of the translation.</details>
#
# **2. With teacher forcing, what does the decoder read when it has to predict the third word?**
#
# <details><summary>a) The second word of the reference</summary>Yes: the right one, even if it would have said another.</details>
# <details><summary>b) The second word that it predicted</summary>No. That is free running.</details>
# <details><summary>c) The third word of the reference</summary>No. Then it would only have to copy; that is the missing shift.</details>
#
# **3. A beam of 8 finds more probable sentences than a beam of 2, and BLEU falls. What is wrong?**
#
# <details><summary>a) The search: a larger beam must be better</summary>No. It is better at what it searches for, which is probability.</details>
# <details><summary>b) Nothing: the most probable sentence need not be the best one</summary>Yes. Without normalisation it is often too short.</details>
# <details><summary>c) BLEU: it should be the probability</summary>No. BLEU asks the reference, the search asks the model.</details>
#
# **4. Your training loss counts padding. What will you see?**
#
# <details><summary>a) A higher loss, because padding is hard to predict</summary>No. It is the easiest of all words, and so the loss soon looks too good.</details>
# <details><summary>b) A loss that changes with how sentences are put together into batches</summary>Yes. And a model that spends its capacity on writing padding.</details>
# <details><summary>c) Nothing, since all models have the same padding</summary>No. It depends on the batches, and the gradient of padding is real.</details>
#
# **5. A vector of 256 float32 numbers has 8,192 bits. Why is a sentence of 300 bits too much for it?**
#
# <details><summary>a) It is not: it would fit 27 times, if training could use the bits</summary>Yes. The limit is what training puts in and gets out, as copying showed.</details>
# <details><summary>b) Because float32 is not precise enough</summary>No. Nothing near the last bits is used.</details>
# <details><summary>c) Because the vocabulary has more words than the vector has numbers</summary>No. A vector has far more than one state for each number.</details>
#
# ## 14 · What to take away
#
# - An encoder turns a sentence into one vector, and the decoder writes from that vector alone.
# - Teacher forcing: read the right word, predict the next one; shift by one; leave padding out of the loss and out of the state.
# - Greedy search takes the best word, a beam keeps the best beginnings, each with its own state; divide by the length, and do not stop at the first end.
# - BLEU: clipped n-gram precision times brevity penalty, added up over the corpus, by sacrebleu.
# - Quality falls with length. A wider vector and reading from the end help; neither makes the vector grow with the sentence.
#
# **Further reading**: [Sutskever, Vinyals, Le (2014)](https://arxiv.org/abs/1409.3215) ·
# [Cho et al. (2014)](https://arxiv.org/abs/1409.1259), quality against length ·
# [Papineni et al. (2002)](https://aclanthology.org/P02-1040/) and [Post (2018)](https://aclanthology.org/W18-6319/), BLEU and how to report it ·
# [Koehn and Knowles (2017)](https://arxiv.org/abs/1706.03872), six challenges, wide beams among them ·
# [Ranzato et al. (2016)](https://arxiv.org/abs/1511.06732), exposure bias.
#
# **Now do the exercises**: `exercises/03_seq2seq_bottleneck.ipynb`. **Next**, lesson 04: let the decoder look back at all states, and ask for each word which of them it needs.
