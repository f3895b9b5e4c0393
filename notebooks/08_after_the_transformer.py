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
# # 08 · After the Transformer: one block, many masks, and long memories
#
# <!-- badge -->
#
# Lesson 07 put the Transformer together. Within two years its block was taken up in three ways, as BERT, GPT-2 and T5, that differ in who may see whom and in
# what they learn from. Then texts grew long, the square of the length began to hurt, and the old idea of this course's first lessons, a state of fixed size, came back in new clothes. This lesson
# builds all of it small enough to look inside.
#
# **What you will be able to do**
#
# - say what BERT, GPT-2 and T5 may see, what each learns from, and what each cannot do; and show it with three small models;
# - compute attention in blocks without ever holding all scores, equal to the full one;
# - write linear attention and a state-space layer both as a recurrence and in parallel, and show that the two are equal;
# - compute the size of a cache of keys and values, and what grouped heads save;
# - measure what a stream costs with a cache and with a state, and say where RNNs still serve.
#
# **Time**: about 90 minutes, then as long again for the exercises in `exercises/08_after_the_transformer.ipynb`. The notebook runs from top
# to bottom in about a minute on two cores. **You need** lesson 06 (masks, scaled dot-product attention) and lesson 07 (blocks, the cache).

# %% tags=["setup"]
from course_utils import runtime

device = runtime.start("08", needs="training the three small models")

# %%
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from course_utils import corpus, decoding, figures, probes
from course_utils.claims import claim
from course_utils.corpus import BOS, EOS, Batches, Pair, Vocabulary, grammar
from course_utils.models import (
    Output,
    Stack,
    Transformer,
    causal_mask,
    prefix_mask,
    window_mask,
)
from course_utils.training import train
from course_utils.widgets import cache_explorer

# %% [markdown]
# ## 1 · Three ways to learn from bare text
#
# A translator learns from pairs. But most text comes alone, and there is a lot of it. How does one learn from a sentence with nothing beside it? Hide a part, and predict it from
# the rest. The three models differ in what they hide:
#
# - **BERT** ([Devlin et al. 2019](https://arxiv.org/abs/1810.04805)) hides single words here and there, and predicts them from *both sides*;
# - **GPT-2** ([Radford et al. 2019](https://openai.com/index/better-language-models/)) hides everything that follows, and predicts the *next word*, at every place;
# - **T5** ([Raffel et al. 2020](https://arxiv.org/abs/1910.10683)) hides runs of words, and lets a *decoder write them out*.

# %%
sentence = ["the", "small", "cat", "slept", "here", "."]
spans = ["<0>", "small", "cat", "<1>", "here", "."]
past = "each sees what came before"
figures.tasks_diagram(
    {
        "BERT": [([*sentence[:2], "[MASK]", *sentence[3:]], ["", "", "cat", "", "", ""], "all see all")],
        "GPT-2": [(["<bos>", *sentence], [*sentence, "<eos>"], past)],
        "T5": [
            (["the", "<0>", "slept", "<1>"], [], "all see all"),
            (["<bos>", *spans], [*spans, "<eos>"], f"{past}, and the left stack"),
        ],
    },
    special=["[MASK]", "<0>", "<1>", "<bos>", "<eos>"],
)

# %% [markdown]
# A picture to keep: three exams. BERT takes a cloze test with single gaps. GPT-2 covers the page with a sheet of paper and guesses each next word before it moves the sheet on. T5 gets a page with holes and writes, on
# another page, what was in each. The picture is good because all three use the same page and need no teacher. It breaks in one place: at the desk you would look at whatever you liked, while these models see what the *mask* lets them
# see, and a model that can see the answer learns to copy it.
#
# ## 2 · Who may see whom
#
# So the mask is not a detail: it decides what may be asked. Here are the four of this lesson. True means "may attend", as everywhere in this course. `prefix_mask` is the one between BERT
# and GPT-2: the first words (a question, say) see one another, and the rest (the answer) is written from left to right.

# %%
masks = {
    "both ways (BERT)": torch.ones(6, 6, dtype=torch.bool),
    "causal (GPT-2)": causal_mask(6),
    "prefix of 3": prefix_mask(6, 3),
    "window of 2": window_mask(6, 2),
}
figures.mask_grids({name: mask.numpy() for name, mask in masks.items()}, sentence)

# %% [markdown]
# A mask says what *should* happen. What does happen in a block? Change one word, and look which outputs move. If the block has no leak, the table of what moved is the mask.


# %%
def moved_by(mask: torch.Tensor) -> torch.Tensor:
    """(asking, changed): does the output of a word move when another word is changed? One block, random weights."""
    runtime.seed(0)
    stack = Stack(20, width=16, heads=2, inner=32, layers=1, positions="rotary").double()
    tokens = torch.arange(len(mask))[None]  # (1, length)
    before = stack(tokens, mask).states[0]  # (length, width)
    moved = []
    for place in range(len(mask)):
        changed = tokens.clone()
        changed[0, place] = 19
        moved.append((stack(changed, mask).states[0] - before).abs().amax(dim=-1) > 1e-9)  # (length,)
    return torch.stack(moved, dim=1)


# %% tags=["nbval-check-output"]
for name, mask in masks.items():
    print(f"{name:17} what moves is what the mask allows: {torch.equal(moved_by(mask), mask)}")

# %% [markdown]
# > **Predict first.** And T5? It has two stacks and *three* attentions: the encoder's (both ways), the decoder's (causal), and the decoder's look at the encoder. Suppose you wrote source and target as one long
# > sentence. What would the mask of that sentence look like?

# %% tags=["nbval-check-output"]
source, target = 4, 3
sees = torch.ones(source, source, dtype=torch.bool)  # the encoder: all of the source
never = torch.zeros(source, target, dtype=torch.bool)  # the source does not see the target
looks = torch.ones(target, source, dtype=torch.bool)  # the decoder looks at the encoder
as_one = torch.cat([torch.cat([sees, never], 1), torch.cat([looks, causal_mask(target)], 1)])
print("T5's three masks as one:\n", as_one.int().numpy())
print("the prefix mask:", torch.equal(as_one, prefix_mask(source + target, source)))

# %% [markdown]
# It is the prefix mask. (T5 is not *the same* as a prefix language model: its two stacks have weights of their own, and its decoder looks at itself and at the source in two separate softmaxes. But information flows along the same
# paths. The T5 paper compares them in its sections 3.2.1 and 3.2.4.)
#
# ## 3 · One text for all three
#
# The English side of the course's grammar. We keep short sentences made of its 150 most frequent words, so that a small model learns something in seconds. Each model gets the same sentences and the same vocabulary: the words, BERT's
# `[MASK]`, and one *sentinel* for T5, `<0>`, which means "here is a gap".

# %%
drawn = grammar.sample(runtime.by_scale(class_=30_000, full=200_000), seed=0, min_length=5, max_length=9)
counts = Counter(word for pair in drawn for word in pair.source)
frequent = {word for word, _ in counts.most_common(150)}
sentences = [s for s in dict.fromkeys(pair.source for pair in drawn) if frequent.issuperset(s)]
random.Random(0).shuffle(sentences)
held_out, text = sentences[:2500], sentences[2500:]
vocabulary = Vocabulary([*Vocabulary.from_sentences(sentences).words, "[MASK]", "<0>"])
ordinary = vocabulary.words[4:-2]  # without <pad>, <bos>, <eos>, <unk> and the last two
print(f"{len(text):,} sentences to learn from, {len(held_out):,} held out, {len(vocabulary)} words")
for s in held_out[:4]:
    print("  ", " ".join(s))

# %% [markdown]
# BERT and GPT-2 are one class here: a stack of two blocks, with an output layer that shares its matrix with the embeddings. **The mask is all that differs**: BERT reads the (corrupted) source and sees both ways, GPT-2 reads what came before. (The block is lesson 07's, with rotary positions. BERT and GPT-2 themselves learn
# a vector for each position; BERT's block is post-LN.)


