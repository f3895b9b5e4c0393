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
# # 07 · The Transformer: attention without recurrence
#
# <!-- badge -->
#
# Lesson 04 added attention to a recurrent translator. Vaswani et al. ([2017](https://arxiv.org/abs/1706.03762)) took
# the recurrence away and kept the attention. This lesson puts lesson 06's parts together to a whole translator, trains
# it on the text of lessons 03 to 05, and compares: how well, how fast, and where the recurrent network still wins.
#
# **What you will be able to do**
#
# - build the layers of an encoder and a decoder, and prove that they are torch's;
# - say where the layer norm stands in post-LN and pre-LN, and show what that does to gradients and to training;
# - prepare a training step: the shift, the masks, label smoothing, the learning rate's warm-up, tied embeddings;
# - compare a Transformer with a recurrent network under one budget, in quality, in speed and in what it looks at;
# - decode with a cache of keys and values, and say what it saves and what it costs.
#
# **Time**: about 90 minutes, then 105 for the exercises in `exercises/07_transformer.ipynb`. The notebook runs from top
# to bottom in about two minutes on two cores. **You need** lesson 06 (heads, masks, positions) and lesson 04's
# translator.

# %% tags=["setup"]
from course_utils import runtime

device = runtime.start("07", needs="training the three translators")

# %%
import time
from collections import Counter

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from course_utils import corpus, decoding, figures, metrics, training
from course_utils.claims import claim
from course_utils.corpus import Batches, Vocabulary, grammar
from course_utils.models import Block, MultiHeadAttention, Output, Stack, Transformer, bahdanau, causal_mask
from course_utils.training import train
from course_utils.widgets import head_viewer

# %% [markdown]
# ## 1 · The whole picture
#
# A translator needs three kinds of looking. The **source looks at itself**, so that each word knows its sentence; in
# lesson 04 a bidirectional GRU did that. The **target looks at itself**, at the words already written; that was the
# decoder's state. And the **target looks at the source**; that was Bahdanau's attention. All three become the attention
# of lesson 06. What differs is who asks, who is asked, and the mask.

# %%
figures.transformer_diagram(layers=2)

# %% [markdown]
# Read it from below. The thick line is the state of one word; it passes *beside* every sublayer, which adds something
# to it. Attention is the only place where words meet: the **feed-forward network**, two matrices with a ReLU between
# them, works on each word's state alone.
#
# > **Predict first.** A recurrent decoder reads a translation of 50 words in 50 steps, each of which waits for the one
# > before. How many attentions wait for one another when this decoder, with its two layers, is *trained* on 50 words?
# > And when it *writes* 50 words?
#
# <details><summary>Think, then open</summary>In training all 50 words are known, so every position is computed at once:
# 2 layers, each with 2 attentions, one after the other, whatever the length. When it writes, word 2 needs word 1: 50 times
# through all the layers, in a row, like the recurrent one. Section 8 comes back to that.</details>
#
# ## 2 · Beside every sublayer: the residual connection and the norm
#
# Stack many layers, and two things can go wrong: gradients have a long way back, and the numbers drift in size. Each
# sublayer $f$ therefore *adds* to its input instead of replacing it: $x + f(x)$, the **residual connection** of [He et
# al. (2016)](https://arxiv.org/abs/1512.03385), on which the gradient finds a straight way back. And a **layer norm**
# ([Ba et al. 2016](https://arxiv.org/abs/1607.06450)) brings each state to mean 0 and standard deviation 1, then lets a
# learned gain and bias choose another size:
#
# $$\mathrm{LN}(x) = g \odot \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + b
# \qquad \mu, \sigma^2: \text{ mean and variance of the numbers of } \textit{one} \text{ state}$$


# %%
def layer_norm(x: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
    """Each row with mean 0 and standard deviation 1 (gain 1, bias 0). (..., width) -> (..., width)"""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + epsilon)


state = np.array([1.0, 0.0, 0.0, 0.0])
print("by hand:        ", layer_norm(state).round(3))
print("nn.LayerNorm:   ", nn.LayerNorm(4)(torch.tensor(state).float()).detach().numpy().round(3))
print("with n - 1:     ", ((state - state.mean()) / state.std(ddof=1)).round(3), "(another function)")

# %% [markdown]
# The variance divides by n, not by n - 1, which is what `x.std()` of torch does unless told otherwise. In a width of
# 512 the two differ by a thousandth, and no test with loose tolerances notices.
#
# The norm has two usual places. The paper normalises after the sum: **post-LN**. Most code since normalises what goes
# *into* the sublayer and leaves the line itself alone: **pre-LN**.

# %%
figures.norm_orders_diagram()

# %%
x, double = np.array([1.0, 3.0]), lambda x: 2 * x
print("post-LN, LN(x + f(x)):", layer_norm(x + double(x)).round(2))
print("pre-LN,  x + f(LN(x)):", (x + double(layer_norm(x))).round(2))

# %% [markdown]
# People have reported each of the two as "wrong" because a text showed one and its code ran the other. They are two
# models.
#
# > **Predict first.** In pre-LN nothing on the line itself holds the size down. What is the size of a state after 32
# > sublayers that each add something random of size 1?

# %%
generator = torch.Generator().manual_seed(0)
state = torch.randn(512, generator=generator)
for sublayers in (1, 4, 16, 32):
    added = torch.randn(sublayers, 512, generator=generator).sum(dim=0)
    print(f"after {sublayers:2} sublayers the standard deviation is {(state + added).std().item():.2f}")

# %% [markdown]
# It grows like the square root of their number. So a pre-LN stack ends with **one norm more**, after its last layer. A
# post-LN stack ends with a norm anyhow, and another one would be one too many.
#
# ## 3 · The layers, built and checked
#
# An encoder layer, written out with lesson 06's `MultiHeadAttention` (`remember` makes keys and values, the call itself
# asks):


