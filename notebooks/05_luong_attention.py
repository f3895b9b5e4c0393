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
# # 05 · Luong attention: simpler scores, and a question asked later
#
# <!-- badge -->
#
# Lesson 04's decoder looks back with a small network that compares states. Is so much needed? Luong, Pham and Manning
# ([2015](https://arxiv.org/abs/1508.04025)) tried less: a plain dot product, or one matrix. They also changed *when* the decoder
# looks, and what it remembers of having looked. Each of these choices has a price and a use, and this lesson measures both.
#
# **What you will be able to do**
#
# - write the scores dot, general, concat and location, and say what each can and cannot compare;
# - put Luong's decoder in its order (step, look, join) and tell it from Bahdanau's;
# - mend the widths when a dot product meets a bidirectional encoder, and show that concat *is* the additive score;
# - look through a window that moves (local attention), and feed the decoder what it found (input feeding);
# - read a table of all these under one budget, and name the mistake that input feeding cures.
#
# **Time**: about 75 minutes, then as long again for the exercises in `exercises/05_luong_attention.ipynb`. The notebook runs
# from top to bottom in about two minutes on two cores. **You need** lesson 04.

# %% tags=["setup"]
from course_utils import runtime

device = runtime.start("05", needs="training the translators")

# %%
import random
from collections import Counter

import numpy as np
import torch
from torch import nn

# %%
from course_utils import decoding, figures, metrics, probes
from course_utils.claims import claim
from course_utils.corpus import Batches, Pair, Vocabulary, grammar
from course_utils.models import (
    AdditiveScore,
    DotScore,
    Encoder,
    GeneralScore,
    LocalAttention,
    LocationScore,
    LuongDecoder,
    Seq2Seq,
    luong,
)
from course_utils.training import train
from course_utils.widgets import score_explorer

# %% [markdown]
# ## 1 · Step first, then look
#
# Bahdanau's decoder looks with $s_{t-1}$, the state it had before it read the word $y_{t-1}$. So the question is asked with old
# knowledge. Luong's decoder first takes its step to $s_t$, and asks with that. What it finds does not go through the recurrent
# cell any more; it meets the state in one more layer, the **attentional state** $\tilde h_t$, from which the word is predicted:
#
# $$a_t = \mathrm{softmax}_j\big(\mathrm{score}(s_t, h_j)\big)\ (7) \qquad c_t = \sum_j a_{tj} h_j \qquad
# \tilde h_t = \tanh(W_c\,[c_t ; s_t])\ (5) \qquad p(y_t) = \mathrm{softmax}(W_s \tilde h_t)\ (6)$$
#
# The numbers are the paper's, which writes $h_t$ for our $s_t$ and $\bar h_s$ for our $h_j$. (There is a bias in our output layer, too.)
#
# > **Predict first.** In which of the two orders can the decoder's recurrent network run over a whole known translation
# > in one call, before any look is made?

# %%
figures.order_diagram()

# %% [markdown]
# The dashed arrow is *input feeding*, which section 6 is about. Without it, nothing that a look finds comes back into the
# recurrent network: Luong's states $s_1, s_2, \dots$ depend on the first state and the words alone, so that they can all be computed first, and
# then all words look at once. In Bahdanau's order the context goes into the cell, and each step has to wait for a look.
#
# The same in code, one sentence and one step at a time. Each line has its equation.


# %%
def bahdanau_step(word, s, h, score, cell):
    """One step in Bahdanau's order. Returns s_t, and what the word is predicted from."""
    a = score(s, h).softmax(dim=-1)  # Bahdanau (6): the old state s_{t-1} asks
    c = a @ h  # Bahdanau (5)
    s = cell(torch.cat([word, c]), s)  # Bahdanau, section 3.1: s_t
    return s, torch.cat([s, word, c])  # Bahdanau (4)


def luong_step(word, fed, s, h, score, cell, W_c):
    """One step in Luong's order. Returns s_t, and the attentional state, from which the word is predicted."""
    s = cell(torch.cat([word, fed]), s)  # Luong, section 3.3: s_t
    a = score(s, h).softmax(dim=-1)  # Luong (7): the new state s_t asks
    c = a @ h  # Luong, section 3.1
    return s, torch.tanh(W_c @ torch.cat([c, s]))  # Luong (5)


# %% [markdown]
# Is the second one the course's model? We take an untrained one, with input feeding and the dot score, copy its parts, and go
# through a made-up sentence by hand.

# %%
runtime.seed(0)
model = luong(
    source_size=20, target_size=30, score="dot", feeding=True, hidden=8, encoder_hidden=4, embedding=6
)
source, target = torch.randint(4, 20, (1, 5)), torch.randint(4, 30, (1, 7))
mask = torch.ones(1, 5, dtype=torch.bool)
with torch.no_grad():
    decoder, memory = model.decoder, model.encode(source, mask)
    cell = nn.GRUCell(6 + 8, 8)  # the input: an embedding and an attentional state
    cell.load_state_dict(decoder.cell.state_dict())
    s, fed = decoder.start(memory)[0][0], torch.zeros(8)
    logits = []
    for word in decoder.embedding(target)[0]:
        s, fed = luong_step(word, fed, s, memory.states[0], lambda s, h: h @ s, cell, decoder.combine.weight)
        logits.append(decoder.output(fed))  # Luong (6)
    same_model = torch.allclose(torch.stack(logits), model(source, mask, target).logits[0], atol=1e-5)
print("by hand and the course's decoder agree:", same_model)