# %%
class OneStack(nn.Module):
    """A language model of one stack: causal (GPT-2), or seeing both ways (BERT)."""

    def __init__(self, causal: bool):
        super().__init__()
        self.causal = causal
        self.stack = Stack(len(vocabulary), width=64, heads=4, inner=128, layers=2, positions="rotary")
        self.bias = nn.Parameter(torch.zeros(len(vocabulary)))

    def forward(self, source, source_mask, target_in) -> Output:
        if self.causal:
            tokens, mask = target_in, causal_mask(target_in.shape[1], target_in.device)
        else:
            tokens, mask = source, source_mask[:, None, None]
        states = self.stack(tokens, mask).states  # (batch, length, width)
        return Output(F.linear(states, self.stack.embedding.weight, self.bias), None)


# %% [markdown]
# ## 4 · BERT: gaps
#
# For each sentence, BERT's corruption **chooses** 15% of the words. Of these, 80% become `[MASK]`, 10% become a random word, and 10% stay as they are. All of them are predicted, and nothing else.
#
# > **Predict first.** Why not simply mask all 15%? What would the model learn about a word that is *not* masked?


# %%
def with_gaps(sentence: tuple[str, ...], rng: random.Random) -> Pair:
    """(what BERT reads, the sentence); a link (i, i) marks a place that is to be predicted."""
    read, chosen = list(sentence), set()
    for place in range(len(sentence)):
        if rng.random() < 0.15:
            chosen.add((place, place))
            kind = rng.random()
            if kind < 0.8:
                read[place] = "[MASK]"
            elif kind < 0.9:
                read[place] = rng.choice(ordinary)
    return Pair(tuple(read), sentence, frozenset(chosen))


rng = random.Random(3)
for s in text[:4]:
    pair = with_gaps(s, rng)
    print(
        f"{' '.join(pair.source):38} predict: {', '.join(s[i] for i, _ in sorted(pair.links)) or 'nothing'}"
    )

# %% [markdown]
# In use, no word is masked. A model that only ever answers for `[MASK]` has no reason to make good vectors of the other words; with the random 10%, any word might be wrong, and with the 10% that stay, it might be right. (With sentences as short as
# ours, some have no gap at all. BERT's have up to 512 tokens.)
#
# The course's training loop wants batches that are drawn anew for each epoch: other gaps every time. Only the loss's mask is new: it is True at the chosen places.


# %%
class GapBatches:
    """Batches of sentences with gaps, other gaps in each epoch."""

    def __len__(self) -> int:
        return len(self._batches(0))

    def _batches(self, epoch: int) -> Batches:
        rng = random.Random(epoch)
        pairs = [with_gaps(sentence, rng) for sentence in text]
        return Batches(pairs, vocabulary, vocabulary, max_tokens=1_500, seed=0)

    def epoch(self, number: int):
        for batch in self._batches(number).epoch(number):
            chosen = torch.zeros_like(batch.target_mask)  # (batch, target)
            for row, pair in enumerate(batch.pairs):
                chosen[row, [place for place, _ in pair.links]] = True
            yield replace(batch, target_mask=chosen)


# %%
STEPS = runtime.by_scale(class_=600, full=6_000)
runtime.seed(0)
bert = OneStack(causal=False).to(device)
history = train(bert, GapBatches(), steps=STEPS, learning_rate=1e-2, label="BERT")
print(f"loss {np.mean(history.loss[-50:]):.2f} nats a gap after {STEPS} steps, {history.seconds:.0f} s")

# %% [markdown]
# ## 5 · GPT-2: the next word
#
# No corruption is needed: the course's batches already shift the sentence by one place. Each word is predicted from those before it, so **every** word of the text is a lesson, where BERT learns from one in seven. Two thirds of the steps will do.