# %%
class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network, each with a residual connection and a layer norm."""

    def __init__(self, width: int, heads: int, inner: int, pre: bool):
        super().__init__()
        self.pre = pre
        self.attention = MultiHeadAttention(width, heads)
        self.feed_forward = nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width))
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    def look(self, h, mask):
        return self.attention(h, self.attention.remember(h), mask).output  # (batch, length, width)

    def forward(self, x, mask):
        first, second = self.norms
        if self.pre:
            x = x + self.look(first(x), mask)
            return x + self.feed_forward(second(x))
        x = first(x + self.look(x, mask))
        return second(x + self.feed_forward(x))


# %% [markdown]
# Is it what it should be? torch has the same layer, so we copy our weights into it and compare. (Note the mask: torch's
# `src_key_padding_mask` is True where a word is to be *ignored*, the opposite of ours.)


# %%
def torchs(ours: EncoderLayer, width: int, heads: int, inner: int) -> nn.TransformerEncoderLayer:
    """torch's layer with the weights of ours (whose biases start at 0, as torch's do)."""
    options = {"dropout": 0.0, "batch_first": True, "norm_first": ours.pre}
    layer = nn.TransformerEncoderLayer(width, heads, inner, **options)
    looking = ours.attention
    with torch.no_grad():
        layer.self_attn.in_proj_weight.copy_(torch.cat([looking.query.weight, looking.key_value.weight]))
    layer.self_attn.out_proj.load_state_dict(looking.output.state_dict())
    for theirs, own in (
        (layer.linear1, ours.feed_forward[0]),
        (layer.linear2, ours.feed_forward[2]),
        (layer.norm1, ours.norms[0]),
        (layer.norm2, ours.norms[1]),
    ):
        theirs.load_state_dict(own.state_dict())
    return layer


# %% tags=["nbval-check-output"]
runtime.seed(0)
states = torch.randn(2, 5, 24)  # (batch, length, width)
real = torch.tensor([[True] * 5, [True, True, True, False, False]])  # (batch, length)
for pre in (False, True):
    ours = EncoderLayer(24, heads=3, inner=48, pre=pre)
    for norm in ours.norms:  # so that a norm in the wrong place shows
        nn.init.normal_(norm.weight)
    found = ours(states, real[:, None, None])[real]
    expected = torchs(ours, 24, 3, 48)(states, src_key_padding_mask=~real)[real]
    print(f"{'pre' if pre else 'post'}-LN equals torch's: {torch.allclose(found, expected, atol=1e-5)}")

# %% [markdown]
# Setting the norms' gains to random numbers first was not for show. Fresh norms are all alike, and then a layer that
# uses its first norm twice passes such a test.
#
# The decoder's layer has a third sublayer in the middle, which asks the source. In exercise 07.2 you wire one; the
# course's `Block` is both layers in one class. It has two promises to keep: no word sees the future, and no one sees
# padding.

# %% tags=["nbval-check-output"]
layer = Block(24, heads=3, inner=48, cross=True)
read, seen = torch.randn(1, 4, 24), torch.randn(1, 6, 24)  # (batch, target, width), (batch, source, width)
words = torch.tensor([[True, True, True, True, False, False]])  # (batch, source)


def decoded(read, seen):
    return layer(read, causal_mask(4), memory=layer.cross.remember(seen), memory_mask=words[:, None, None])[0]


other_end, other_padding = read.clone(), seen.clone()
other_end[:, 2] += 1.0
other_padding[:, 4:] += 1.0
before = decoded(read, seen)
for what, after in (
    ("word 3 of the target", decoded(other_end, seen)),
    ("padding", decoded(read, other_padding)),
):
    moved = ((after - before).abs().amax(dim=(0, 2)) > 1e-6).tolist()
    print(f"change {what}; states of the four words that move: {moved}")

# %% [markdown]
# ## 4 · Where the norm stands, and what warm-up is for
#
# Both orders compute something sensible; the difference shows when they *train*. [Xiong et al.
# (2020)](https://arxiv.org/abs/2002.04745) derive it for fresh networks: in post-LN the gradient of the last layer's
# feed-forward network does not depend on the number of layers; in pre-LN it shrinks like one over the square root of
# their number, because the last norm divides by a sum that grows. Let us measure. To keep it quick, we take the decoder
# alone, without a source: a stack that predicts the next English word from those before it.

# %%
text = grammar.corpus(train=15_000, valid=100, test=300, seed=0, min_length=3, max_length=50).swapped()
source_words = Vocabulary.from_sentences(pair.source for pair in text.train)
target_words = Vocabulary.from_sentences(pair.target for pair in text.train)
batches = Batches(text.train, source_words, target_words, max_tokens=700, seed=0)
few_words = [pair for pair in text.train if len(pair.source) <= 20][:6_000]
short = Batches(few_words, source_words, target_words, max_tokens=300, seed=0)


class NextWord(nn.Module):
    """A stack that guesses each word from those before it. It ignores the source."""

    def __init__(self, layers: int, norm: str):
        super().__init__()
        options = {"width": 64, "heads": 4, "inner": 256, "layers": layers, "norm": norm}
        self.stack = Stack(len(target_words), **options)

    def forward(self, source, source_mask, target_in):
        states = self.stack(target_in, causal_mask(target_in.shape[1], target_in.device)).states
        return Output(states @ self.stack.embedding.weight.T, None)


# %%
DEPTHS = [2, 4, 8, 16]
batch = next(iter(short.epoch(0))).to(device)


def last_gradient(layers: int, norm: str, seed: int) -> float:
    """The norm of the loss's gradient for the last feed-forward matrix of a fresh stack."""
    runtime.seed(seed)
    model = NextWord(layers, norm).to(device)
    logits = model(batch.source, batch.source_mask, batch.target_in).logits
    loss = training.loss(logits, batch.target_out, batch.target_mask)
    [gradient] = torch.autograd.grad(loss, [model.stack.blocks[-1].feed_forward[2].weight])
    return gradient.norm().item()