# %% [markdown]
# ## 2 · Three scores, and an odd one out
#
# $$\mathrm{score}(s_t, h_j) = \begin{cases} s_t^\top h_j & \text{dot} \\ s_t^\top W_a h_j & \text{general} \\
# v_a^\top \tanh(W_a\,[s_t ; h_j]) & \text{concat} \end{cases} \qquad\qquad a_t = \mathrm{softmax}(W_a s_t) \quad \text{location}$$
#
# **Dot** has nothing to learn: state and encoder must learn to speak one language, in which "alike" means "large product". **General** puts
# a dictionary between the two, the matrix $W_a$. **Concat** is a small network. **Location** (equation 8) is the odd one out: it never sees
# $h_j$. The state alone picks places: the first, the second, the third ...
#
# A picture to keep: the state holds up a paper shape, and asks which of the source's shapes fits. Dot lays the one on the other. General first turns
# and stretches it, always in the same way. The picture breaks where length comes in: a dot product grows with the length of $h_j$, so a long vector
# can win against one that points in the right direction.


# %%
def scores_by_hand(kind, s, h, W=None, v=None):
    """The scores of one state s, (query,), for all source words h, (source, key): (source,)."""
    if kind == "dot":
        return h @ s
    if kind == "general":
        return np.array([s @ W @ h_j for h_j in h])
    if kind == "concat":
        return np.array([v @ np.tanh(W @ np.concatenate([s, h_j])) for h_j in h])
    return (W @ s)[: len(h)]  # location: one row of W for each place


s = np.array([1.0, 2.0])
h = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])  # three source words
W = np.array([[1.0, 2.0], [0.0, 1.0]])
print("dot     ", scores_by_hand("dot", s, h))
print("general ", scores_by_hand("general", s, h, W))
print(
    "concat  ", scores_by_hand("concat", s, h, np.array([[1.0, 0, 0, 1], [0, 1, 1, 0]]), np.ones(2)).round(3)
)
print("location", scores_by_hand("location", s, h, np.array([[0.5, 0], [0, 0.5], [1, 1], [0, 0]])))

# %% [markdown]
# > **Predict first.** We shuffle the three source words. Which of the four scores are shuffled in the same way, and which one
# > is not?

# %%
order = [2, 0, 1]
location = np.array([[0.5, 0], [0, 0.5], [1, 1], [0, 0]])
for kind, given in (("dot", ()), ("general", (W,)), ("location", (location,))):
    before, after = scores_by_hand(kind, s, h, *given), scores_by_hand(kind, s, h[order], *given)
    print(f"{kind:8} shuffled alike: {np.array_equal(before[order], after)}")

# %% [markdown]
# Location attends to *places*, whatever stands there. That can do for two languages with nearly the same word order, and it is helpless beyond
# the longest sentence that it was made for.
#
# The course's modules score whole batches. With the same numbers they must say the same.

# %%
random_numbers = np.random.RandomState(0)
s, h = random_numbers.randn(4), random_numbers.randn(6, 4)
W, both, v, places = (random_numbers.randn(*shape) for shape in ((4, 4), (5, 8), (5,), (9, 4)))


def module_scores(score: nn.Module, **parameters) -> np.ndarray:
    """The scores by a module of the course, with these parameters."""
    score.load_state_dict({name.replace("_", ".", 1): torch.tensor(p) for name, p in parameters.items()})
    with torch.no_grad():
        query, states = torch.tensor(s)[None, None], torch.tensor(h)[None]  # (1, target, .), (1, source, .)
        return score.double()(query, score.double().project_keys(states))[0, 0].numpy()


# %%
both_ways = {
    "dot": (module_scores(DotScore(4, 4)), scores_by_hand("dot", s, h)),
    "general": (module_scores(GeneralScore(4, 4), key_weight=W), scores_by_hand("general", s, h, W)),
    "concat": (
        module_scores(AdditiveScore(4, 4, 5), query_weight=both[:, :4], key_weight=both[:, 4:], v=v),
        scores_by_hand("concat", s, h, both, v),
    ),
    "location": (
        module_scores(LocationScore(4, 9), places_weight=places),
        scores_by_hand("location", s, h, places),
    ),
}
gaps = {kind: float(abs(one - other).max()) for kind, (one, other) in both_ways.items()}
print({kind: f"{gap:.1e}" for kind, gap in gaps.items()})

# %% tags=["nbval-check-output"]
claim(
    "05.1",
    "dot, general, concat (and location) are scores of one decoder, which asks with s_t and predicts from tanh(W_c[c; s])",
    holds=same_model and all(gap < 1e-6 for gap in gaps.values()),
    measured=f"by hand and by the course's modules, largest difference {max(gaps.values()):.1e}",
    source="measured above; Luong et al. 2015, section 3.1 and equation 5",
)

# %% [markdown]
# The concat score was computed by `AdditiveScore`, lesson 04's module. How can that be?
#
# ## 3 · Concat is additive
#
# A matrix times a concatenation is a sum of two products. Cut $W$ between the columns that meet $s$ and those that meet $h_j$:
#
# $$W\,[s ; h_j] = \begin{bmatrix} W_s & W_h \end{bmatrix} \begin{bmatrix} s \\ h_j \end{bmatrix} = W_s s + W_h h_j$$
#
# So $v^\top\tanh(W[s;h_j])$ is Bahdanau's score to the letter; the one asks with $s_t$, the other with $s_{t-1}$. The second form is what one should
# compute: $W_h h_j$ can be done once a sentence, and the long vectors $[s_t ; h_j]$, one for each pair of words, are never built.

# %%
wide = np.random.RandomState(1)
s_1, h_1 = wide.randn(256), wide.randn(20, 256)
W_1, v_1 = wide.randn(128, 512) * 0.05, wide.randn(128)
together = scores_by_hand("concat", s_1, h_1, W_1, v_1)
apart = np.tanh(W_1[:, :256] @ s_1 + h_1 @ W_1[:, 256:].T) @ v_1
print("largest difference:", f"{abs(together - apart).max():.1e}")