# %%
runtime.seed(0)
gpt = OneStack(causal=True).to(device)
plain = Batches([Pair(s, s) for s in text], vocabulary, vocabulary, max_tokens=1_500, seed=0)
history = train(gpt, plain, steps=STEPS * 2 // 3, learning_rate=1e-2, label="GPT-2")
print(
    f"loss {np.mean(history.loss[-50:]):.2f} nats a word after {STEPS * 2 // 3} steps, {history.seconds:.0f} s"
)

# %% [markdown]
# ## 6 · T5: spans, written out
#
# T5 hides whole spans: one sentinel stands for a run of words, and the decoder says what was there. The source gets shorter, the target holds only what is hidden, and the model has to find out *how many* words are missing. Ours hides one span a sentence,
# of one to three words, or, now and then, everything to the end. (The paper's are 3 words long on average and 15% of the text together, with a sentinel for each.)


# %%
def with_span(sentence: tuple[str, ...], rng: random.Random) -> Pair:
    """(the sentence with one span hidden, the span behind its sentinel)."""
    start = rng.randrange(len(sentence) - 1)
    stop = len(sentence) if rng.random() < 0.15 else min(len(sentence), start + rng.randint(1, 3))
    return Pair((*sentence[:start], "<0>", *sentence[stop:]), ("<0>", *sentence[start:stop]))


rng = random.Random(3)
spans = [with_span(s, rng) for s in text for _ in range(2)]
for pair in spans[:6:2]:
    print(f"{' '.join(pair.source):38} write: {' '.join(pair.target)}")

# %% [markdown]
# The model is lesson 07's `Transformer`, with one block in the encoder and one in the decoder: two blocks, as the others have. As in T5, both stacks share one table of embeddings. (Positions are lesson 07's sinusoids here; T5 itself learns a number for each distance.) It gets twice the steps: it has to learn not only the
# text, but also where to look in another stack (lesson 04 showed how late attention finds its words).

# %%
runtime.seed(0)
t5 = Transformer(len(vocabulary), len(vocabulary), width=64, heads=4, inner=128, layers=1)
t5.encoder.embedding = t5.decoder.embedding
t5 = t5.to(device)
span_batches = Batches(spans, vocabulary, vocabulary, max_tokens=1_200, seed=0)
history = train(t5, span_batches, steps=2 * STEPS, learning_rate=5e-3, label="T5")
print(f"loss {np.mean(history.loss[-50:]):.2f} nats a word after {2 * STEPS} steps, {history.seconds:.0f} s")

# %% [markdown]
# ## 7 · What each can do, and what it cannot
#
# **First exam: a gap.** One word of a held-out sentence is hidden. Some gaps can be filled from the left: *the cats* ___ *here*. Others only from the **right**: in ___ *old cats*, the noun says
# whether it was *this* or *these*. We take as many of the one as of the other, so that a guess is right in half of the cases. The three models are asked the same way; only what they read differs.


# %%
def asked(model: nn.Module, sentence: tuple[str, ...], place: int) -> tuple[Pair, int]:
    """What a model reads when the word at `place` is hidden, and the place of its answer."""
    before, after = sentence[:place], sentence[place + 1 :]
    if model is bert:
        return Pair((*before, "[MASK]", *after), sentence), place
    if model is t5:
        return Pair((*before, "<0>", *after), ("<0>", sentence[place])), 1
    return Pair(sentence, sentence), place  # GPT-2 reads <bos> and the words before; it cannot see the rest


@torch.no_grad()
def answers(model: nn.Module, gaps: list[tuple[tuple[str, ...], int]]) -> torch.Tensor:
    """The log-probabilities of all words for each gap, (gaps, vocabulary)."""
    pairs, places = zip(*(asked(model, *gap) for gap in gaps), strict=True)
    batch = corpus.make_batch(pairs, vocabulary, vocabulary).to(device)
    logits = model(batch.source, batch.source_mask, batch.target_in).logits
    return logits[torch.arange(len(pairs)), torch.tensor(places)].log_softmax(dim=-1).cpu()


# %% [markdown]
# > **Predict first.** For *this* or *these*, and for *is* or *are*: who is near 100%, who near 50%?


# %%
def gaps_of(*words: str) -> list[tuple[tuple[str, ...], int]]:
    """Gaps for these words, as many of each, in held-out sentences."""
    found = {word: [(s, i) for s in held_out for i, w in enumerate(s) if w == word] for word in words}
    return [gap for places in found.values() for gap in places[: min(map(len, found.values()))]]


def right(model: nn.Module, *words: str) -> float:
    """How often the right one of `words` is the likeliest of them."""
    gaps = gaps_of(*words)
    best = answers(model, gaps)[:, vocabulary.encode(words)].argmax(dim=-1)
    return float(np.mean([words[i] == s[place] for i, (s, place) in zip(best, gaps, strict=True)]))


# %%
CHOICES = [("this", "these"), ("is", "are"), ("a", "an")]
share = {
    (name, pair): right(m, *pair)
    for name, m in (("BERT", bert), ("GPT-2", gpt), ("T5", t5))
    for pair in CHOICES
}
print(f"{'':7}" + "".join(f"{' / '.join(pair):>16}" for pair in CHOICES))
for name in ("BERT", "GPT-2", "T5"):
    print(f"{name:7}" + "".join(f"{share[name, pair]:>16.0%}" for pair in CHOICES))
print("gaps   " + "".join(f"{len(gaps_of(*pair)):>16}" for pair in CHOICES))

# %% [markdown]
# *is / are* hangs on the subject, which stands on the left: GPT-2 does it as well as BERT. The other two columns hang on what follows, and there GPT-2 can do no more than guess. No training would help: what decides
# is behind its mask. T5 reads both sides, as BERT does. (*a / an* is the hardest: one has to know how each word begins, and these models see no letters.)
#
# Can GPT-2 not use the right side at all? It can, by a detour. It gives a probability to a *whole sentence*, $p(x_1)\,p(x_2 \mid x_1) \cdots$, so one can try each candidate and read on: after a wrong *this*, the plural comes as a surprise.


# %%
@torch.no_grad()
def sentence_scores(sentences: list[tuple[str, ...]]) -> torch.Tensor:
    """The log-probability of each whole sentence under GPT-2, (sentences,)."""
    batch = corpus.make_batch([Pair(s, s) for s in sentences], vocabulary, vocabulary).to(device)
    logits = gpt(batch.source, batch.source_mask, batch.target_in).logits.log_softmax(dim=-1)
    words = logits.gather(-1, batch.target_out[..., None])[..., 0]  # (batch, target)
    return (words * batch.target_mask).sum(dim=1).cpu()


gaps = gaps_of("this", "these")
tried = {w: sentence_scores([(*s[:i], w, *s[i + 1 :]) for s, i in gaps]) for w in ("this", "these")}
chosen = torch.where(tried["this"] > tried["these"], 0, 1)
by_detour = np.mean([("this", "these")[c] == s[i] for c, (s, i) in zip(chosen.tolist(), gaps, strict=True)])
print(f"GPT-2, every candidate tried in the whole sentence: {by_detour:.0%}")

# %% [markdown]
# It knows. But the detour costs a pass for every candidate: two here, as many as there are words for an open gap, and more than anyone can pay for two gaps.
#
# **Second exam: go on.** Each gets the first three words of held-out sentences. GPT-2 writes its likeliest next word, reads it, and so on. BERT has never been asked for a next word, but one can try: put a `[MASK]` behind the beginning, fill it, and repeat. T5
# gets a sentinel at the end, and its decoder writes.


# %%
@torch.no_grad()
def go_on(model: nn.Module, beginnings: list[tuple[str, ...]], words: int = 7) -> list[tuple[str, ...]]:
    """The likeliest continuations, word by word, of beginnings of equal length."""
    if model is t5:
        written = decoding.translate(t5, [(*b, "<0>") for b in beginnings], vocabulary, vocabulary)
        return [tuple(found.tokens[1:]) for found in written]  # without the sentinel
    ids = torch.tensor([[BOS, *vocabulary.encode(b)] for b in beginnings], device=device)
    gap = torch.tensor([*vocabulary.encode(["[MASK]"]), EOS], device=device).expand(len(ids), 2)
    for _ in range(words):
        read = ids if model is gpt else torch.cat([ids[:, 1:], gap], dim=1)
        logits = model(read, torch.ones_like(read, dtype=torch.bool), read).logits
        best = logits[:, -1 if model is gpt else -2].argmax(dim=-1, keepdim=True)
        ids = torch.cat([ids, best], dim=1)
    return [tuple(vocabulary.decode(row)[len(b) :]) for row, b in zip(ids, beginnings, strict=True)]


beginnings = list(dict.fromkeys(s[:3] for s in held_out))[:200]
written = {name: go_on(model, beginnings) for name, model in (("GPT-2", gpt), ("BERT", bert), ("T5", t5))}
for b, *endings in list(zip(beginnings, *written.values(), strict=True))[:4]:
    for name, ending in zip(written, endings, strict=True):
        print(f"{name:6} {' '.join(b):22} | {' '.join(ending)}")

# %% [markdown]
# How good is a continuation? A rough measure: how many of its runs of three words occur anywhere in the text that was learned from. For the real continuations of held-out sentences it says what is to be expected.

# %%
known = {run for s in text for run in zip(s, s[1:], s[2:], strict=False)}


def seen(beginnings: list[tuple[str, ...]], endings: list[tuple[str, ...]]) -> float:
    """The share of the runs of three words that end in a continuation and occur in the text."""
    whole = [(*b[-2:], *e) for b, e in zip(beginnings, endings, strict=True)]
    return float(np.mean([run in known for s in whole for run in zip(s, s[1:], s[2:], strict=False)]))


fluent = {name: seen(beginnings, endings) for name, endings in written.items()}
real = [next(s[3:] for s in held_out if s[:3] == b) for b in beginnings]
for name, value in (fluent | {"real text": seen(beginnings, real)}).items():
    print(f"{name:10} {value:.0%} of the runs of three words occur in the text")

# %% [markdown]
# BERT cannot write. Behind a beginning it sees the end of the sentence, so what mostly stood there, the full stop, is its answer; and then it is asked again, for something that no sentence it has read contains. GPT-2 and T5 write sentences. (Likely runs
# occur more often than those of real text, because the likeliest word is always a common one.)
#
# **Third exam: a gap of unknown size.** BERT needs to be told how many words are missing, by the number of `[MASK]`s. T5 gets one sentinel, whatever is missing, and its decoder stops when it has said enough.

# %%
long_enough = [s for s in held_out if len(s) >= 7][:200]
for hidden in (1, 2, 3):
    gapped = [(*s[:2], "<0>", *s[2 + hidden :]) for s in long_enough]
    found = [f.tokens[1:] for f in decoding.translate(t5, gapped, vocabulary, vocabulary)]
    lengths = np.array([len(words) for words in found])
    print(
        f"missing {hidden}: T5 writes {lengths.mean():.2f} words on average, more than one in {np.mean(lengths > 1):.0%}"
    )
    s, words = next((s, w) for s, w in zip(long_enough, found, strict=True) if len(w) >= min(hidden, 2))
    print(
        f"   {' '.join(s[:2])} [{' '.join(words)}] {' '.join(s[2 + hidden :])}   (it was: {' '.join(s[2 : 2 + hidden])})"
    )

# %% [markdown]
# Where one word is missing, it writes one. Where more are missing, it writes more than one far more often, though it likes to be short: a shorter filling often fits as well, and it is the likelier one. What it writes does not always fit; the model is small and has been trained for seconds.

# %% tags=["nbval-check-output"]
claim(
    "08.1",
    "BERT sees both ways, GPT-2 the past, T5 reads both ways and writes: where the right side decides, BERT is right in "
    "over 85%, T5 in over 60%, and GPT-2 guesses; GPT-2 and T5 continue a text, BERT does not",
    holds=share["BERT", ("this", "these")] > 0.85
    and share["T5", ("this", "these")] > 0.6
    and abs(share["GPT-2", ("this", "these")] - 0.5) < 0.1
    and share["GPT-2", ("is", "are")] > 0.85
    and min(fluent["GPT-2"], fluent["T5"]) > 0.5
    and fluent["BERT"] < 0.25,
    measured="this / these: "
    + ", ".join(f"{name} {share[name, ('this', 'these')]:.0%}" for name in ("BERT", "GPT-2", "T5"))
    + f" (GPT-2 by trying both: {by_detour:.0%}); known runs of three words: "
    + ", ".join(f"{name} {value:.0%}" for name, value in fluent.items()),
)

# %% [markdown]
# Three models, one block. GPT-3, Llama and their relatives (section 14) are causal. Reasons are in these pages: a causal model learns from every word, writes, keeps its past in a cache (nothing that came earlier ever changes), and, by
# the detour of *reading the question first*, does what the others were made for. Encoders such as BERT are still what one uses for turning a text into a vector.
#
# ## 8 · Long texts, and a window
#
# Lesson 06 measured the square of the length. The first remedy: let no word look further back than a **window** of $w$ words ([Beltagy et al. 2020](https://arxiv.org/abs/2004.05150), Longformer; Mistral 7B, [Jiang et al.
# 2023](https://arxiv.org/abs/2310.06825)). Then there are $N \cdot w$ scores instead of $N^2$.
#
# > **Predict first.** `scaled_dot_product_attention` with a boolean `window_mask`: how much faster is it than without?
#
# To use that most scores are not wanted, one must not compute them. Cut the sentence in blocks of $w$ words: the window of a word lies in its own block and the one before.


# %%
def windowed(query, key, value, window: int) -> torch.Tensor:
    """Causal attention in a window, block by block: (batch, length, width), the length a multiple of the window."""
    query, key, value = (
        x.unflatten(1, (-1, window)) for x in (query, key, value)
    )  # (batch, blocks, window, width)

    def with_previous(x):
        return torch.cat(
            [F.pad(x, (0, 0, 0, 0, 1, 0))[:, :-1], x], dim=2
        )  # (batch, blocks, 2 * window, width)

    t, s = torch.arange(window, 2 * window)[:, None], torch.arange(2 * window)[None]
    mask = (s <= t) & (t - s < window)  # (window, 2 * window)
    first = torch.arange(query.shape[1])[:, None, None] == 0  # before the first block there is nothing
    mask = mask & ~(first & (s < window))  # (blocks, window, 2 * window)
    return F.scaled_dot_product_attention(query, with_previous(key), with_previous(value), mask).flatten(1, 2)


# %% tags=["nbval-check-output"]
generator = torch.Generator().manual_seed(0)
query, key, value = torch.randn(3, 1, 96, 16, generator=generator).unbind()  # (batch, length, width) each
masked = F.scaled_dot_product_attention(query, key, value, window_mask(96, 8))
print("block by block equals the mask:", torch.allclose(windowed(query, key, value, 8), masked, atol=1e-6))

# %%
WINDOW = 64
window_times = {"full": {}, "full, with a window mask": {}, "window, in blocks": {}}
for n in (512, 1024, 2048, 4096):
    q, k, v = torch.randn(3, 1, n, 64, generator=generator).unbind()
    mask = window_mask(n, WINDOW)
    ways = {
        "full": lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        "full, with a window mask": lambda q=q, k=k, v=v, m=mask: F.scaled_dot_product_attention(q, k, v, m),
        "window, in blocks": lambda q=q, k=k, v=v: windowed(q, k, v, WINDOW),
    }
    for name, seconds in probes.compare(ways, repeats=3).items():
        window_times[name][n] = 1000 * seconds
figures.lines(
    {name: (list(found), list(found.values())) for name, found in window_times.items()},
    xlabel="length (words)", ylabel="time (ms)", xscale="log", yscale="log",
)  # fmt: skip

# %% [markdown]
# A mask alone saves nothing: the scores are computed and thrown away. In blocks, twice the length takes twice the time at most.
#
# What is lost? Each block of the model looks back $w - 1$ words, and blocks are stacked, so what is read may travel: after $L$ blocks from $L \cdot (w - 1)$ words back, if each hands it on. The measurement: change one word far back, and see whether the last output moves.


# %%
def reach(layers: int, window: int, length: int = 32) -> int:
    """From how many words back the last output of a stack can be moved."""
    runtime.seed(0)
    stack = Stack(20, width=16, heads=2, inner=32, layers=layers, positions="rotary").double()
    tokens = torch.zeros(1, length, dtype=torch.int64)
    last = stack(tokens, window_mask(length, window)).states[0, -1]
    for back in range(length - 1, 0, -1):
        changed = tokens.clone()
        changed[0, -1 - back] = 1
        if not torch.allclose(
            stack(changed, window_mask(length, window)).states[0, -1], last, atol=1e-12, rtol=0
        ):
            return back
    return 0


# %% tags=["nbval-check-output"]
for layers in (1, 2, 4):
    print(f"window 5, {layers} blocks: the last word hears from {reach(layers, 5)} words back")

# %% [markdown]
# ## 9 · A softmax that never sees all its scores
#
# The second remedy keeps every score, and the exact result, but not the *table*. A softmax seems to need all scores at once: the highest, to subtract it, and the sum, to divide by. Milakov and Gimelshein
# ([2018](https://arxiv.org/abs/1805.02867)) noticed that both can be kept up **online**. Let $m$ be the highest score so far, $\ell$ the sum of $e^{s - m}$, and $o$ the sum of $e^{s - m} v$. A new block of scores $s$ with values $v$ comes:
#
# $$m' = \max(m, \max_j s_j) \qquad \ell' = e^{m - m'} \ell + \sum_j e^{s_j - m'} \qquad o' = e^{m - m'} o + \sum_j e^{s_j - m'} v_j$$
#
# and at the end the output is $o / \ell$. When the highest score rises, all that was summed before shrinks by the same factor. One query, six keys, in blocks of two:

# %%
scores = np.array([1.0, 2.0, 0.5, 4.0, 3.0, -1.0])
values = np.array([10.0, 20.0, 30.0, 40.0, 50.0, 60.0])
highest, total, output, running = -np.inf, 0.0, 0.0, []
for block, block_values in zip(scores.reshape(3, 2), values.reshape(3, 2), strict=True):
    new_highest = max(highest, block.max())
    shrink = np.exp(highest - new_highest)  # 0 for the first block
    parts = np.exp(block - new_highest)
    total, output = shrink * total + parts.sum(), shrink * output + parts @ block_values
    highest = new_highest
    running.append((highest, shrink, total))
figures.softmax_in_blocks(scores.reshape(3, 2).tolist(), running)

# %% tags=["nbval-check-output"]
weights = np.exp(scores) / np.exp(scores).sum()
print(f"in blocks {output / total:.6f}, all at once {weights @ values:.6f}")

# %% [markdown]
# This is the idea of **FlashAttention** ([Dao et al. 2022](https://arxiv.org/abs/2205.14135)): the table of scores is never written to the GPU's large, slow memory. Blocks of keys and values are brought into the small, fast one, used, and let go; on the way
# back the scores are computed once more, since that is cheaper than fetching them. It is not an approximation, and the number of operations is still $N^2$; what shrinks is memory and its traffic. Here for all queries of a sentence, beside PyTorch's function:


# %%
def in_blocks(query, key, value, size: int) -> torch.Tensor:
    """Full attention, (batch, length, width), keys in blocks: never more than length x size scores at once."""
    highest = torch.full((*query.shape[:2], 1), -torch.inf)
    total, output = 0.0, 0.0
    for k, v in zip(key.split(size, dim=1), value.split(size, dim=1), strict=True):
        scores = query @ k.mT / query.shape[-1] ** 0.5  # (batch, length, size)
        new_highest = torch.maximum(highest, scores.amax(dim=-1, keepdim=True))
        shrink, parts = (highest - new_highest).exp(), (scores - new_highest).exp()
        total, output = shrink * total + parts.sum(dim=-1, keepdim=True), shrink * output + parts @ v
        highest = new_highest
    return output / total


# %% tags=["nbval-check-output"]
query, key, value = (4 * torch.randn(3, 2, 500, 32, dtype=torch.float64, generator=generator)).unbind()
exact = F.scaled_dot_product_attention(query, key, value)
in_blocks_equal = all(
    torch.allclose(in_blocks(query, key, value, size), exact, atol=1e-12) for size in (1, 64, 200, 500)
)
print("blocks of 1, 64, 200 and 500 keys all give the full attention:", in_blocks_equal)
for size in (500, 64, 1):
    print(f"blocks of {size:3}: {2 * 500 * size:7,} scores at once")

# %% [markdown]
# The exercise asks for the same with a mask, where the highest score may be $-\infty$ for a while.
#
# ## 10 · Linear attention: attention as a recurrence
#
# The third remedy changes the function. Softmax weights are $e^{q \cdot k}$, divided by their sum. Katharopoulos et al. ([2020](https://arxiv.org/abs/2006.16236)) put another similarity in place of the exponential, a product of **features** $\phi(q)^\top \phi(k)$ with $\phi(x) = \mathrm{elu}(x)
# + 1 > 0$. Then the query can be taken out of the sum:
#
# $$o_t = \frac{\sum_{s \le t} \phi(q_t)^\top \phi(k_s)\, v_s^\top}{\sum_{s \le t} \phi(q_t)^\top \phi(k_s)}
# = \frac{\phi(q_t)^\top S_t}{\phi(q_t)^\top n_t}, \qquad
# S_t = S_{t-1} + \phi(k_t)\, v_t^\top, \quad n_t = n_{t-1} + \phi(k_t)$$
#
# On the left stands attention, with all pairs. On the right stands an RNN: a state $(S, n)$ of fixed size, one update a word, no past to keep. The paper's title says it: *Transformers are RNNs*.


# %%
def phi(x):
    return F.elu(x) + 1


def linear_parallel(query, key, value):
    """All words at once, (batch, length, width): a table of length x length, as in attention."""
    weights = (phi(query) @ phi(key).mT).tril()
    return weights @ value / weights.sum(dim=-1, keepdim=True)


def linear_recurrent(query, key, value):
    """Word by word, with a state of width x width numbers and width more."""
    memory = torch.zeros(len(query), query.shape[-1], value.shape[-1])  # S
    total = torch.zeros(len(query), query.shape[-1])  # n
    outputs = []
    for q, k, v in zip(*(x.unbind(dim=1) for x in (phi(query), phi(key), value)), strict=True):
        memory = memory + k[:, :, None] * v[:, None]
        total = total + k
        outputs.append((q[:, None] @ memory)[:, 0] / (q * total).sum(dim=-1, keepdim=True))
    return torch.stack(outputs, dim=1)


# %% tags=["nbval-check-output"]
query, key, value = torch.randn(3, 2, 300, 32, generator=generator).unbind()
linear_equal = torch.allclose(
    linear_parallel(query, key, value), linear_recurrent(query, key, value), atol=1e-4
)
print("the recurrence equals the parallel form:", linear_equal)
state_bytes = 4 * (32 * 32 + 32)
for n in (100, 1_000, 10_000):
    print(
        f"after {n:6,} words: state {state_bytes:,} bytes, cache of keys and values {4 * 2 * n * 32:,} bytes"
    )

# %% [markdown]
# > **Predict first.** A state of $32 \times 32$ numbers, however long the text. That sounds familiar. What is the price?
#
# Store $n$ pairs: a random key and a random value, 32 numbers each. Then ask with each key again, and look whether the right value is the nearest to what comes back. Softmax attention keeps all pairs in its cache; the linear forms add them up in one matrix of $32 \times 32$.

# %%
WIDTH, stored = 32, (4, 8, 16, 32, 64, 128, 256, 512)
recalled = {"softmax attention": [], "linear, plain products": [], "linear, elu + 1": []}
for n in stored:
    keys = F.normalize(torch.randn(n, WIDTH, generator=generator), dim=-1)
    symbols = F.normalize(torch.randn(n, WIDTH, generator=generator), dim=-1)  # the values
    found = {
        "softmax attention": (16 * keys @ keys.T).softmax(dim=-1) @ symbols,
        "linear, plain products": keys @ (keys.T @ symbols),
        "linear, elu + 1": phi(16 * keys) @ (phi(16 * keys).T @ symbols),
    }
    for name, answer in found.items():
        nearest = (F.normalize(answer, dim=-1) @ symbols.T).argmax(dim=-1)
        recalled[name].append(100 * (nearest == torch.arange(n)).float().mean().item())
figures.curve(stored, recalled, xlabel="pairs stored", ylabel="recalled (%)", xscale="log")

# %% [markdown]
# Softmax attention finds every pair: a score can be made as sharp as one likes, and the past is all there. The plain products hold about as many pairs as a key has numbers, and then the pairs that share the matrix talk over one another. The features that make all weights positive
# also make them flat: every answer is close to the mean of all values. It is lesson 03's bottleneck once more, seen from the other side: **what does not grow with the text has to forget.** (Models that use such states choose better features, and learn what to write and what to wipe, as an LSTM does:
# [Schlag et al. 2021](https://arxiv.org/abs/2102.11174).)
#
# ## 11 · State spaces: a recurrence that is also a convolution
#
# The fourth remedy comes from control engineering. A **linear** recurrence, with no tanh between the steps, for one channel of input $u_t$ (a number), a state $x_t$ of $n$ numbers and an output $y_t$:
#
# $$x_t = a \odot x_{t-1} + u_t \qquad y_t = \mathrm{Re}\,(c^\top x_t)$$
#
# $a$ and $c$ hold $n$ complex numbers each. Every entry of the state forgets at its own rate $|a_i| < 1$ and turns by its own angle. (The first of these models, S4, [Gu et al. 2021](https://arxiv.org/abs/2111.00396), had a full matrix in place of $a$; that a diagonal does as well was found soon after,
# [Gupta et al. 2022](https://arxiv.org/abs/2203.14343), [Gu et al. 2022](https://arxiv.org/abs/2206.11893).) A layer has many such channels side by side, and nonlinear layers between.
#
# Since nothing nonlinear happens between the steps, they can be written out: $y_t = \sum_{j \ge 0} K_j\, u_{t-j}$ with the **kernel** $K_j = \mathrm{Re} \sum_i c_i a_i^j$. That is a convolution with a kernel as long as the text.

# %%
STATES = 16
decay = torch.logspace(
    -3, -0.5, STATES, dtype=torch.float64
)  # the slowest keeps a thousand steps, the fastest three
angle = torch.linspace(0.0, 0.6, STATES, dtype=torch.float64)
a = torch.exp(torch.complex(-decay, angle))  # (states,)
c = (torch.randn(STATES, dtype=torch.float64, generator=generator) * decay.sqrt()).to(torch.complex128)


def kernel(length: int) -> torch.Tensor:
    """K_0 ... K_(length - 1), (length,)."""
    steps = torch.arange(length, dtype=torch.float64)
    return (torch.exp(a.log() * steps[:, None]) @ c).real


figures.lines(
    {"kernel": (range(1, 1001), kernel(1000).numpy())}, xlabel="lag (steps, from 1)", ylabel="K", xscale="log"
)

# %% [markdown]
# Some states answer for the last few steps, others for hundreds; together they make the waves. In a trained layer, rates, angles and $c$ are learned.
#
# Three ways to compute the same outputs. The **loop** is the recurrence as it stands. The **convolution** goes through the Fourier transform, which turns it into a product: $N \log N$ operations, all in parallel (padded with zeros to twice the length, or the end would run into the beginning). The **scan**
# joins neighbours: two steps $x \mapsto a_1 x + b_1$ and $x \mapsto a_2 x + b_2$ in a row are one step of the same kind, $x \mapsto (a_2 a_1) x + (a_2 b_1 + b_2)$. So after one round every entry covers two steps, after two rounds four, and after $\log_2 N$ rounds all.


# %%
def by_loop(u):
    """(length,) -> (length,): one step after the other."""
    state, outputs = torch.zeros(STATES, dtype=torch.complex128), []
    for number in u:
        state = a * state + number
        outputs.append((c * state).sum().real)
    return torch.stack(outputs)


def scan(factors, terms):
    """x_t = factors_t * x_(t-1) + terms_t for all t, (length, states), in log2(length) rounds."""
    gap = 1
    while gap < len(terms):
        terms = torch.cat([terms[:gap], terms[gap:] + factors[gap:] * terms[:-gap]])
        factors = torch.cat([factors[:gap], factors[gap:] * factors[:-gap]])
        gap *= 2
    return terms


# %%
def by_scan(u):
    steps = u[:, None].expand(-1, STATES).to(torch.complex128)  # (length, states)
    return (scan(a.expand(len(u), STATES), steps) @ c).real


def by_convolution(u):
    size = 2 * len(u)
    return torch.fft.irfft(torch.fft.rfft(u, size) * torch.fft.rfft(kernel(len(u)), size), size)[: len(u)]


# %% tags=["nbval-check-output"]
u = torch.randn(500, dtype=torch.float64, generator=generator)
space_equal = [torch.allclose(by_loop(u), way(u), atol=1e-10) for way in (by_scan, by_convolution)]
print("scan and convolution equal the loop:", space_equal)

# %% [markdown]
# > **Predict first.** Which of the three will be fastest at 64 steps, and which at 10,000?

# %%
space_times = {"loop": {}, "scan": {}, "convolution": {}}
for n in (16, 64, 256, 1024, 4096, 16384):
    u = torch.randn(n, dtype=torch.float64, generator=generator)
    ways = {"scan": lambda u=u: by_scan(u), "convolution": lambda u=u: by_convolution(u)}
    if n <= 1024:
        ways["loop"] = lambda u=u: by_loop(u)
    for name, seconds in probes.compare(ways, repeats=3).items():
        space_times[name][n] = 1000 * seconds
figures.lines(
    {name: (list(found), list(found.values())) for name, found in space_times.items()},
    xlabel="length (steps)", ylabel="time (ms)", xscale="log", yscale="log",
)  # fmt: skip

# %% [markdown]
# The loop is the slowest here, because Python starts every step by itself (a compiled loop would move the line down, not change its slope); what it has is that it needs the *last state only*. So one trains in parallel, by convolution or scan, and writes word by word,
# by the loop. That is the bargain: the training of a Transformer with the memory of an RNN.
#
# **Where recurrence came back.** A kernel that is the same everywhere cannot choose what to remember. Mamba ([Gu and Dao 2023](https://arxiv.org/abs/2312.00752)) makes $a$ depend on the input, $a_t = a(u_t)$, as the gates of an LSTM do. Then there is no single kernel and no
# convolution. The scan does not mind: it never asked the factors to be equal.


# %%
def selective(u, parallel: bool):
    """A state-space channel whose factors depend on the input: where u is below 0, it forgets."""
    factors = a * torch.sigmoid(4 * u)[:, None]  # (length, states)
    steps = u[:, None].expand(-1, STATES).to(torch.complex128)
    if parallel:
        return (scan(factors, steps) @ c).real
    state, states = torch.zeros(STATES, dtype=torch.complex128), []
    for factor, step in zip(factors, steps, strict=True):
        state = factor * state + step
        states.append(state)
    return (torch.stack(states) @ c).real


# %% tags=["nbval-check-output"]
u = torch.randn(300, dtype=torch.float64, generator=generator)
selective_equal = torch.allclose(selective(u, True), selective(u, False), atol=1e-10)
print("with factors that depend on the input, scan equals loop:", selective_equal)
doubled = [
    torch.allclose(way(2 * u), 2 * way(u), atol=1e-8) for way in (by_scan, lambda u: selective(u, True))
]
print("twice the input gives twice the output: fixed", doubled[0], "| selective", doubled[1])

# %% [markdown]
# The last line is the price and the point: a convolution is linear, and this is not.


# %% tags=["nbval-check-output"]
def slope(found: dict[int, float], start: int) -> float:
    """The slope on log-log axes from `start` on."""
    lengths = [n for n in found if n >= start]
    return float(np.polyfit(np.log(lengths), np.log([found[n] for n in lengths]), 1)[0])


slopes = {name: slope(found, 1024) for name, found in window_times.items()}
claim(
    "08.2",
    "the square of the length hurts, and there are ways round it: a window in blocks grows more slowly in time than full "
    "attention; online softmax, linear attention and a state space equal their other forms, with memory that does not grow",
    holds=slopes["window, in blocks"] + 0.3 < slopes["full"]
    and in_blocks_equal
    and linear_equal
    and all(space_equal)
    and selective_equal,
    measured=f"slope of time from 1,024 words on: full {slopes['full']:.2f}, with a mask "
    f"{slopes['full, with a window mask']:.2f}, in blocks {slopes['window, in blocks']:.2f}; state space at 1,024 steps: "
    + ", ".join(f"{name} {found[1024]:.1f} ms" for name, found in space_times.items()),
)

# %% [markdown]
# ## 12 · The cache, and grouped keys
#
# A model that writes keeps the keys and values of all words so far (lesson 07). In every block, for every word: a key and a value for each head. One remedy is as simple as it looks: let several heads of queries **share** keys and values. With one head of keys for all it is called *multi-query* attention
# ([Shazeer 2019](https://arxiv.org/abs/1911.02150)), with a few *grouped-query* attention ([Ainslie et al. 2023](https://arxiv.org/abs/2305.13245)). The course's `MultiHeadAttention` has it as `key_heads`.

# %% tags=["nbval-check-output"]
tokens = torch.randint(100, (1, 200), generator=generator)
cache_sizes = {}
for key_heads in (8, 4, 2, 1):
    runtime.seed(0)
    stack = Stack(100, width=64, heads=8, inner=128, layers=2, positions="rotary", key_heads=key_heads)
    kept = stack(tokens, causal_mask(200)).cache
    cache_sizes[key_heads] = sum(part.nbytes for part in kept)
    by_hand = 2 * 2 * key_heads * (64 // 8) * 200 * 4  # keys and values, blocks, heads, width, words, bytes
    print(f"{key_heads} key heads: {cache_sizes[key_heads]:7,} bytes for 200 words; by hand {by_hand:7,}")

# %% [markdown]
# The same arithmetic for a model that people use. Llama 3 with 70 billion parameters has 80 blocks, 64 heads of width 128 and 8 heads of keys (Table 3 of [its paper](https://arxiv.org/abs/2407.21783)), and reads up to 128 K words. In 16 bits:

# %% tags=["nbval-check-output"]
for key_heads in (64, 8):
    word = 2 * 80 * key_heads * 128 * 2
    print(
        f"{key_heads:2} key heads: {word:9,} bytes a word, {word * 2**17 / 2**30:5.0f} GiB for 131,072 words"
    )

# %% [markdown]
# With 64, the cache of a single text would fill more than four GPUs of 80 GB; with 8 it fills about half of one. But it still grows with every word.
#
# ## 13 · Where RNNs still serve: streams
#
# A stream has no end: speech from a microphone, a sensor, the keys of a telephone. What does the *next* step cost when $n$ have gone by? We let an RNN and a causal stack of the same width take one step, behind pasts of different lengths. (The stack's past is made up; what stands in a cache does not change the time.)

# %%
runtime.seed(0)
stack = Stack(100, width=64, heads=4, inner=128, layers=2, positions="rotary").eval()
rnn = nn.GRU(64, 64, num_layers=2, batch_first=True)
word, number, state = torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, 1, 64), torch.zeros(2, 1, 64)
memory = {"GRU": {}, "attention with a cache": {}}
step_times = {"GRU": {}, "attention with a cache": {}}
with torch.no_grad():
    for n in (64, 256, 1024, 4096, 16384, 65536):
        past = tuple(
            torch.randn(1, 4, n, 16, generator=generator) for _ in range(4)
        )  # keys, values of two blocks
        memory["GRU"][n] = state.nbytes / 1024
        memory["attention with a cache"][n] = sum(part.nbytes for part in past) / 1024
        ways = {
            "GRU": lambda: rnn(number, state),
            "attention with a cache": lambda p=past: stack(word, None, cache=p),
        }
        for name, seconds in probes.compare(ways, repeats=5).items():
            step_times[name][n] = 1000 * seconds

# %%
for title, found in (("memory between two steps (KiB)", memory), ("time of one step (ms)", step_times)):
    figures.lines(
        {name: (list(row), list(row.values())) for name, row in found.items()},
        xlabel="words so far", ylabel=title, xscale="log", yscale="log",
    )  # fmt: skip

# %% tags=["nbval-check-output"]
first, last = 64, 65536
growth = {name: row[last] / row[first] for name, row in memory.items()}
slower = {name: row[last] / row[first] for name, row in step_times.items()}
claim(
    "08.3",
    "in a stream an RNN keeps the same few bytes for ever; a cache grows with every word, and so, in the end, does the time of a step",
    holds=growth["GRU"] == 1
    and growth["attention with a cache"] == last / first
    and slower["attention with a cache"] > 3
    and slower["GRU"] < 3,
    measured=f"between {first} and {last:,} words: GRU {memory['GRU'][last]:.1f} KiB throughout, cache "
    f"{memory['attention with a cache'][first]:,.0f} to {memory['attention with a cache'][last]:,.0f} KiB; one step takes "
    f"{slower['GRU']:.1f} and {slower['attention with a cache']:.1f} times as long",
)

# %% [markdown]
# So where do RNNs remain? Where memory is small and the stream is long: speech recognition on a telephone (He et al. [2018](https://arxiv.org/abs/1811.06621)), the next word on a keyboard (Hard et al. [2018](https://arxiv.org/abs/1811.03604)). And in a course such as this one, because what came after answers what they could not do. A cache can be
# given a constant size too, with a window (section 8); then it forgets what has left the window, where an RNN forgets what it chose to overwrite.
#
# ## 14 · A timeline
#
# You will read that every large language model since the Transformer is one. Let us say what can be sourced. The year is that of the first public version.

# %%
EVENTS = [
    (1990, "simple recurrent network", "recurrence", "Elman, doi.org/10.1207/s15516709cog1402_1"),
    (1997, "LSTM", "recurrence", "Hochreiter and Schmidhuber, doi.org/10.1162/neco.1997.9.8.1735"),
    (2014, "GRU; encoder and decoder", "recurrence", "Cho et al., arxiv.org/abs/1406.1078"),
    (2014, "sequence to sequence", "recurrence", "Sutskever et al., arxiv.org/abs/1409.3215"),
    (2014, "additive attention", "attention", "Bahdanau et al., arxiv.org/abs/1409.0473"),
    (2015, "dot, general, local attention", "attention", "Luong et al., arxiv.org/abs/1508.04025"),
    (2017, "Transformer", "attention", "Vaswani et al., arxiv.org/abs/1706.03762"),
    (2018, "GPT", "attention", "Radford et al., openai.com/index/language-unsupervised"),
    (2018, "BERT", "attention", "Devlin et al., arxiv.org/abs/1810.04805"),
    (2019, "GPT-2", "attention", "Radford et al., openai.com/index/better-language-models"),
    (2019, "T5", "attention", "Raffel et al., arxiv.org/abs/1910.10683"),
    (2019, "multi-query attention", "attention", "Shazeer, arxiv.org/abs/1911.02150"),
    (2020, "GPT-3", "attention", "Brown et al., arxiv.org/abs/2005.14165"),
    (2020, "windows (Longformer)", "attention", "Beltagy et al., arxiv.org/abs/2004.05150"),
    (2020, "linear attention", "states in parallel", "Katharopoulos et al., arxiv.org/abs/2006.16236"),
    (2021, "rotary positions", "attention", "Su et al., arxiv.org/abs/2104.09864"),
    (2021, "S4", "states in parallel", "Gu et al., arxiv.org/abs/2111.00396"),
]

# %%
EVENTS += [
    (2022, "FlashAttention", "attention", "Dao et al., arxiv.org/abs/2205.14135"),
    (2023, "Llama", "attention", "Touvron et al., arxiv.org/abs/2302.13971"),
    (2023, "GPT-4", "attention", "OpenAI, arxiv.org/abs/2303.08774"),
    (2023, "grouped-query attention", "attention", "Ainslie et al., arxiv.org/abs/2305.13245"),
    (2023, "Gemini", "attention", "Gemini Team, arxiv.org/abs/2312.11805"),
    (2023, "RWKV", "states in parallel", "Peng et al., arxiv.org/abs/2305.13048"),
    (2023, "Mamba", "states in parallel", "Gu and Dao, arxiv.org/abs/2312.00752"),
    (2024, "Jamba (Mamba with attention)", "states in parallel", "Lieber et al., arxiv.org/abs/2403.19887"),
    (2024, "Llama 3", "attention", "Llama Team, arxiv.org/abs/2407.21783"),
]
figures.timeline([event[:3] for event in EVENTS])

# %%
for year, name, _, source in EVENTS:
    print(f"{year}  {name:30} {source}")

# %% tags=["nbval-check-output"]
MODELS = {"GPT", "BERT", "GPT-2", "T5", "GPT-3", "Llama", "GPT-4", "Gemini", "Llama 3"}
with_attention = {name for _, name, kind, source in EVENTS if kind == "attention" and source}
without = {name for year, name, kind, _ in EVENTS if year >= 2018 and kind == "states in parallel"}
claim(
    "08.4",
    "BERT, T5, Gemini, the GPTs up to GPT-4 and Llama are Transformers, as their own papers say; since 2020 there is another "
    "line, with a state in place of attention, or with some of both",
    holds=with_attention >= MODELS and {"Mamba", "RWKV"} <= without,
    measured=f"{len(MODELS)} models with a paper that says so; the other line: {', '.join(sorted(without))}",
    source="the papers named in the table above",
)

# %% [markdown]
# "Every large model" is more than can be shown: for some nothing is published, and Mamba and RWKV have no attention at all. What can be said is that of the large models whose makers describe them, most have this block in them, and that hybrids such as Jamba keep some layers of it, to look things up.
#
# ## 15 · Explore
#
# Step through decoding with and without a cache, and size the cache by the numbers of blocks, heads and heads of keys.

# %%
cache_explorer()

# %% [markdown]
# ## 16 · Common mistakes
#
# Each of these has been found in published code. Each runs without an error, or nearly.
#
# **Another number for "ignore".** `F.cross_entropy` leaves out the label -100. With 0 a word that has the number 0 is never learned; with -1 it stops with an error, on a GPU with one that names another line.

# %%
labels = torch.tensor([-100, 0, 7])
print("chosen, by != -100:", (labels != -100).tolist(), "  by > 0:", (labels > 0).tolist())
try:
    F.cross_entropy(torch.zeros(3, 8), torch.tensor([-1, 0, 7]))
except IndexError as error:
    print("-1:", error)

# %% [markdown]
# **Drawing twice.** Choose half of the words, then "80% of them" by a coin whose result is used to choose *and* to mask:

# %%
coin = torch.Generator().manual_seed(0)
chosen = torch.rand(100_000, generator=coin) < 0.5
chosen_again = chosen & (torch.rand(100_000, generator=coin) < 0.8)
masked = chosen_again & (torch.rand(100_000, generator=coin) < 0.8)
print(f"masked: {masked.float().mean():.2f} of the words; it should be {0.5 * 0.8:.2f}")

# %% [markdown]
# **Adding the raw mask.** Some functions want a mask to *add*: 0 for what may be seen, $-\infty$ for what may not. A mask of 1 and 0, added as it is, moves scores by 1 and hides nothing. Test: padding must weigh nothing.

# %%
row, keep = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, True, False])
print("1 and 0 added:      ", [round(w, 3) for w in (row + keep.float()).softmax(0).tolist()])
print("0 and -inf added:   ", [round(w, 3) for w in (row.masked_fill(~keep, -torch.inf)).softmax(0).tolist()])