# %%
by_depth = {
    f"{norm}-LN": [np.mean([last_gradient(layers, norm, seed) for seed in range(3)]) for layers in DEPTHS]
    for norm in ("post", "pre")
}
figures.curve(
    DEPTHS, by_depth, xlabel="layers of the stack", ylabel="gradient norm, last layer", xscale="log"
)

# %% [markdown]
# In post-LN the last layer's gradient stays large however deep the stack is. At the start, Adam makes it worse: its
# first steps divide each gradient by its own size, so that every weight moves by a whole learning rate in a direction
# that one batch chose. The paper's remedy is **warm-up**: begin with a rate near 0 and raise it over the first steps,
# while the averages in Adam settle. Do both orders need it?
#
# > **Predict first.** Three runs of a stack of 8 layers: post-LN with the full rate from the first step; post-LN with
# > a rate that rises over most of the run; pre-LN with the full rate at once. In which order will they end?

# %%
runs = {}
for norm, name, warmup in (("post", "at once", 0.0), ("post", "warmed up", 0.6), ("pre", "at once", 0.0)):
    runtime.seed(0)
    stack = NextWord(8, norm).to(device)
    options = {"learning_rate": 4e-3, "final_rate": 1.0, "warmup": warmup, "clip": None}
    runs[f"{norm}-LN {name}"] = train(stack, short, steps=120, progress=False, **options)
averaged = {name: np.reshape(run.loss, (-1, 10)).mean(axis=1) for name, run in runs.items()}
occurs = Counter(word for pair in few_words for word in (*pair.target, "<eos>"))
shares = np.array([*occurs.values()]) / occurs.total()
print(
    f"who knows only how often each word occurs has a loss of {-(shares * np.log(shares)).sum():.2f} nats a word"
)
figures.curve(range(10, 121, 10), averaged, xlabel="training step", ylabel="loss (nats a word)")

# %% tags=["nbval-check-output"]
falls = {name: values[-1] / values[0] for name, values in by_depth.items()}
final = {name: np.mean(run.loss[-20:]) for name, run in runs.items()}
claim(
    "07.1",
    "residual connection and layer norm stand around each sublayer; with the norm before it (pre-LN) the last layer's "
    "gradient shrinks with depth, with the norm after it (post-LN) it does not, and such a stack needs the warm-up",
    holds=falls["pre-LN"] < 0.7 < falls["post-LN"]
    and final["post-LN at once"] > final["post-LN warmed up"] + 0.1
    and final["pre-LN at once"] < final["post-LN at once"] - 0.3,
    measured=f"gradient at 16 layers over that at 2: post {falls['post-LN']:.2f}, pre {falls['pre-LN']:.2f}; "
    + ", ".join(f"{name} ends at {loss:.2f}" for name, loss in final.items()),
    source="measured here; Xiong et al. 2020, theorem 1",
)

# %% [markdown]
# Post-LN with the full rate at once gets stuck near the printed number: it learns how often each word occurs, and
# little else. Warmed up, it comes down. Pre-LN takes the full rate at once and is ahead of both. That is why most code
# since has pre-LN: it forgives. (In shallow stacks the difference is small, and post-LN that is trained with care can
# end better; the best place of the norm is still argued about.)
#
# The paper's schedule, which people call Noam after one of its authors, is warm-up and slow descent in one line
# (equation 3):
#
# $$\text{rate} = d^{-0.5} \cdot \min(\text{step}^{-0.5},\; \text{step} \cdot \text{warmup}^{-1.5})$$
#
# Our training loop does the same with two straight lines: up, and then down to 5% at the end of the budget. Exercise
# 07.4 is about the shape of the paper's.

# %%
steps = np.arange(0, 40_001, 100)
noam = 512**-0.5 * np.minimum(np.maximum(steps, 1) ** -0.5, steps * 4_000**-1.5)
line = [max(noam) * training.rate_share(step / 40_000, warmup=0.1, final_rate=0.05) for step in steps]
figures.lines(
    {"Noam": (steps, noam), "two straight lines": (steps, line)},
    xlabel="step",
    ylabel="learning rate (width 512)",
)

# %% [markdown]
# ## 5 · A training step: the shift, the masks, the loss
#
# **The shift.** The decoder reads `<bos>` and the translation, and has to predict the translation and `<eos>`: at each
# place the *next* word. All places are trained at once, and the causal mask is what keeps each from reading its answer.
#
# **The masks.** Three attentions, three masks, all boolean, True = may look, with an axis for the heads:
#
# | attention | mask | shape |
# |---|---|---|
# | source to itself | real words of the source | (batch, 1, 1, source) |
# | target to itself | up to the word itself, real | (batch, 1, target, target), or (target, target) where padding stands last |
# | target to source | real words of the source | (batch, 1, 1, source) |

# %%
pairs = sorted((pair for pair in text.valid if len(pair.target) >= 3), key=lambda p: len(p.target))[:9:4]
example = corpus.make_batch(pairs, source_words, target_words)
short_row = 0
print("reads:   ", [target_words.words[i] for i in example.target_in[short_row]])
print("predicts:", [target_words.words[i] for i in example.target_out[short_row]])
read = [target_words.words[i] for i in example.target_in[short_row]]
both = causal_mask(len(read)) & example.target_mask[short_row]  # (target, target)
figures.mask_grids({"causal": causal_mask(len(read)).numpy(), "causal and real": both.numpy()}, read)

# %% [markdown]
# The rows are the words that look. The rows of padding look at something, and that does not matter: no loss is taken
# there. And since padding stands last, the causal mask hides it from every real word already; the course's
# `Transformer` relies on that. With padding on the left, both masks are needed.
#
# **Label smoothing.** Cross-entropy asks for the right word with probability 1, which drives logits apart without end.
# The paper asks for a little less: $\epsilon = 0.1$ of the probability is spread over the whole vocabulary ([Szegedy et
# al. 2016](https://arxiv.org/abs/1512.00567)).
#
# > **Predict first.** With smoothing, what happens to the loss of a model that grows ever more certain of the right
# > word?