# %% tags=["nbval-check-output"]
claim(
    "05.3",
    "concat is the additive score: W[s; h] = W_s s + W_h h, equal to rounding",
    holds=np.allclose(together, apart, atol=1e-10),
    measured=f"largest difference {abs(together - apart).max():.1e} on scores up to {abs(together).max():.1f}",
)

# %% [markdown]
# In the paper concat did poorly (a perplexity of 6.7 to 7.1, footnote 15), and the authors say that more should be done to find out why. As the
# form is Bahdanau's, which did well, the form cannot be the reason. Section 7 has it among the others.
#
# ## 4 · What a dot product needs, and what it saves
#
# A dot product needs two vectors of one width. You will read that this is the usual case. With a bidirectional encoder it is not: $h_j$ holds two states,
# and is twice as wide as each.

# %%
states, _ = nn.GRU(32, 128, bidirectional=True, batch_first=True)(torch.randn(1, 10, 32))
s_t = torch.randn(1, 1, 128)
print("encoder states", tuple(states.shape), " decoder state", tuple(s_t.shape))
try:
    s_t @ states.mT
except RuntimeError as error:
    print("torch says:  ", str(error).split(" at ")[0])
try:
    DotScore(query_width=128, key_width=256)
except ValueError as error:
    print("the course says:", error)

# %% [markdown]
# Two mends are usual. **Halve** each direction of the encoder, so that both together are as wide as the decoder (all models of this lesson do so). Or put a **matrix**
# between them: on the score's side that is general, on the encoder's side a layer that maps $h_j$ to the decoder's width, and then dot.
#
# To take the forward half alone is no mend: what comes after word $j$ would never be compared (see the mistakes below).

# %%
half, _ = nn.GRU(32, 64, bidirectional=True, batch_first=True)(torch.randn(1, 10, 32))
bridge = nn.Linear(256, 128, bias=False)
print("halved directions: ", tuple((s_t @ half.mT).shape))
print(
    "general:           ",
    tuple(GeneralScore(128, 256)(s_t, GeneralScore(128, 256).project_keys(states)).shape),
)
print("bridge, then dot:  ", tuple((s_t @ bridge(states).mT).shape))

# %% [markdown]
# What does each score cost? We count its parameters, the numbers that it keeps for the way back through the network, and the time of a way
# there and back, for a batch of 32 sentences of 40 words, with states of width 128.
#
# > **Predict first.** Concat looks at every pair of a target and a source word through a layer of 128. How much more will it keep than dot: twice as much, ten times, a hundred times?


# %%
def kept(function) -> int:
    """Bytes of the different tensors that autograd keeps for the backward pass of function()."""
    sizes = {}

    def note(x):
        sizes[x.data_ptr()] = max(sizes.get(x.data_ptr(), 0), x.numel() * x.element_size())
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        function()
    return sum(sizes.values())


# %%
queries = torch.randn(32, 40, 128, requires_grad=True, device=device)
keys = torch.randn(32, 40, 128, requires_grad=True, device=device)
modules = {
    "dot": DotScore(128, 128), "general": GeneralScore(128, 128),
    "concat": AdditiveScore(128, 128, 128), "location": LocationScore(128, 64),
}  # fmt: skip
modules = {kind: module.to(device) for kind, module in modules.items()}
forward = {kind: lambda m=m: m(queries, m.project_keys(keys)).sum() for kind, m in modules.items()}
cost = {kind: (sum(p.numel() for p in m.parameters()), kept(forward[kind])) for kind, m in modules.items()}
times = probes.compare({kind: lambda f=f: f().backward() for kind, f in forward.items()}, repeats=5)
for kind, (parameters, size) in cost.items():
    print(
        f"{kind:8} {parameters:7,} parameters {size / 1e6:7.2f} MB kept {1000 * times[kind]:7.2f} ms there and back"
    )

# %% tags=["nbval-check-output"]
claim(
    "05.2",
    "dot is the cheapest content score: no parameters, least memory; concat keeps over 10 times as much and takes over 3 times as long",
    holds=cost["dot"][0] == 0
    and cost["dot"][1] <= cost["general"][1] < cost["concat"][1] / 5
    and cost["concat"][1] > 10 * cost["dot"][1]
    and times["concat"] > 3 * times["dot"],
    measured="; ".join(
        f"{kind} {n:,} parameters, {size / 1e6:.1f} MB, {1000 * times[kind]:.1f} ms"
        for kind, (n, size) in cost.items()
    ),
)

# %% [markdown]
# Dot and general are products of matrices, which is what all hardware does best, and they keep little more than their inputs. Concat holds a vector for every pair of words. This is why the
# dot product became the usual score: lesson 06 builds on it.
#
# ## 5 · Looking through a window
#
# Global attention looks at all source words. For a word in the middle of a long document that is much work, most of it for weights near zero. **Local** attention looks at $2D + 1$ words
# at most, around a middle $p_t$:
#
# - **local-m** (monotonic): $p_t = t$. The window moves along with the words that are written.
# - **local-p** (predictive): the state says where, and words far from the middle count less:
#
# $$p_t = S \cdot \mathrm{sigmoid}\big(v_p^\top \tanh(W_p s_t)\big)\ (9) \qquad a_{tj} = \mathrm{softmax}_j(\mathrm{score}) \cdot \exp\Big(-\frac{(j - p_t)^2}{2\sigma^2}\Big)\ (10), \quad \sigma = \frac{D}{2}$$
#
# $S$ is the number of source words. The Gaussian is more than a taste for the middle. Which words lie in a window does not change when $p_t$ moves a little,
# so no gradient comes from that. Through the Gaussian, $v_p$ and $W_p$ can learn.