# %% [markdown]
# **The shift of a target that has no start.** T5's target is `<0> small cat </s>`, without a beginning. A decoder that reads all but the last of it, and predicts all but the first, never learns to write the first sentinel. Adding the start in two places is the opposite mistake; and one library
# made a tensor of zeros, wrote the start into it, and forgot the rest. Where labels hold -100, they have to be put back to padding *before* they are read: there is no embedding with the number -100.

# %%
labels, start, pad = torch.tensor([37, 423, 1]), 0, 0
print("right:     reads", [start, *labels[:-1].tolist()], " predicts", labels.tolist())
print("no start:  reads", labels[:-1].tolist(), "    predicts", labels[1:].tolist())
print("twice:     reads", [start, start, *labels[:-1].tolist()])
print("of zeros:  reads", [start, *torch.zeros_like(labels)[:-1].tolist()])
padded = torch.tensor([5, -100, -100])
print(
    "with -100: reads",
    [start, *padded[:-1].tolist()],
    " which should be",
    [start, *padded.masked_fill(padded == -100, pad)[:-1].tolist()],
)

# %% [markdown]
# **Distances between two texts.** T5 adds to each score a learned number that depends on the distance of the two words. That makes sense inside of one text. Between source and target, places are counted separately; a decoder that adds the bias there too pulls word 2 of the target towards word 2 of the source, wherever the gap is.
# (And a decoder's distances are all backwards: it needs other buckets than the encoder, which looks both ways.)