# %%
V, epsilon = len(target_words), 0.1
sure = 1 - np.logspace(-0.5, -6, 60)  # the probability of the right word; all others share the rest
other = (1 - sure) / (V - 1)
plain = -np.log(sure)
smoothed = -(1 - epsilon + epsilon / V) * np.log(sure) - epsilon * (V - 1) / V * np.log(other)
figures.curve(
    1 - sure,
    {"plain": plain, "smoothed": smoothed},
    xlabel="1 - probability of the right word",
    ylabel="loss (nats)",
    xscale="log",
)
print(
    f"the smoothed loss is lowest at a probability of {sure[smoothed.argmin()]:.2f}, where it is {smoothed.min():.2f}"
)

# %% [markdown]
# (To the left the model is surer.) The plain loss falls on; the smoothed one has a lowest point and rises for a model
# that is too sure. So it can never reach 0, and a smoothed loss must not be compared with a plain one. The paper says
# what it is for: it "hurts perplexity" but improves BLEU (section 5.4). On our small, regular text there is little to
# be unsure of, so we train without it.
#
# **Tied embeddings.** The last product needs a vector for every word of the target, and the embedding is one: the two
# share a matrix ([Press and Wolf 2017](https://arxiv.org/abs/1608.05859); section 3.4 of the paper).

# %%
model = Transformer(len(source_words), len(target_words))
sizes = {name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()}
table = model.decoder.embedding.weight
print(f"encoder {sizes['encoder']:,}, decoder {sizes['decoder']:,} numbers; tying saves {table.numel():,}")
[block] = model.encoder.blocks[:1]
parts = {"attention": block.attention, "feed-forward": block.feed_forward, "norms": block.norms}
for name, part in parts.items():
    print(f"  of one encoder layer, {name}: {sum(p.numel() for p in part.parameters()):,}")

# %% [markdown]
# ## 6 · Three translators, one budget
#
# The same sentences, the same batches in the same order, the same number of steps:
#
# - a Transformer with **sinusoidal** positions, added to the embeddings, as in the paper;
# - the same with **rotary** positions (lesson 06), which turn queries and keys, here in the attention to the source
#   too;
# - **Bahdanau's** recurrent translator of lesson 04.
#
# Both Transformers have two layers a side, width 128, four heads, pre-LN. Each model has the learning rate that did
# best for it in a few trials. While they train, we measure BLEU on short validation sentences.
#
# > **Predict first.** Bahdanau's model has to walk through each sentence, word by word, in training too. Which of the
# > three will reach 50 BLEU first?


# %%
def bleu(model: nn.Module) -> dict[str, float]:
    """BLEU on the validation sentences of up to 25 words, greedily translated."""
    pairs = [pair for pair in text.valid if len(pair.source) <= 25]
    sources = [pair.source for pair in pairs]
    found = decoding.translate(model, sources, source_words, target_words, max_length=30)
    return {"BLEU": metrics.bleu([f.tokens for f in found], [pair.target for pair in pairs])}


STEPS = runtime.by_scale(class_=500, full=8_000)
models, histories = {}, {}


def trained(name: str, model: nn.Module, **options) -> None:
    """Trains a model and keeps it, with its history, under its name."""
    models[name] = model.to(device)
    histories[name] = train(
        models[name], batches, steps=STEPS, warmup=0.1, every=STEPS // 5, measure=bleu, label=name, **options
    )
    print(f"{name}: {histories[name].seconds:.0f} s")


# %%
runtime.seed(0)
trained("rotary", Transformer(len(source_words), len(target_words), positions="rotary"), learning_rate=3e-3)

# %%
runtime.seed(0)
trained("sinusoidal", Transformer(len(source_words), len(target_words)), learning_rate=1e-3)

# %%
runtime.seed(0)
trained("Bahdanau", bahdanau(len(source_words), len(target_words)), learning_rate=5e-3)

# %%
curves = {name: history.measured("BLEU") for name, history in histories.items()}
figures.lines(curves, xlabel="training step", ylabel="BLEU on validation sentences")

# %%
BINS = [(5, 10), (11, 20), (21, 30), (31, 39), (40, 50)]  # words of the source, both ends included


def by_length(model: nn.Module) -> list[metrics.LengthBin]:
    """BLEU of unseen sentences, by the length of the source."""
    sources = [pair.source for pair in text.test]
    translations = decoding.translate(model, sources, source_words, target_words, max_length=60)
    found = [translation.tokens for translation in translations]
    references, lengths = [pair.target for pair in text.test], [len(source) for source in sources]
    return metrics.bleu_by_length(found, references, lengths, BINS, seed=0)


quality = {name: by_length(model) for name, model in models.items()}
figures.quality_by_length(
    {
        name: [((b.low + b.high) / 2, b.score, b.low_ci, b.high_ci) for b in bins]
        for name, bins in quality.items()
    }
)


# %%
def alignment_error(weights: list[np.ndarray], pairs: list[corpus.Pair]) -> float:
    """Alignment error rate of attention weights, each word linked to the source word it looks at most."""
    links = [
        metrics.links_from_weights(row, len(pair.source), len(pair.target))
        for row, pair in zip(weights, pairs, strict=True)
    ]
    return metrics.alignment_error_rate(links, [p.links for p in pairs], [p.possible for p in pairs])


# %%
errors = {}
print(
    f"{'':11} numbers  tokens/s  seconds    BLEU at "
    + "  ".join(f"{low}-{high}" for low, high in BINS)
    + "   AER"
)
for name, model in models.items():
    weights = decoding.attend(model, text.test, source_words, target_words)
    errors[name] = alignment_error(weights, text.test)
    count, run = sum(p.numel() for p in model.parameters()), histories[name]
    scores = "  ".join(f"{b.score:5.1f}" for b in quality[name])
    print(
        f"{name:11} {count:,} {run.tokens_per_second:8,.0f} {run.seconds:8.0f}           {scores}  {errors[name]:.2f}"
    )