# %%
sentence = ["le", "chat", "noir", "voit", "la", "maison", "près", "du", "lac"]
scores = np.array([0.0, 2.0, 1.0, 0.0, 0.5, 1.5, 0.0, 0.0, 1.0])
here, D = np.arange(len(sentence)), 2


def window_weights(scores, p, gaussian):
    """Softmax in the window p - D ... p + D; for local-p times a Gaussian of standard deviation D / 2."""
    inside = abs(here - p) <= D
    weights = np.where(inside, np.exp(scores), 0)
    weights = weights / weights.sum()
    return weights * np.exp(-((here - p) ** 2) / (2 * (D / 2) ** 2)) if gaussian else weights


by_window = {
    "global": np.exp(scores) / np.exp(scores).sum(),
    "local-m": window_weights(scores, 4, gaussian=False),
    "local-p": window_weights(scores, 1.4, gaussian=True),
}
figures.windows_on_source(by_window, sentence, centres={"local-m": 4.0, "local-p": 1.4}, reach=D)

# %% [markdown]
# The scores are the same in all three. In local-m the window has moved to place 4, and has lost *chat*, the word with the largest score; in local-p the middle was put at 1.4.
# The weights of local-p sum to less than 1, as in the paper: a word far from the middle is dimmed, and nothing makes up for it. (Some implementations divide by the sum. State it when you do.)
#
# And by the course's `LocalAttention`, whose middle we set to 1.4 by its parameters:

# %%
layer = LocalAttention(lambda query, keys: torch.tensor(scores)[None, None], query_width=1, reach=D).double()
with torch.no_grad():
    layer.centre[0].weight.fill_(1.0)
    layer.centre[2].weight.fill_(np.log(1.4 / (9 - 1.4)) / np.tanh(1.0))  # sigmoid(...) = 1.4 / 9
    one, none = torch.ones(1, 1, 1).double(), torch.zeros(1, 9, 1).double()
    _, found = layer(
        one, none, none, torch.ones(1, 9, dtype=torch.bool), torch.zeros(1, 1, dtype=torch.int64)
    )
print("by hand and the course's module agree:", np.allclose(found[0, 0], by_window["local-p"]))

# %% [markdown]
# ## 6 · Input feeding: remember where you have looked
#
# Without feeding, what does $s_t$ know? The words written so far, and the decoder's first state, which is one vector made by the encoder. That is lesson 03's bottleneck, and it is
# back: not for *what is read*, but for the *question* that is asked. What the looks have found is used for one word each, and then forgotten. The paper's remedy is **input feeding**: the
# attentional state $\tilde h_{t-1}$ is joined with the next embedding, $x_t = [E y_{t-1} ; \tilde h_{t-1}]$, so that the next question can take earlier answers into account.

# %%
figures.feeding_diagram(["the", "blue", "house"])

# %% [markdown]
# > **Predict first.** We change what is *found* (the values $h_j$ that are averaged), and leave alone what is compared (the keys) and the first state. Will the weights of the third word change, without feeding and with it?

# %%
for feeding in (False, True):
    runtime.seed(0)
    small = luong(
        source_size=20, target_size=30, score="general", feeding=feeding, hidden=8, encoder_hidden=4
    )
    with torch.no_grad():
        memory = small.encode(source, mask)
        other = memory._replace(states=torch.randn_like(memory.states))
        looks = [small.decoder(target[:, :3], small.start(m), m)[2][0, -1] for m in (memory, other)]
    print(f"feeding {feeding!s:5} the third word's weights change: {not torch.equal(*looks)}")

# %% [markdown]
# Without feeding not one digit changes. What does it cost? Step $t$ now has to wait for the look of step $t-1$, in training too. The time of one training step, by the number of target words:

# %%
lengths = [10, 20, 40]
by_feeding = {}
for feeding, name in ((False, "without feeding"), (True, "with feeding")):
    runtime.seed(0)
    timed = luong(100, 100, score="dot", feeding=feeding).to(device)
    steps = {}
    for n in lengths:
        words, real = (
            torch.randint(4, 100, (32, n), device=device),
            torch.ones(32, n, dtype=torch.bool, device=device),
        )
        steps[n] = lambda timed=timed, w=words, r=real: timed(w, r, w).logits.sum().backward()
    by_feeding[name] = probes.compare(steps, repeats=3)
milliseconds = {name: [1000 * took[n] for n in lengths] for name, took in by_feeding.items()}
figures.curve(lengths, milliseconds, xlabel="words, source and target", ylabel="ms a training step")

# %% [markdown]
# With feeding a step takes longer at every length. Besides the waiting there is a second reason: one fused call of `nn.GRU` can no longer run all steps.
#
# Now what it buys. What a decoder without feeding can't know shows best where it has nothing else to hold on to. So we take its other memory away, too: a decoder whose recurrent
# state starts from zeros at every word. It knows the word that it has just written and, with feeding, what it found for it. Its task is to copy strings of six letters, in which letters come back:
#
# `b a d a c` $\to$ `b a d a c`
#
# > **Predict first.** It has written `b a`. What does it need to know to write `d`? And after `b a d a`?