# %%
source_place, target_place = torch.arange(8)[None], torch.arange(3)[:, None]
content = torch.zeros(3, 8)
content[:, 6] = 3.0  # the gap is at place 6, and all three target words look for it
bias = -(source_place - target_place).abs().float()
print("without the bias, place looked at most:", content.softmax(-1).argmax(-1).tolist())
print("with it:                               ", (content + bias).softmax(-1).argmax(-1).tolist())

# %% [markdown]
# **Online softmax without shrinking the old sums.** It is right as long as the highest score comes first, so a test with falling scores passes.


# %%
def careless(scores, values, size=2):
    highest, total, output = -np.inf, 0.0, 0.0
    for s, v in zip(scores.reshape(-1, size), values.reshape(-1, size), strict=True):
        highest = max(highest, s.max())
        total, output = total + np.exp(s - highest).sum(), output + np.exp(s - highest) @ v
    return output / total


for name, order in (("falling", np.argsort(-scores)), ("rising", np.argsort(scores))):
    weights = np.exp(scores) / np.exp(scores).sum()
    print(f"{name:8} careless {careless(scores[order], values[order]):.3f}, right {weights @ values:.3f}")

# %% [markdown]
# **A convolution that wraps around.** Without padding, the Fourier transform treats the text as a ring: the end runs into the beginning, and the model sees the future.