# %% [markdown]
# (Greedy translations of 300 unseen sentences; `tokens/s` are target tokens trained on in a second of training. The
# alignment error rate takes the mean over the heads of the last layer.) The table says three things.
#
# **The positions decide.** The two Transformers differ in nothing else. The sinusoidal one has to *learn* from sums of
# waves and words how to find a place, and in a budget of this size it hardly begins to; the rotary one starts from
# products of queries and keys in which the distance is built in. In the paper's long training the kind of positions
# hardly mattered (its Table 3 has 25.8 BLEU with sinusoidal and 25.7 with learned ones). How far the sinusoidal one comes
# here with more steps, `COURSE_SCALE=full` shows.
#
# But *where* does it need them? Its attention turns queries and keys in three places: within the source, within the
# target, and between the two.
#
# > **Predict first.** Leave the turning out between the two languages alone, and train for a part of the steps. Will it
# > lag a little, or fall back to the sinusoidal one?

# %% tags=["nbval-check-output"]
PART = STEPS * 2 // 5
runtime.seed(0)
unturned = Transformer(len(source_words), len(target_words), positions="rotary").to(device)
for block in unturned.decoder.blocks:
    block.cross.rotary = False
options = {"warmup": 0.1, "learning_rate": 3e-3, "label": "not turned between languages"}
train(unturned, batches, steps=PART, **options)
turned = dict(zip(*histories["rotary"].measured("BLEU"), strict=True))[PART]
print("turned everywhere, after as many steps, over 40 BLEU:", turned > 40)
print("not between the languages, under 10 BLEU:", bleu(unturned)["BLEU"] < 10)

# %% [markdown]
# It falls back. So what the model needed to be given, in this budget, is not the order of words in a sentence; it is a
# first guess of *where to look in the other sentence*. French and English run
# nearly in step, and with the distance built in, "look about where you are writing" is easy to say. A recurrent decoder
# has to find that out too, and does it sooner than a Transformer without such a help.
#
# **Steps.** Step for step, the rotary Transformer learns faster than the recurrent network, as the curves show. (Lesson
# 04 gives that network more steps, and there it comes about as far as the rotary one here.)
#
# **Seconds.** Here is how long each trained until it reached a given BLEU on the validation sentences, on your device.


# %%
def seconds_to(goal: float, history: training.History) -> float | None:
    """Training time until the first validation with at least this BLEU; None where there was none."""
    return next((row["seconds"] for _, row in history.valid if row["BLEU"] >= goal), None)


for goal in (50, 80):
    reached = {name: seconds_to(goal, history) for name, history in histories.items()}
    print(
        f"BLEU {goal}:", ", ".join(f"{n} {f'{s:.0f} s' if s else 'not reached'}" for n, s in reached.items())
    )


# %% [markdown]
# And why does everyone say that Transformers train *fast*? Not because of the arithmetic: on one CPU core, which does
# one thing at a time, the tokens per second in the table above are a small factor apart. It is because of what has to
# *wait*. Count the operations that a sentence takes, one after another:


# %%
class Counted(TorchDispatchMode):
    """Counts the operations on tensors that run inside it."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


def operations(model: nn.Module, length: int) -> int:
    """Of one forward pass over a sentence of this many words, read and written."""
    tokens = torch.full((1, length), 5, device=device)
    with Counted() as counted, torch.no_grad():
        model(tokens, tokens > 0, tokens)
    return counted.count


# %%
counts = {}
for name, model in models.items():
    model.train()
    counts[name] = [operations(model, length) for length in (10, 20, 40)]
    model.eval()
    print(f"{name:11} at 10, 20 and 40 words: {counts[name]}")

# %% [markdown]
# The recurrent network's number grows with the sentence: each word waits for the one before. The Transformer's does
# not; its operations grow *wider*, and a GPU, which does thousands of things at a time, hardly notices until it is full
# (lesson 06 measured where that is). Run this notebook on one and look at the tokens per second again.

# %% tags=["nbval-check-output"]
best = {name: max(history.measured("BLEU")[1]) for name, history in histories.items()}
sooner = {name: seconds_to(50, history) for name, history in histories.items()}
claim(
    "07.3",
    "a Transformer's training step has as many operations in a row for 40 words as for 10, a recurrent network's grow "
    "with the words; but how soon it translates depends on its positions: rotary passes 80 BLEU in this budget, and the "
    "paper's sinusoidal ones are behind the recurrent network",
    holds=counts["rotary"][0] == counts["rotary"][-1]
    and counts["Bahdanau"][-1] > 2.5 * counts["Bahdanau"][0]
    and best["rotary"] > 80
    and best["rotary"] > best["Bahdanau"] > best["sinusoidal"],
    measured="; ".join(
        f"{name}: {histories[name].tokens_per_second:,.0f} tokens/s, best BLEU {best[name]:.0f}, "
        + (f"50 BLEU after {sooner[name]:.0f} s" if sooner[name] else "never at 50 BLEU")
        for name in models
    ),
)

# %% [markdown]
# So where does the recurrent network win? Against the Transformer *of the paper*, trained as briefly as here, it wins
# outright: which word comes next need not be learned by a network that walks from one word to the next. It has fewer
# parameters. On one CPU core its many small operations cost it little, where a GPU would stand and wait. And when it
# *writes*, it carries a state of fixed size, while a Transformer's memory grows with every word: section 8.
#
# ## 7 · What the heads look at
#
# This model has 2 layers × 4 heads that look at the source, and as many twice over that look within a sentence. Here
# are all of them, for sentences whose right translation is fed in.


# %%
def maps_of(model: Transformer, pairs: list[corpus.Pair]) -> list[dict[str, torch.Tensor]]:
    """For each layer its three attentions: {"encoder", "decoder", "cross"}, each (batch, heads, rows, columns)."""
    batch = corpus.make_batch(pairs, source_words, target_words).to(device)
    seen = batch.source_mask[:, None, None]  # (batch, 1, 1, source)
    with torch.no_grad():
        read = model.encoder(batch.source, seen, with_weights=True)
        _, *keys_values = model.encode(batch.source, batch.source_mask)
        causal = causal_mask(batch.target_in.shape[1], device)
        options = {"memory": tuple(keys_values), "memory_mask": seen, "with_weights": True}
        written = model.decoder(batch.target_in, causal, **options)
    return [
        {"encoder": own, "decoder": self_, "cross": cross}
        for [own], [self_, cross] in zip(read.weights, written.weights, strict=True)
    ]


# %%
rotary, HEADS = models["rotary"], 4
sample = text.test[:200]
maps = maps_of(rotary, sample)
head_errors = np.zeros((len(maps), HEADS))
for layer, looks in enumerate(maps):
    for head in range(HEADS):
        weights = [
            looks["cross"][i, head, : len(pair.target) + 1, : len(pair.source) + 1].cpu().numpy()
            for i, pair in enumerate(sample)
        ]
        head_errors[layer, head] = alignment_error(weights, sample)
    print(f"layer {layer + 1}: alignment error rate of its heads", head_errors[layer].round(2))
print(
    f"for comparison, on the whole test set: mean of the last layer's heads {errors['rotary']:.2f}, Bahdanau {errors['Bahdanau']:.2f}"
)

# %% [markdown]
# The heads divide the work. Most of those in the last layer look just where a word comes from, closer than Bahdanau's
# attention does (its states know their neighbours, and can be read one place off); others look elsewhere.
#
# > **Predict first.** Take one head out, so that nothing it finds is passed on. Which will the model miss most: the
# > heads that align best? And will it break?

# %%
held_out = Batches(text.valid, source_words, target_words, max_tokens=2_000, seed=0)


def loss_without(layer: int, heads: list[int]) -> float:
    """The loss on validation sentences when these heads of a layer's attention to the source give nothing."""
    matrix = rotary.decoder.blocks[layer].cross.output.weight  # (width, heads x own)
    kept = matrix.detach().clone()
    with torch.no_grad():
        matrix.unflatten(1, (HEADS, -1))[:, heads] = 0.0
        loss = training.mean_loss(rotary, held_out)
        matrix.copy_(kept)
    return loss