# %%
class Forgetful(LuongDecoder):
    """Luong's decoder without a recurrent state: it knows the word before and, if `fed`, the look before."""

    fed = True

    def forward(self, tokens, state, memory):
        s, attentional, t = state
        found, rows = [], []
        for word in self.embedding(tokens).unbind(dim=1):  # (batch, embedding)
            given = attentional if self.fed else torch.zeros_like(attentional)
            gates = self.cell.project(0, word) + self.cell.project(1, given)
            (s,) = self.cell(gates, (torch.zeros_like(s),))  # not from the s before: it forgets
            looked, weights = self.look(s[:, None], t[:, None], memory)
            attentional, t = looked[:, 0], t + 1
            found.append(looked)
            rows.append(weights)
        return self.output(torch.cat(found, dim=1)), (s, attentional, t), torch.cat(rows, dim=1)


# %%
chance = random.Random(0)
drawn = [tuple(chance.choice("abcdef") for _ in range(chance.randint(4, 10))) for _ in range(5_000)]
strings = [
    Pair(string, string, frozenset((i, i) for i in range(len(string)))) for string in dict.fromkeys(drawn)
]
copied, unseen = strings[400:], strings[:400]
letters = Vocabulary.from_sentences(pair.source for pair in copied)
copy_batches = Batches(copied, letters, letters, max_tokens=500, seed=0)
print(f"{len(copied)} strings to learn from, {len(unseen)} unseen ones")


# %%
def copier(fed: bool) -> Seq2Seq:
    """A forgetful decoder of 64 numbers over a bidirectional encoder, with the dot score."""
    runtime.seed(0)
    encoder = Encoder(len(letters), embedding=64, hidden=32)
    decoder = Forgetful(len(letters), embedding=64, hidden=64, encoder=encoder, score=DotScore(64, 64))
    decoder.fed = fed
    return Seq2Seq(encoder, decoder).to(device)


copiers = {"forgetful, not fed": copier(fed=False), "forgetful, fed": copier(fed=True)}
runtime.seed(0)
copiers["with its state, not fed"] = luong(
    len(letters), len(letters), score="dot", feeding=False, embedding=64, hidden=64, encoder_hidden=32
).to(device)

# %% [markdown]
# We count two **coverage mistakes** in what each writes: letters written *again*, more often than the string has them, and letters *left out*.


# %%
def coverage(written: list[list[str]], right: list[tuple[str, ...]]) -> tuple[int, int]:
    """Words written more often than they should be, and words left out, over many sentences."""
    counts = [(Counter(one), Counter(other)) for one, other in zip(written, right, strict=True)]
    return sum((one - other).total() for one, other in counts), sum(
        (other - one).total() for one, other in counts
    )


def translated(model: nn.Module, pairs: list[Pair], words: tuple[Vocabulary, Vocabulary]) -> list[list[str]]:
    return [list(found.tokens) for found in decoding.translate(model, [p.source for p in pairs], *words)]


# %%
COPY_STEPS = runtime.by_scale(class_=200, full=1_000)
mistakes, copies = {}, {}
for name, model in copiers.items():
    train(model, copy_batches, steps=COPY_STEPS, learning_rate=8e-3, every=COPY_STEPS, label=name)
    copies[name] = translated(model, unseen, (letters, letters))
    mistakes[name] = coverage(copies[name], [pair.target for pair in unseen])
    exact = np.mean([tuple(one) == pair.target for one, pair in zip(copies[name], unseen, strict=True)])
    again, left_out = mistakes[name]
    print(f"{name:24} {exact:4.0%} copied without a mistake; written again {again:4}, left out {left_out:4}")
print(f"of {sum(len(pair.target) for pair in unseen)} letters")

# %%
at = next(i for i, pair in enumerate(unseen) if len(pair.source) == 8 and len(set(pair.source)) < 6)
print(f"{'to copy':24}", " ".join(unseen[at].source))
for name in copiers:
    print(f"{name:24}", " ".join(copies[name][at][:16]))

# %% [markdown]
# The forgetful decoder loses its place at every letter that comes twice: after both `a`s it asks the same question, gets the same answer, and goes round in circles, or jumps ahead to the end. Fed with what it found, it
# knows *which* `a` it has just copied. The weights show it. Rows are letters to write, with the right letters before them; look at the rows of `d` and `c`, which both follow an `a`.

# %%
twice = Pair(tuple("badac"), tuple("badac"), frozenset((i, i) for i in range(5)))
panels = []
for name in ("forgetful, not fed", "forgetful, fed"):
    [weights] = decoding.attend(copiers[name], [twice], letters, letters)
    panels.append(
        {
            "weights": weights,
            "source": twice.source,
            "target": twice.target,
            "gold": twice.links,
            "title": name,
        }
    )
    print(
        f"{name}: the rows of d and c are equal:",
        np.array_equal(weights[2], weights[4]),
    )
figures.attention_matrices(panels, title="Copying b a d a c")

# %% [markdown]
# The third model tells why one can often do without: its recurrent state remembers the letters written so far, and that settles most cases. What it can't settle is where the state, too, loses count. You will see
# such places in section 8, in a real translation.

# %% [markdown]
# ## 7 · One table
#
# Now every score, with feeding and without, under one budget: the same sentences in the same order, the same number of steps, the same learning rate and first
# weights drawn from the same seed. So that ten models fit into a minute, the sentences are short, 3 to 9 words. The grammar is lesson 04's, and French is translated into English again.
#
# Two of the models look through a window, of $D = 2$ words to each side.

# %%
short = grammar.corpus(train=12_000, valid=100, test=400, seed=0, min_length=3, max_length=9).swapped()
short_source = Vocabulary.from_sentences(pair.source for pair in short.train)
short_target = Vocabulary.from_sentences(pair.target for pair in short.train)
short_batches = Batches(short.train, short_source, short_target, max_tokens=400, seed=0)
TABLE_STEPS = runtime.by_scale(class_=250, full=3_000)
rows = {
    f"{score}{', fed' if feeding else ''}": {"score": score, "feeding": feeding}
    for score in ("dot", "general", "concat", "location")
    for feeding in (False, True)
}
for name, window in (("local-m", "monotonic"), ("local-p", "predictive")):
    rows[f"dot, {name}"] = {"score": "dot", "feeding": False, "window": window, "reach": 2}