# %%
impulse = torch.zeros(8, dtype=torch.float64)
impulse[6] = 1.0  # nothing happens before step 6
ring = torch.fft.irfft(torch.fft.rfft(impulse) * torch.fft.rfft(kernel(8)), 8)
print("without padding, outputs of steps 0 to 5:", [round(y, 2) for y in ring[:6].tolist()])
print(
    "with padding:                            ",
    [round(y, 2) + 0.0 for y in by_convolution(impulse)[:6].abs().tolist()],
)

# %% [markdown]
# ## 17 · Check yourself
#
# **1. You have trained GPT-2 and want it to fill a gap, with text on both sides. What is true?**
#
# <details><summary>a) It cannot use the right side at all</summary>No. It can score the whole sentence with each candidate; that uses the right side, at a pass a candidate.</details>
# <details><summary>b) It fills the gap as BERT does, if you give it the whole sentence</summary>No. The logits at the gap have not seen what follows, whatever you feed in.</details>
# <details><summary>c) It can, by trying every candidate and comparing whole sentences</summary>Yes. Section 7 did it for two candidates. For an open gap it takes as many passes as there are words.</details>
#
# **2. Why are 10% of BERT's chosen words left as they are?**
#
# <details><summary>a) To save time</summary>No. They are predicted like the others.</details>
# <details><summary>b) So that the model has to make good vectors for words that are not masked, too</summary>Yes. In use there is no [MASK]; a word that stands there may be asked for as well.</details>
# <details><summary>c) So that the loss is lower</summary>No, though it is: these are easy. Nobody trains for that.</details>
#
# **3. FlashAttention on a text of twice the length: what doubles, what quadruples?**
#
# <details><summary>a) Time and memory double</summary>No. Every query still meets every key.</details>
# <details><summary>b) Memory doubles, the number of operations quadruples</summary>Yes. It is exact attention; only the table of scores is never stored.</details>
# <details><summary>c) Both quadruple, but they are small</summary>No. The table, which quadruples, is what it does without.</details>
#
# **4. Why has Mamba no convolution?**
#
# <details><summary>a) Its state is too large</summary>No. The size of the state does not matter for that.</details>
# <details><summary>b) Its factors depend on the input, so there is no kernel that is the same everywhere</summary>Yes. A scan does not need one.</details>
# <details><summary>c) Convolutions see the future</summary>No. A causal kernel, padded, does not.</details>
#
# **5. A model has 32 heads of queries and 8 of keys. What is four times smaller than with 32 of keys?**
#
# <details><summary>a) The number of scores</summary>No. Each of the 32 heads still scores every pair.</details>
# <details><summary>b) The cache</summary>Yes. It holds keys and values alone.</details>
# <details><summary>c) The model</summary>No. Only the matrices that make keys and values shrink.</details>
#
# ## 18 · What to take away
#
# - BERT, GPT-2 and T5 are one block under different masks, with different parts of the text hidden. The mask decides what a model can be asked.
# - The softmax can be computed in blocks, exactly: three running numbers a query. That is FlashAttention's idea. It saves memory, not operations.
# - Linear attention and state spaces are recurrences with a parallel form: training like a Transformer, writing like an RNN.
# - What does not grow has to forget; what does not forget has to grow. Windows, grouped keys, states and hybrids are places between the two.
#
# **Further reading**: [Raffel et al. (2020)](https://arxiv.org/abs/1910.10683), section 3, compares masks and objectives with great patience · [Dao et al. (2022)](https://arxiv.org/abs/2205.14135), FlashAttention · [Katharopoulos et al.
# (2020)](https://arxiv.org/abs/2006.16236), *Transformers are RNNs* · [Gu and Dao (2023)](https://arxiv.org/abs/2312.00752), Mamba, whose section 2 reviews state spaces · [Tay et al. (2020)](https://arxiv.org/abs/2009.06732), a survey of efficient Transformers.
#
# **Now do the exercises**: `exercises/08_after_the_transformer.ipynb`. **Next**: this was the last lesson. Go back to lesson 01's first question, why a network forgets, and answer it once more, with all you know now.