print(f"with all heads: {loss_without(0, []):.2f} nats a word")
for layer in range(2):
    for head in range(HEADS):
        loss = loss_without(layer, [head])
        print(
            f"without head {head + 1} of layer {layer + 1} (AER {head_errors[layer, head]:.2f}): {loss:.2f}"
        )
    print(f"without all heads of layer {layer + 1}: {loss_without(layer, [*range(HEADS)]):.2f}")

# %% [markdown]
# In the last layer, the heads that align are missed and the one that does not is hardly noticed. But no single head is
# needed: without any one of them the loss stays close to that of the whole model, while without all four it does not.
# They stand in for one another. So a picture of one head shows where *that head* reads; it does not show what the model
# depends on. (Voita et al. [2019](https://arxiv.org/abs/1905.09418) and Michel et al.
# [2019](https://arxiv.org/abs/1905.10650) took heads out of large translators, and could take out most of them.)
#
# Look for yourself: every layer, every head, all three attentions of one sentence.

# %%
phrase = next(pair for pair in text.test if 9 <= len(pair.source) <= 12)
one = [
    {name: weights[0].cpu().numpy() for name, weights in layer.items()} for layer in maps_of(rotary, [phrase])
]
head_viewer(one, phrase.source, phrase.target)

# %% [markdown]
# ## 8 · Writing: the cache
#
# When the model writes, it does not know the next word before it has said the last one. Each step runs the whole
# decoder; and everything that the earlier words computed comes out exactly as before, since causal masks keep them from
# seeing the new word. So their keys and values are kept.

# %%
figures.cache_diagram(["<bos>", "the", "blue", "house", "is"])


# %%
def written(
    model: Transformer, source: torch.Tensor, count: int, cached: bool
) -> tuple[torch.Tensor, list[float]]:
    """The logits of `count` greedy steps, (count, vocabulary), and the seconds that had passed after each."""
    started, passed, found = time.perf_counter(), [], []
    everything = torch.ones_like(source, dtype=torch.bool)
    memory = model.encode(source, everything)
    state, tokens = model.start(memory), torch.full((1, 1), corpus.BOS, device=source.device)
    with torch.no_grad():
        for _ in range(count):
            if cached:
                logits, state, _ = model.step(tokens[:, -1], state, memory)
            else:
                logits = model(source, everything, tokens).logits[:, -1]
            found.append(logits[0])
            tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], dim=1)
            passed.append(time.perf_counter() - started)
    return torch.stack(found), passed


# %% tags=["nbval-check-output"]
sentence = corpus.make_batch([phrase], source_words, target_words).to(device).source
runs = {cached: written(rotary, sentence, 160, cached) for cached in (True, False)}
difference = (runs[True][0] - runs[False][0])[:40].abs().max().item()
print("equal logits for 40 steps, up to rounding:", difference < 1e-3)

# %%
places = [0, 9, 19, 39, 79, 119, 159]
passed = {
    name: [runs[cached][1][i] for i in places] for name, cached in (("with cache", True), ("without", False))
}
figures.curve([i + 1 for i in places], passed, xlabel="words written", ylabel="seconds in all")
keys_values = 2 * 2 * 128 * 4  # keys and values, layers, width, bytes of a number
print(f"the cache holds {keys_values:,} bytes a word: {160 * keys_values:,} after 160 words")
print(f"the state of Bahdanau's decoder holds {256 * 4:,} bytes, after one word and after 160")