print(f"{len(rows)} models, {TABLE_STEPS} steps each, {len(short_batches)} batches an epoch")

# %% [markdown]
# > **Predict first.** Which score will learn fastest? And will feeding help on sentences as short as these?

# %%
models, losses = {}, {}
for name, settings in rows.items():
    runtime.seed(0)
    models[name] = luong(len(short_source), len(short_target), **settings).to(device)
    losses[name] = train(
        models[name], short_batches, steps=TABLE_STEPS, learning_rate=6e-3, every=TABLE_STEPS, label=name
    ).loss


# %%
def error_rate(model: nn.Module, pairs: list[Pair], words: tuple[Vocabulary, Vocabulary]) -> float:
    """Alignment error rate (lesson 04, section 9), the right translation fed in."""
    weights = decoding.attend(model, pairs, *words)
    links = [
        metrics.links_from_weights(row, len(pair.source), len(pair.target))
        for row, pair in zip(weights, pairs, strict=True)
    ]
    return metrics.alignment_error_rate(links, [p.links for p in pairs], [p.possible for p in pairs])


# %%
batch = next(iter(short_batches)).to(device)
training_steps = {
    name: lambda m=m: m(batch.source, batch.source_mask, batch.target_in).logits.sum().backward()
    for name, m in models.items()
}
took = probes.compare(training_steps, repeats=5)
words, table = (short_source, short_target), {}
print(f"{'':14} parameters   ms a step   MB kept   loss   BLEU    AER")
for name, m in models.items():
    size = sum(p.numel() for p in m.parameters())
    memory = kept(lambda m=m: m(batch.source, batch.source_mask, batch.target_in)) / 1e6
    bleu = metrics.bleu(translated(m, short.test, words), [p.target for p in short.test])
    table[name] = (bleu, error_rate(m, short.test, words), 1000 * took[name])
    print(
        f"{name:14} {size:10,} {table[name][2]:11.1f} {memory:9.1f} {np.mean(losses[name][-20:]):6.2f}"
        f" {bleu:6.1f} {table[name][1]:6.2f}"
    )