# %% [markdown]
# (The model goes on long after the sentence is over: we asked for 160 words, to see the time grow.) Without a cache
# each step reads all words so far again, so that every word costs more than the one before, and in the end the time
# grows with the square of the length; with one, each step does about the same work, and only the attention over the
# growing cache gets longer.
#
# The price is memory, and it comes back in lesson 08, where it decides what can be served: a recurrent state never
# grows.
#
# Three things go wrong with caches again and again, and you will meet them in exercise 07.6 and below: positions that
# start from 0 in every call, a mask that counts from the wrong end when several tokens come at once, and a cache that
# outlives its sentence.
#
# ## 9 · What the paper measured
#
# WMT'14, newstest2014, BLEU and training cost from Table 2 of the paper:
#
# | model | English-German | English-French | training cost (FLOPs, En-De / En-Fr) |
# |---|---|---|---|
# | GNMT + RL (recurrent, with attention) | 24.6 | 39.92 | 2.3 · 10¹⁹ / 1.4 · 10²⁰ |
# | ConvS2S (convolutions, with attention) | 25.16 | 40.46 | 9.6 · 10¹⁸ / 1.5 · 10²⁰ |
# | Transformer (base) | 27.3 | 38.1 | 3.3 · 10¹⁸ |
# | Transformer (big) | 28.4 | 41.8 | 2.3 · 10¹⁹ |
#
# "Trained in 3.5 days on 8 P100 GPUs" is said of *the* Transformer; it is the big one. The base model, which beats the
# recurrent ones in German and not in French, took 12 hours on the same machine. The paper's own figures (section 5.2)
# fit:

# %% tags=["nbval-check-output"]
base_hours, big_days = 100_000 * 0.4 / 3600, 300_000 * 1.0 / 86_400  # steps x seconds a step
claim(
    "07.2",
    "8 P100 GPUs trained the base Transformer in 12 hours (27.3 and 38.1 BLEU, En-De and En-Fr), the big one in 3.5 days "
    "(28.4 and 41.8)",
    holds=round(base_hours) in (11, 12) and round(big_days, 1) == 3.5,
    measured=f"100,000 steps of 0.4 s are {base_hours:.1f} hours, 300,000 steps of 1.0 s are {big_days:.2f} days",
    source="Vaswani et al. 2017, Table 2 and section 5.2",
)

# %% [markdown]
# ## 10 · Common mistakes
#
# Each of these has been found in published code.
#
# **No shift, or two.** With logits that predict the next token perfectly, the loss should be 0. Compared with the token
# itself, or with the one after the next, it is not; and a model *trained* without the shift learns to repeat its input.

# %%
tokens = torch.tensor([5, 6, 7, 8])
perfect = torch.full((4, 10), -20.0)
perfect[torch.arange(3), tokens[1:]] = 20.0  # at each place, certain of the next token
for name, logits, wanted in (
    ("shifted once ", perfect[:-1], tokens[1:]),
    ("not shifted  ", perfect, tokens),
    ("shifted twice", perfect[:-2], tokens[2:]),
):
    print(f"{name}: loss {nn.functional.cross_entropy(logits, wanted).item():.1f}")

# %% [markdown]
# **Flattened before the shift.** Then the last word of one sentence has to predict the first of the next.

# %%
rows = torch.tensor([[1, 2, 3], [4, 5, 6]])
flat = rows.flatten()
print("right:", list(zip(rows[:, :-1].flatten().tolist(), rows[:, 1:].flatten().tolist(), strict=True)))
print("wrong:", list(zip(flat[:-1].tolist(), flat[1:].tolist(), strict=True)))

# %% [markdown]
# **The padding mask on the wrong axis.** It has to hide *columns*. Along the rows it blanks the words of padding, whom
# nobody asks, and leaves padding to be looked at. With padding on the right, the causal mask happens to hide it, and
# the mistake sleeps until someone pads on the left.

# %%
padded = torch.tensor([False, True, True])  # padding on the left
causal = causal_mask(3)
print("right:", (causal & padded[None, :]).int().tolist())
print("wrong:", (causal & padded[:, None]).int().tolist(), "(both words look at the padding)")

# %% [markdown]
# **The source's mask and the target's mixed up.** Masks made with the other side's number for `<pad>` are invisible
# while both are 0; a target's mask handed to the attention over the source raises an error, unless the two happen to be
# equally long.
#
# **Neither pre nor post.** The residual has to pass by the norm in pre-LN, and the norm has to take in the sum in
# post-LN.

# %%
x = np.array([1.0, 3.0])
print("post-LN:", layer_norm(x + 2 * x).round(1), "  x + LN(f(x)):        ", (x + layer_norm(2 * x)).round(1))
print("pre-LN: ", (x + 2 * layer_norm(x)).round(1), "  LN(x) + f(LN(x)): ", (3 * layer_norm(x)).round(1))

# %% [markdown]
# **Noam, multiplied.** The schedule is the whole rate. torch's `LambdaLR` multiplies it with the optimiser's own, which
# therefore has to be 1.


# %%
def noam_rate(step: int) -> float:
    return 512**-0.5 * min(max(step, 1) ** -0.5, step * 4_000**-1.5)


weight = nn.Parameter(torch.zeros(1))
for own in (1.0, 1e-4):
    optimiser = torch.optim.Adam([weight], lr=own)
    torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: noam_rate(step + 4_000))  # starts at the peak
    print(f"Adam(lr={own:g}): the rate at the peak is {optimiser.param_groups[0]['lr']:.1e}")

# %% [markdown]
# **A causal mask that counts from the wrong end.** Two new tokens behind three cached ones. torch's `is_causal=True`
# aligns at the *first* key.