# %%
shown = ["dot", "general", "concat", "location", "dot, fed"]
smoothed = {name: np.reshape(losses[name][: TABLE_STEPS // 20 * 20], (-1, 20)).mean(axis=1) for name in shown}
figures.lines(
    {name: (20 * np.arange(1, len(loss) + 1), loss) for name, loss in smoothed.items()},
    xlabel="training step",
    ylabel="training loss (nats a word)",
    title="Short sentences: who finds the words, and when",
)

# %% [markdown]
# Read the table with care. It says who learned fastest *here*, with these widths, this text and so few steps. All these models stay on a plateau for a while, on which they write likely English and don't know
# where to look, and then fall off it, each at its own time; with another seed, neighbours in the table may change places. A model near 0 BLEU is no bad model, only one that is still up there. What is sure to stay
# is the price of a step: feeding makes every step longer, whatever the score. For the rest, likely reasons:
#
# - dot compares the states as they are. General and concat compare them through matrices that are random at first, and have to be learned as well;
# - feeding gives the question more to go by, and more to learn: as long as the looks are random, what is fed is noise;
# - location does well where sentences are short and the word order is nearly the same. But it knows places and not words, and its alignment is worse than its translations;
# - a window of a few words does no harm on sentences as short as these. (Local-p has to learn where to put it, too; with other seeds or numbers of steps it is the one whose place in the table changes most.)
#
# The paper trained for about ten epochs on 4.5 million sentence pairs; here it is a few hundred batches.
#
# ## 8 · The best of them, on all lengths
#
# Dot without feeding learns fastest and costs least. So it may have the long text, lesson 04's sentences of 3 to 50 words, and states of 192 numbers.

# %%
text = grammar.corpus(train=15_000, valid=100, test=800, seed=0, min_length=3, max_length=50).swapped()
all_words = tuple(
    Vocabulary.from_sentences(pair[side] for pair in text.train) for side in (0, 1)
)  # source, target
batches = Batches(text.train, *all_words, max_tokens=1_000, seed=0)
STEPS = runtime.by_scale(class_=500, full=6_000)
runtime.seed(0)
free = luong(*map(len, all_words), score="dot", feeding=False, hidden=192, encoder_hidden=96).to(device)
history = train(free, batches, steps=STEPS, learning_rate=6e-3, every=STEPS, label="dot, without feeding")
print(f"loss {np.mean(history.loss[-20:]):.2f} after {STEPS} steps, {history.seconds:.0f} s")

# %%
BINS = [(5, 10), (11, 20), (21, 30), (31, 39), (40, 50)]  # words of the source, both ends included


def by_length(written: list[list[str]]) -> list[metrics.LengthBin]:
    """BLEU of the test set by the length of the source."""
    lengths = [len(pair.source) for pair in text.test]
    return metrics.bleu_by_length(written, [pair.target for pair in text.test], lengths, BINS, seed=0)


def points(bins: list[metrics.LengthBin]) -> list[tuple[float, float, float, float]]:
    return [((b.low + b.high) / 2, b.score, b.low_ci, b.high_ci) for b in bins]


# %%
written = translated(free, text.test, all_words)
quality = by_length(written)
figures.quality_by_length({"dot, without feeding": points(quality)})
print(
    f"alignment error rate on {len(text.test)} unseen sentences: {error_rate(free, text.test, all_words):.3f}"
)

# %% tags=["nbval-check-output"]
print("over 90 BLEU in every bin from 5 to 39 words:", all(each.score > 90 for each in quality[:4]))

# %% [markdown]
# No step had to wait for a look. Where the model still fails, on the longest sentences, it fails in a way that you know by now.

# %%
long = [(one, p) for one, p in zip(written, text.test, strict=True) if len(p.source) > 30]
again, left_out = coverage([one for one, _ in long], [p.target for _, p in long])
print(f"{len(long)} sentences of more than 30 words: {again} words written again, {left_out} left out,")
print(f"of {sum(len(p.target) for _, p in long)} words\n")
lost = [(coverage([one], [p.target]), one, p) for one, p in long]
for (more, less), one, pair in sorted((x for x in lost if 3 < sum(x[0]) < 20), key=lambda x: -x[0][0])[:2]:
    print(f"again {more}, left out {less}")
    print("  right:", " ".join(pair.target), "\n  said: ", " ".join(one), "\n")

# %% [markdown]
# A stretch is translated twice, or jumped over. Look at the words just before the mistake: often the sentence has them, or words of their kind, in two places. Behind them the decoder's state is much the same both times,
# and what it asks for is found in both places. This is what the copier was: a decoder that does not know which of two equal places it has done. (The models with feeding need more steps than we have here until they can be
# compared on such sentences, as the table shows. With `COURSE_SCALE=full` you can train them.)

# %% [markdown]
# ## 9 · Explore
#
# Turn and stretch a query and five keys, and compare what dot, general and concat make of them. Try this: make one key long, and see whom dot prefers.

# %%
score_explorer()

# %% [markdown]
# ## 10 · What the paper measured
#
# English to German, WMT'14, test set newstest2014. Table 1 of the paper adds one thing after another:
#
# | system | BLEU |
# |---|---|
# | base (stacked LSTMs, no attention) | 11.3 |
# | + source reversed | 12.6 |
# | + dropout | 14.0 |
# | + global attention (location) | 16.8 |
# | + input feeding | 18.1 |
# | the same with local-p attention (general) | 19.0 |
# | + unknown words replaced | 20.9 |
# | eight models together, unknown words replaced | 23.0 |
#
# And Table 4 compares the scores, with input feeding and before unknown words are replaced:
#
# | attention | location | dot | general |
# |---|---|---|---|
# | global | 18.1 | 18.6 | 17.3 |
# | local-m | | | 18.6 |
# | local-p | | 18.0 | 19.0 |
#
# Dot was best for global attention and general for local attention; the differences are about one BLEU. Alignment (Table 6): the error rate of local-m (general) was 0.34,
# that of a dedicated tool, the Berkeley aligner, 0.32.

# %%
table_1 = {"dropout": 14.0, "global (location)": 16.8, "input feeding": 18.1, "local-p (general)": 19.0}
steps_up = {
    name: round(after - before, 1)
    for (name, after), before in zip(list(table_1.items())[1:], list(table_1.values())[:-1], strict=True)
}
print("what each added, in BLEU:", steps_up)

# %% tags=["nbval-check-output"]
without, fed = (sum(mistakes[name]) for name in ("forgetful, not fed", "forgetful, fed"))
claim(
    "05.4",
    "input feeding tells the decoder where it has looked: fed, the forgetful copier makes under a tenth of the coverage mistakes; "
    "in the paper feeding adds 1.3 BLEU, local-p 0.9",
    holds=fed < without / 10 and steps_up["input feeding"] == 1.3 and steps_up["local-p (general)"] == 0.9,
    measured=f"{without} letters written again or left out without feeding, {fed} with it",
    source="measured above; Luong et al. 2015, Table 1",
)

# %% [markdown]
# ## 11 · Common mistakes
#
# Each of these has been found in published code, and most run without an error.
#
# **$W_a$ on the wrong side.** $h^\top W s$ instead of $s^\top W h$. With a symmetric matrix, such as the identity that a lazy test takes, both are the same.

# %%
s, h = torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
for name, W in (("identity", torch.eye(2)), ("other", torch.tensor([[1.0, 2.0], [0.0, 1.0]]))):
    print(f"{name:8} right {(s @ W @ h.T).tolist()}  turned {(s @ W.T @ h.T).tolist()}")

# %% [markdown]
# **Concat without expanding the query, or without its last product.** The query has to stand beside every source word. And the tanh layer is not the score yet: without $v$ a sum over everything leaves one number a sentence.

# %%
batch_s, batch_h, W, v = torch.randn(2, 1, 4), torch.randn(2, 6, 4), torch.randn(5, 8), torch.randn(5)
try:
    torch.cat([batch_s, batch_h], dim=-1)
except RuntimeError as error:
    print("not expanded:", str(error).split(". ")[0])
joined = torch.cat([batch_s.expand(-1, 6, -1), batch_h], dim=-1)  # (batch, source, query + key)
print(
    "summed up:   ",
    tuple(torch.tanh(joined @ W.T).sum((1, 2)).shape),
    " right:",
    tuple((torch.tanh(joined @ W.T) @ v).shape),
)

# %% [markdown]
# **`hidden[:-1]` for `hidden[-1]`.** The last state of `nn.GRU` is (layers, batch, hidden). The top layer asks; all layers *but* the top one are something else, and of a single layer nothing is left.

# %%
for layers in (1, 2):
    output, hidden = nn.GRU(3, 4, layers, batch_first=True)(torch.randn(2, 1, 3))
    same = torch.equal(output[:, -1], hidden[-1])
    print(
        f"{layers} layer(s): hidden[:-1] {tuple(hidden[:-1].shape)}, hidden[-1] is the step's output: {same}"
    )

# %% [markdown]
# **The width of one direction.** Someone builds the attention layer for 64 numbers, meets states of 128, and cuts. It runs; half of each state, the half that has read what comes after, is ignored.

# %%
reader = nn.GRU(8, 64, bidirectional=True, batch_first=True)
before = torch.randn(1, 5, 8)
after = torch.cat([before[:, :4], torch.randn(1, 1, 8)], dim=1)  # another last word
states_before, states_after = reader(before)[0][0, 0], reader(after)[0][0, 0]  # h_1 of both
print(
    "first word, cut to 64 numbers: knows of another last word:",
    not torch.equal(states_before[:64], states_after[:64]),
)
print(
    "first word, all 128 numbers:   knows of another last word:", not torch.equal(states_before, states_after)
)

# %% [markdown]
# **The wrong vector fed, or in the wrong place.** What is fed is $\tilde h_{t-1}$, as an *input* beside the embedding. The cell's own state stays its own. Build the cell for the width of the state, feed a vector of another
# width, and it breaks; with equal widths nothing does. (To put $\tilde h_{t-1}$ in the place of the cell's state is the other variant: the cell then has no memory of its own. The check of exercise 05.3 knows both.)

# %%
embedding, attentional, hidden_width = torch.randn(1, 6), torch.randn(1, 10), 8
try:
    nn.GRUCell(6 + hidden_width, hidden_width)(torch.cat([embedding, attentional], dim=-1))
except RuntimeError as error:
    print("cell of embedding + state:      ", error)
right = nn.GRUCell(6 + 10, hidden_width)(torch.cat([embedding, attentional], dim=-1))
print("cell of embedding + attentional:", tuple(right.shape))

# %% [markdown]
# **Windows by slices.** `row[p - D : p + D]` lacks its last word, and near the start `p - D` is negative, which Python counts from the end.

# %%
places = list(range(5))
print("p = 2, D = 1: slice", places[2 - 1 : 2 + 1], " right", places[max(0, 2 - 1) : 2 + 1 + 1])
print("p = 0, D = 1: slice", places[0 - 1 : 0 + 2], " right", places[max(0, 0 - 1) : 0 + 1 + 1])

# %% [markdown]
# **A Gaussian of the wrong width.** $\sigma = D/2$, so that the window ends where the Gaussian is nearly zero. With $\sigma = D$ it is flat. Five words with equal scores, $p_t = 2.4$, $D = 2$:

# %%
away = torch.arange(5) - 2.4
even = torch.where(away.abs() <= 2, 0.25, 0.0)
for name, sigma in (("sigma = D / 2", 1.0), ("sigma = D", 2.0)):
    print(f"{name:13}", [round(x, 3) for x in (even * torch.exp(-(away**2) / (2 * sigma**2))).tolist()])

# %% [markdown]
# ## 12 · Check yourself
#
# **1. Why can all steps of Luong's decoder without feeding run in one call, while Bahdanau's can't?**
#
# <details><summary>a) Because dot needs no parameters</summary>No. With the general or the concat score it is the same.</details>
# <details><summary>b) Because its states depend on the words alone, and the looks come after</summary>Yes. In Bahdanau's order the context enters the cell, and so does the fed vector with input feeding.</details>
# <details><summary>c) Because its encoder is bidirectional</summary>No. That is about reading the source.</details>
#
# **2. The encoder has two directions of 256 each, the decoder's state 256. Which score needs no change?**
#
# <details><summary>a) Dot</summary>No. 512 numbers can't be multiplied with 256.</details>
# <details><summary>b) General</summary>Yes. Its matrix is (256, 512).</details>
# <details><summary>c) None of them</summary>No. General and concat have a matrix that takes both widths.</details>
#
# **3. What does the Gaussian of local-p do besides favouring the middle?**
#
# <details><summary>a) It makes the weights sum to 1</summary>No. They sum to less.</details>
# <details><summary>b) It lets a gradient reach the predicted middle</summary>Yes. The window itself changes in jumps; only through the Gaussian do the weights change smoothly with p<sub>t</sub>.</details>
# <details><summary>c) It hides the padding</summary>No. The mask does.</details>
#
# **4. A decoder without feeding writes "is old is old". What is it that the decoder does not know?**
#
# <details><summary>a) The words that it has written</summary>No. It reads each of them in the next step.</details>
# <details><summary>b) Where in the source it has looked for them</summary>Yes. What a look finds is used for one word and not handed on. Two places that led to the same words look alike to it.</details>
# <details><summary>c) The source sentence</summary>No. It looks at all of it at every step.</details>
#
# ## 13 · What to take away
#
# - Luong's order: step, look with $s_t$, join: $\tilde h_t = \tanh(W_c\,[c_t ; s_t])$.
# - Dot has no parameters and is one product of matrices; it wants equal widths. General puts a matrix between. Concat is Bahdanau's score. Location never sees the source.
# - A bidirectional encoder doubles $h_j$: halve its directions, or put a matrix between.
# - Local attention looks at a window; with a predicted middle it needs the Gaussian, or nothing could learn where.
# - Input feeding tells the next question what the last look found. It makes the decoder serial.
#
# **Further reading**: [Luong, Pham, Manning (2015)](https://arxiv.org/abs/1508.04025) ·
# [Britz et al. (2017)](https://arxiv.org/abs/1703.03906), scores and widths compared over many large runs ·
# [Tu et al. (2016)](https://arxiv.org/abs/1601.04811), coverage: telling attention what has been translated.
#
# **Now do the exercises**: `exercises/05_luong_attention.ipynb`. **Next**, lesson 06: a sentence that attends to itself.