# %%
new, seen = 2, 5
scores = torch.zeros(1, 1, new, 4), torch.zeros(1, 1, seen, 4)
which = torch.eye(seen)[None, None]  # the values say which keys are looked at
wrong = nn.functional.scaled_dot_product_attention(*scores, which, is_causal=True)
may_look = torch.ones(new, seen, dtype=torch.bool).tril(seen - new)
right = nn.functional.scaled_dot_product_attention(*scores, which, may_look)
print("is_causal=True:", *wrong[0, 0].numpy().round(2))
print("tril(3):       ", *right[0, 0].numpy().round(2))

# %% [markdown]
# **A cache that lives in the model.** It is convenient: the caller need not carry it. But nobody clears it between
# sentences, and a beam search cannot reorder what it does not see. Here the state that the search carries is a dummy,
# and the cache stays inside.


# %%
class CacheInside(nn.Module):
    """The same model, with its cache as an attribute."""

    def __init__(self, model: Transformer):
        super().__init__()
        self.model, self.cache = model, None
        self.encode, self.forward = model.encode, model.forward

    def start(self, memory):
        return (memory[0][:, :1],)  # something to carry: nothing depends on it

    def step(self, token, state, memory):
        fits = self.cache is not None and len(self.cache[0]) == len(token)
        found = self.model.step(token, self.cache if fits else self.model.start(memory), memory)
        self.cache = found.state
        return found._replace(state=state)


# %%
def said(model: nn.Module) -> str:
    return " ".join(decoding.translate(model, [phrase.source], source_words, target_words)[0].tokens)


careless = CacheInside(rotary)
print("right:       ", said(rotary))
print("first call:  ", said(careless))
print("second call: ", said(careless))

# %%
brief = [pair.source for pair in text.test if len(pair.source) <= 20][:100]
by_beam = [
    [one.tokens for one in decoding.translate(each, brief, source_words, target_words, beam=4)]
    for each in (rotary, CacheInside(rotary))
]
changed = sum(right != wrong for right, wrong in zip(*by_beam, strict=True))
print(f"beam of 4: {changed} of {len(brief)} translations are others than with a cache that follows the beam")

# %% [markdown]
# The first call is right, which is why tests pass. The second starts from the end of the first sentence. In the beam,
# hypotheses read one another's past, and that shows in few translations, since a sentence's hypotheses are much alike:
# so nobody looks for it. Two tests find both: translate the same sentence twice, and compare a beam's scores with those
# of its sentences read afresh.
#
# ## 11 · Check yourself
#
# **1. In training, what keeps the decoder from reading the word that it has to predict?**
#
# <details><summary>a) The shift alone</summary>No. The shift puts the answer one place to the right; self-attention could look there.</details>
# <details><summary>b) The causal mask alone</summary>No. Without the shift, the word at each place <em>is</em> the answer, and the mask lets every word see itself.</details>
# <details><summary>c) Both together</summary>Yes: place t reads the word before the one that it predicts, and sees nothing to its right.</details>
#
# **2. The training loss falls to 0.02 within a hundred steps, and the translations are nonsense. What do you suspect?**
#
# <details><summary>a) The learning rate is too high</summary>No. Then the loss would be high, or NaN.</details>
# <details><summary>b) The decoder sees the future while it trains</summary>Yes. It copies the next word from where it stands; when it writes, nothing stands there. Change a late word and see which states move, as in section 3.</details>
# <details><summary>c) The model is too small</summary>No. A small model has a high loss.</details>
#
# **3. Why does a pre-LN stack have a norm after its last layer?**
#
# <details><summary>a) So that encoder and decoder have equally many parameters</summary>No. They have not, and need not.</details>
# <details><summary>b) Because nothing else holds the size of the sum</summary>Yes. Each sublayer adds to the line, and no norm stands on it.</details>
# <details><summary>c) Because the gradient would vanish</summary>No. The line lets it through; it is the size of the output that grows.</details>
#
# **4. The loss with label smoothing of 0.1 is 0.9 nats, that of another model without it 0.4. Which model is better?**
#
# <details><summary>a) The second: its loss is lower</summary>No. The smoothed loss has a floor far above 0, even for a perfect model.</details>
# <details><summary>b) It cannot be said</summary>Yes. Compare both with the plain cross-entropy on the same held-out text, or in BLEU.</details>
# <details><summary>c) The first: smoothing improves BLEU</summary>No. That was measured for one model with and without it, not for two different ones.</details>
#
# **5. With a cache, what grows with every word that is written?**
#
# <details><summary>a) The memory, and the work of the attention</summary>Yes: one more key and value in every layer and head, and one more product for the next query.</details>
# <details><summary>b) The work of the feed-forward networks</summary>No. They work on the new word alone.</details>
# <details><summary>c) Nothing: that is what the cache is for</summary>No. It saves doing the old words again; the new word still looks at all of them. A recurrent state is what does not grow.</details>
#
# ## 12 · What to take away
#
# - A Transformer is attention (where words meet) and feed-forward networks (each word alone), each added to a line that
#   passes beside it.
# - Post-LN is the paper's and needs warm-up; pre-LN forgives, and ends with one norm more.
# - A training step: shift once, mask the future and the padding, divide the loss by the real words.
# - Trained, it does all words at once; what it gains from that is a question of the device. Writing is serial still,
#   and the cache keeps it affordable.
# - On little data and few steps, what the model is *given* decides: positions as rotations, or a recurrence, beat
#   positions that it has to make sense of first.
#
# **Further reading**: [Vaswani et al. (2017)](https://arxiv.org/abs/1706.03762) · [Xiong et al.
# (2020)](https://arxiv.org/abs/2002.04745), where the norm stands · [Su et al.
# (2021)](https://arxiv.org/abs/2104.09864), rotary positions · [The Annotated
# Transformer](https://nlp.seas.harvard.edu/annotated-transformer/), the paper line by line in code (in pre-LN) · [Voita
# et al. (2019)](https://arxiv.org/abs/1905.09418), what heads do and which can go.
#
# **Now do the exercises**: `exercises/07_transformer.ipynb`. **Next**, lesson 08: the same block with other masks
# (BERT, GPT-2, T5), and what to do when sequences grow long.
