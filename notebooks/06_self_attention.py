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
# # 06 · Self-attention: a sentence looks at itself
#
# <!-- badge -->
#
# In lessons 04 and 05 a decoder looked at a source sentence, and an RNN carried everything else. In this lesson the words of **one** sentence look at each other,
# and no RNN is left. This is the part that Transformers are made of (Vaswani et al. [2017](https://arxiv.org/abs/1706.03762)).
#
# **What you will be able to do**
#
# - compute self-attention by hand, from queries, keys and values, and say where each of them comes from;
# - show what the division by $\sqrt{d_k}$ is for;
# - write padding and causal masks, and test that nothing leaks from the future;
# - split a layer into heads, and recognise the reshape that silently does it wrong;
# - show that attention is blind to order, and give it positions in three ways;
# - measure what attention gains over an RNN (a short path, no waiting) and what it pays ($N^2$).
#
# **Time**: about 80 minutes, then as long again for the exercises in `exercises/06_self_attention.ipynb`. The notebook runs from top
# to bottom in about a minute on two cores. **You need** lesson 04 (scores, softmax, weighted sum, masks) and lesson 01's gradient by lag.

# %% tags=["setup"]
from course_utils import runtime

device = runtime.start("06", needs="training the small models of section 8")

# %%
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from course_utils import figures, probes
from course_utils.claims import claim
from course_utils.models import (
    MultiHeadAttention,
    Recurrent,
    causal_mask,
    forget_bias_,
    masked_softmax,
    orthogonal_,
    padding_mask,
    rotary,
    scaled_dot_product,
    sinusoidal,
)
from course_utils.widgets import mask_builder, position_explorer

# %% [markdown]
# ## 1 · The idea: everyone asks everyone
#
# In lesson 04 the decoder asked, and the states of the encoder answered. Three roles were played there, by two parties:
#
# | | who asks (query) | who is compared (key) | what is summed (value) |
# |---|---|---|---|
# | Bahdanau, lesson 04 | the decoder's state $s_{t-1}$ | $W_h h_j$ of the encoder | $h_j$ of the encoder |
# | self-attention | $q_i = x_i W_Q$, **each word** | $k_j = x_j W_K$ of the same sentence | $v_j = x_j W_V$ of the same sentence |
#
# In self-attention every word plays all three. It asks the others with its query, it is found by its key, and it hands out its value. Three learned matrices make the three
# from the same vector, so a word need not be found by what it asks for, nor hand out what it is found by:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V$$
#
# with one row of $Q$, $K$ and $V$ for each word, and $d_k$ the width of a query and of a key. The score is the dot product of lesson 05, divided by a number that section 3 is about.
#
# A picture to keep: a room full of people. Each wears a badge (key), has a question (query) and something to tell (value). Everyone looks at all badges, listens most to those that fit
# the question, and leaves with a mixture of what they heard. The picture is good because all of them do so *at the same moment*, and because the badge is not the message. It breaks in two places: no one
# wrote the badges (all three are learned), and everyone listens to everyone a little, to themselves as well.
#
# The next figure draws this for one word. Its weights are made up.

# %%
figures.self_attention_diagram([0.05, 0.80, 0.10, 0.05], ["la", "maison", "bleue", "dort"], asking=2)

# %% [markdown]
# ## 2 · By hand
#
# "La maison bleue dort." Let the vector of a word say what kind of word it is, and nothing else: article, noun, adjective or verb. We set the matrices by hand, so that articles, adjectives and verbs
# look for the noun, and the noun looks for an adjective. Queries and keys are 2 wide: the first number is about nouns, the second about adjectives.
#
# > **Predict first.** Whom will *la*, *maison*, *bleue* and *dort* look at? And will anyone look at nobody?

# %%
words = ["la", "maison", "bleue", "dort"]
X = np.eye(4)  # (words, width): article, noun, adjective, verb
W_Q = np.array([[3.0, 0.0], [0.0, 3.0], [3.0, 0.0], [3.0, 0.0]])  # (width, d_k): what each kind looks for
W_K = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [0.0, 0.0]])  # (width, d_k): what each kind is found by
W_V = np.array([[0.1, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.1]])  # (width, d_v): what each kind tells


def softmax(scores: np.ndarray) -> np.ndarray:
    """Over the last axis; the largest score is subtracted first, which changes nothing but overflow."""
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def self_attention(X, W_Q, W_K, W_V):
    """(words, width) -> (words, d_v), and the weights (words, words)."""
    Q, K, V = X @ W_Q, X @ W_K, X @ W_V  # (words, d_k), (words, d_k), (words, d_v)
    weights = softmax(Q @ K.T / math.sqrt(K.shape[1]))  # (words, words): a row for each word that asks
    return weights @ V, weights


outputs, weights = self_attention(X, W_Q, W_K, W_V)
figures.attention_matrix(weights, words, words, title="rows ask, columns are asked")

# %% [markdown]
# The matrix is square now: the same words stand on both sides. It is not symmetric, since *bleue* looks at *maison* for another reason than *maison* looks at *bleue*. And nobody looks
# at nobody: a softmax always gives away all of its weight. (A word that finds nothing spreads it evenly; no row here does.)
#
# For one word, the equation reads as in the next cell. There is no $t - 1$ in it: row 3 does not wait for row 2. That is why all four words could go through one product of matrices.

# %% tags=["nbval-check-output"]
i = words.index("bleue")
scores = np.array([X[i] @ W_Q @ (X[j] @ W_K) / math.sqrt(2) for j in range(4)])
by_word = sum(weight * (X[j] @ W_V) for j, weight in enumerate(softmax(scores)))
print("one word at a time agrees:          ", np.allclose(by_word, outputs[i]))

Q, K, V = (torch.tensor(X @ W) for W in (W_Q, W_K, W_V))
found, torch_weights = scaled_dot_product(Q, K, V)
print(
    "the course's scaled_dot_product too:",
    np.allclose(found, outputs) and np.allclose(torch_weights, weights),
)
print("and PyTorch's own:                  ", np.allclose(F.scaled_dot_product_attention(Q, K, V), outputs))

# %% [markdown]
# ## 3 · Why divide by $\sqrt{d_k}$
#
# A dot product of two vectors is a sum of $d_k$ products. If the numbers in them are independent, with mean 0 and variance 1, each product has variance 1, and the sum has variance $d_k$. So wide
# queries and keys give large scores, for no other reason than that they are wide; and a softmax of large scores is nearly 1 at one place and nearly 0 at all others.
#
# > **Predict first.** 32 random keys of width 256, a random query, no division. How large is the largest of the 32 weights on average: about 1/32, about a half, or nearly 1?
#
# Beside the weights, we look at what the softmax lets through on the way back. Its derivative is $\partial\alpha_i / \partial e_j = \alpha_i (\delta_{ij} - \alpha_j)$, a 32 × 32 matrix; where the weights are 0 or 1, it is all zeros.


# %%
def through_the_softmax(scores: torch.Tensor) -> tuple[float, float]:
    """The largest weight, and the size of the softmax's derivative (Frobenius norm): means over the rows."""
    a = scores.softmax(dim=-1)  # (queries, keys)
    derivative = torch.diag_embed(a) - a[:, :, None] * a[:, None, :]  # (queries, keys, keys)
    return float(a.max(dim=-1).values.mean()), float(derivative.norm(dim=(1, 2)).mean())


generator = runtime.seed(0)
WIDTHS = (1, 4, 16, 64, 256, 1024)
variance, largest, size = {}, {}, {}
for width in WIDTHS:
    q, k = (torch.randn(count, width, generator=generator) for count in (1000, 32))
    scores = q @ k.T  # (queries, keys)
    variance[width] = float(scores.var())
    for name, scale in (("undivided", 1.0), ("divided by sqrt(d_k)", math.sqrt(width))):
        largest[name, width], size[name, width] = through_the_softmax(scores / scale)

print(" d_k   variance of q·k   largest of 32 weights: undivided   divided")
for width in WIDTHS:
    both = [f"{largest[name, width]:.2f}" for name in ("undivided", "divided by sqrt(d_k)")]
    print(f"{width:4}   {variance[width]:15.1f}   {both[0]:>32}   {both[1]:>7}")

# %%
figures.curve(
    WIDTHS,
    {name: [size[name, width] for width in WIDTHS] for name in ("undivided", "divided by sqrt(d_k)")},
    xlabel="width of queries and keys, d_k",
    ylabel="size of the softmax's derivative",
    xscale="log",
)

# %% tags=["nbval-check-output"]
undivided, divided = (size[name, 1024] / size[name, 16] for name in ("undivided", "divided by sqrt(d_k)"))
print(
    "the variance grows as the width, within 25%:",
    all(abs(v / w - 1) < 0.25 for w, v in variance.items() if w > 1),
)
print("from width 16 to 1024 the derivative shrinks to under a third:", undivided < 1 / 3)
print("divided by sqrt(d_k) it stays, within 25%:                    ", abs(divided - 1) < 0.25)

# %% [markdown]
# Divided by $\sqrt{d_k}$, the scores have variance 1 whatever the width, and the softmax starts where it can still be moved. Undivided, narrow layers lose nothing. But from
# some width on the curve falls, and goes on falling: a wide layer has picked a winner before it has learned anything, and the small derivative keeps it from changing its mind. (The paper words this as a suspicion; a footnote has the variance. It is about the *start*: a trained layer may make its queries as long as it likes.) In lesson 05 the dot
# product went undivided. There it was one score among four, of states whose size a tanh bounds.
#
# ## 4 · Masks: who may look at whom
#
# A mask is a table of True and False with a row for each word that asks: **True means "may attend"**, as in lesson 04. Two reasons hide something:
#
# - **padding**: the filler of a batch is no word. Its *column* is hidden, from everybody;
# - **causality**: a model that writes from left to right must not see the word it is about to write. Row $t$ sees the columns 0 to $t$, itself
#   included (that word is written already; what row $t$ predicts is the next one): a lower triangle.
#
# > **Predict first.** Three words and two fillers behind them. With the causal mask in place, what does the padding mask still change for the rows of the three real words?

# %%
tokens = ["the", "blue", "house", "<pad>", "<pad>"]
padding = padding_mask(torch.tensor([3]), size=5)  # (1, words)
masks = {"padding": padding.expand(5, 5), "causal": causal_mask(5), "both": padding & causal_mask(5)}
figures.mask_grids({name: mask.numpy() for name, mask in masks.items()}, tokens)

# %% [markdown]
# Rows 1 to 3 are the same in the second and the third: padding *behind* a sentence lies in the future anyway. It does matter for an encoder, which has no causal mask, and where padding stands *in front*. There
# something else happens: the first row may see nothing at all.

# %%
in_front = torch.tensor([False, False, True, True, True]) & causal_mask(5)
bare = torch.zeros(5, 5).masked_fill(~in_front, -torch.inf).softmax(dim=-1)
print("softmax of -inf alone, first row:   ", bare[0].tolist())
print("the course's masked_softmax:        ", masked_softmax(torch.zeros(5, 5), in_front)[0].tolist())
fused = F.scaled_dot_product_attention(torch.zeros(5, 1), torch.zeros(5, 1), torch.eye(5), attn_mask=in_front)
print("scaled_dot_product_attention's row: ", fused[0].tolist())

# %% [markdown]
# An empty row is zeros in this course, and in PyTorch's fused function. (In `nn.MultiheadAttention` it is NaN.)
#
# A mask that is wrong often looks right. So do not look: **change one word and see what moves.** If word $j$ changes, the outputs before $j$ must not.


# %%
def moved(layer, x: torch.Tensor, j: int) -> str:
    """Which outputs change when word j of x (length, width) does: one sign a word."""
    other = x.clone()
    other[j] += 1
    same = torch.isclose(layer(x), layer(other)).all(dim=-1)
    return " ".join("·" if unchanged else "X" for unchanged in same)


x = torch.randn(6, 8, generator=runtime.seed(1))  # (words, width)
for name, mask in (
    ("no mask", None),
    ("causal", causal_mask(6)),
    ("causal, upside down", causal_mask(6).T),
):
    print(
        f"{name:20} word 3 changed, moved: {moved(lambda x, m=mask: scaled_dot_product(x, x, x, m)[0], x, 3)}"
    )

# %% [markdown]
# The causal mask has a consequence that made large language models possible. Row $t$ is what attention gives if the sentence ends at word $t$. So **one** pass over a sentence of $N$ words trains $N$ predictions, none of
# which can see its answer.

# %% tags=["nbval-check-output"]
all_at_once, _ = scaled_dot_product(x, x, x, causal_mask(6))
one_by_one = torch.stack([scaled_dot_product(x[: t + 1], x[: t + 1], x[: t + 1])[0][-1] for t in range(6)])
print(
    "one pass with a causal mask equals six passes over six beginnings:",
    torch.allclose(all_at_once, one_by_one),
)

# %% [markdown]
# Build masks of your own: a cell that you switch, the rows it changes.

# %%
mask_builder()

# %% [markdown]
# ## 5 · Heads
#
# A row of weights sums to 1. If *dort* wants to know who sleeps **and** how they look, one row has to divide its attention, and the sum of values does not say which part came from whom. So the paper lets several attentions
# work side by side. Each **head** has its own, narrower queries, keys and values; their outputs are put side by side and mixed by one more matrix:
#
# $$\mathrm{head}_i = \mathrm{Attention}(X W^Q_i,\, X W^K_i,\, X W^V_i) \qquad \mathrm{MultiHead}(X) = [\mathrm{head}_1; \dots; \mathrm{head}_h]\, W^O$$
#
# > **Predict first.** Width 64. Does a layer with 8 heads have more parameters than one with a single head? And more attention weights?
#
# In the code nobody makes $h$ small matrices. One matrix of the full width makes all queries, and head $i$ takes its share of the *columns*.


# %%
def multi_head_self_attention(X, W_Q, W_K, W_V, W_O, heads):
    """(words, width) -> (words, width): each head works on its own columns."""
    Q, K, V = X @ W_Q, X @ W_K, X @ W_V  # (words, width) each
    own = X.shape[1] // heads
    found = []
    for h in range(heads):
        columns = slice(h * own, (h + 1) * own)
        q, k, v = Q[:, columns], K[:, columns], V[:, columns]  # (words, own)
        found.append(softmax(q @ k.T / math.sqrt(own)) @ v)
    return np.concatenate(found, axis=1) @ W_O


generator = runtime.seed(0)
layer = nn.MultiheadAttention(64, 8, bias=False, batch_first=True).double()
sentence = torch.randn(1, 10, 64, generator=generator, dtype=torch.float64)  # (batch, words, width)
W_Q, W_K, W_V = (W.T.detach().numpy() for W in layer.in_proj_weight.chunk(3))
W_O = layer.out_proj.weight.T.detach().numpy()
by_hand = multi_head_self_attention(sentence[0].numpy(), W_Q, W_K, W_V, W_O, heads=8)
expected, _ = layer(sentence, sentence, sentence)

# %% tags=["nbval-check-output"]
print("by hand equals nn.MultiheadAttention:", np.allclose(by_hand, expected[0].detach()))
ours = MultiHeadAttention(64, 8).double()  # keys and values in one matrix; biases start at zero
with torch.no_grad():
    ours.query.weight.copy_(layer.in_proj_weight[:64])
    ours.key_value.weight.copy_(layer.in_proj_weight[64:])
    ours.output.weight.copy_(layer.out_proj.weight)
found = ours(sentence, ours.remember(sentence)).output
print("the course's MultiHeadAttention too: ", torch.allclose(found, expected))
for heads in (1, 8):
    size = sum(p.numel() for p in nn.MultiheadAttention(64, heads, bias=False).parameters())
    print(f"{heads} head(s): {size:,} parameters, {heads * 10 * 10} attention weights for 10 words")

# %% [markdown]
# Heads cost no parameters, since they share out the width. They do cost weights: each has a table of $N \times N$ of its own.
#
# (The course's layer takes two steps: `remember` makes keys and values, and the call makes queries and looks. So a decoder can make those of the source once, and lesson 07 can keep those of the past.)
#
# ### The reshape that silently does it wrong
#
# To do all heads at once, (words, width) has to become (heads, words, own). A reshape reads numbers in order and never moves one. Going there in one step gives each head *some of the words* instead of some of the columns:

# %%
figures.heads_by_reshape(["la", "maison", "bleue", "dort"], width=6, heads=2)

# %% [markdown]
# On the right-hand picture, the first head never sees *bleue* and *dort*. Nothing complains: shapes fit, weights sum to 1, and the model trains. One test finds it: with the wrong split, some words cannot move some others.
# The widths are 8, cut into 2 heads:

# %%
runtime.seed(2)
project = nn.Linear(8, 24, bias=False)


def two_heads(x: torch.Tensor, split) -> torch.Tensor:
    """Self-attention of x (words, width) with two heads, as `split` cuts them."""
    q, k, v = (split(part) for part in project(x).chunk(3, dim=-1))
    found, _ = scaled_dot_product(q, k, v)  # (heads, words, own)
    return found.transpose(0, 1).flatten(1) if split is columns else found.reshape(x.shape)


def columns(x: torch.Tensor) -> torch.Tensor:
    return torch.stack(x.chunk(2, dim=-1))  # (heads, words, own)


def one_reshape(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(2, len(x), -1)  # (heads, words, own), but not these words and not these columns


for split in (columns, one_reshape):
    print(f"{split.__name__:12} word 5 changed, moved: {moved(lambda x, s=split: two_heads(x, s), x, 5)}")

# %% [markdown]
# ## 6 · Attention is blind to order
#
# Look at the equation again: is there anything in it that says where a word stands? Scores are made from contents. A sum does not care about the order of its parts.
#
# > **Predict first.** "Le chien voit le chat" and "le chat voit le chien" (the dog sees the cat, the cat sees the dog) go through a layer of self-attention. In which of them is the dog the one who sees? Can the output
# > at *chien* tell?

# %%
runtime.seed(0)
blind = MultiHeadAttention(32, 4)
vectors = {word: torch.randn(32) for word in ("le", "chien", "voit", "chat")}


def attend(sentence: str, mask=None, positions: bool = False) -> torch.Tensor:
    """The outputs of the layer, (words, width)."""
    x = torch.stack([vectors[word] for word in sentence.split()])[None]  # (1, words, width)
    if positions:
        x = x + sinusoidal(torch.arange(x.shape[1]), 32)
    return blind(x, blind.remember(x), mask).output[0]


dog_sees, cat_sees = "le chien voit le chat", "le chat voit le chien"

# %% tags=["nbval-check-output"]
for name, options in (
    ("self-attention", {}),
    ("with a causal mask", {"mask": causal_mask(5)}),
    ("with positions", {"positions": True}),
):
    one, other = attend(dog_sees, **options)[1], attend(cat_sees, **options)[4]  # both at "chien"
    print(f"{name:18} the same output at chien in both sentences: {torch.allclose(one, other, atol=1e-6)}")

# %% [markdown]
# To the bare layer a sentence is a bag of words. Its property has a name: it is **equivariant**. Shuffle the words, and the outputs come out shuffled alike, and otherwise the same. (One of the exercises asks you to write that as a
# test that nothing slips through.) No further layer of this kind can find out more, and no network that treats each word alone can.
#
# An RNN knows order because it reads in order. A causal mask gives some of it away: the last word sees five, the first sees one. Otherwise we have to *tell* it.
#
# ## 7 · Positions, in three ways
#
# ### Sinusoidal
#
# The paper adds a vector to each embedding that depends on the position $p$ alone. Each pair of columns is a hand of a clock, and each clock is slower than the one before:
#
# $$\mathrm{PE}_{p,\,2i} = \sin(\omega_i\, p) \qquad \mathrm{PE}_{p,\,2i+1} = \cos(\omega_i\, p) \qquad \omega_i = 10000^{-2i/d}$$

# %%
table = sinusoidal(torch.arange(60), 32)  # (positions, width)
figures.heat_strips(
    {"encoding": table.T.numpy()},
    [str(p) for p in range(60)],
    signed=["encoding"],
    title="A column for each position",
)

# %% [markdown]
# The upper rows turn quickly and tell neighbours apart; the lower ones hardly move, and tell the beginning from the end. Together they are like the digits of a number, except that they change smoothly.
#
# Why sine *and* cosine? Because then a **shift is a rotation**. Going on by $k$ words turns every hand by the same angle $\omega_i k$, wherever it stands:
#
# $$\begin{pmatrix} \sin \omega(p + k) \\ \cos \omega(p + k) \end{pmatrix} =
# \begin{pmatrix} \cos \omega k & \sin \omega k \\ -\sin \omega k & \cos \omega k \end{pmatrix}
# \begin{pmatrix} \sin \omega p \\ \cos \omega p \end{pmatrix}$$
#
# The matrix does not contain $p$. So "three words back" is *one* linear map, the same at every place, and a layer can learn it.


# %%
def shift_matrix(k: int, width: int) -> torch.Tensor:
    """The map from the encoding of any position to that of the position k further on, (width, width)."""
    matrix = torch.zeros(width, width, dtype=torch.float64)
    for i in range(0, width, 2):
        angle = k * 10_000 ** (-i / width)
        turn = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
        matrix[i : i + 2, i : i + 2] = torch.tensor(turn)
    return matrix


shifted = table[:-7].double() @ shift_matrix(7, 32).T  # positions 0 ... 52, each turned by 7 words

# %% tags=["nbval-check-output"]
print("one matrix moves all 53 positions on by 7:", torch.allclose(shifted, table[7:].double(), atol=1e-4))

# %% [markdown]
# A consequence: how alike two encodings are (their dot product) depends on their distance alone. Three starting points, one curve:

# %%
long_table = sinusoidal(torch.arange(300), 32)
distances = np.arange(0, 60)
alike = {
    f"from position {p}": (distances, (long_table[p : p + 60] @ long_table[p]).numpy()) for p in (0, 50, 200)
}
figures.lines(alike, xlabel="distance (words)", ylabel="dot product of two encodings")

# %% [markdown]
# ### Learned
#
# Or give each position a vector of its own and let training find it: `nn.Embedding(longest, width)`. The paper tried both and found nearly the same quality (Table 3, row E). It costs `longest × width` parameters, position 5 has
# to be learned apart from position 6, and beyond the last row there is nothing.
#
# ### Rotary
#
# Sinusoidal encodings are *added*, so content and position share one vector, and the score of two words mixes four products. If what we want is the distance, there is a shorter way (Su et al. [2021](https://arxiv.org/abs/2104.09864)): leave the embeddings
# alone, and **turn queries and keys** by their positions, just before the scores. The angle between two hands that have been turned by $\omega m$ and $\omega n$ changes by $\omega (m - n)$: the score sees contents and distance, nothing else.
#
# > **Predict first.** The same six words, once at the beginning of a text and once from word 100 on. For which of the two, sinusoidal or rotary, are the scores between them the same?

# %%
generator = runtime.seed(3)
content = torch.randn(6, 32, generator=generator, dtype=torch.float64)  # (words, width)
to_query, to_key = (
    torch.randn(32, 32, generator=generator, dtype=torch.float64) / math.sqrt(32) for _ in range(2)
)


def scores_from(start: int, kind: str, x: torch.Tensor) -> torch.Tensor:
    """The scores between six words x (words, width) that begin at position `start`, (words, words)."""
    places = torch.arange(start, start + 6)
    x = x + sinusoidal(places, 32) if kind == "sinusoidal" else x
    q, k = x @ to_query, x @ to_key
    if kind == "rotary":
        q, k = rotary(q, places), rotary(k, places)
    return q @ k.T / math.sqrt(32)


# %% tags=["nbval-check-output"]
order = [2, 0, 1, 3, 5, 4]
for kind in ("no positions", "sinusoidal", "rotary"):
    here, later = scores_from(0, kind, content), scores_from(100, kind, content)
    shuffled = scores_from(0, kind, content[order])
    far, bag = (
        torch.allclose(*pair, atol=1e-3) for pair in ((here, later), (here[order][:, order], shuffled))
    )
    print(f"{kind:12}  the same scores 100 words later: {far!s:5}  blind to order: {bag}")

# %% [markdown]
# Explore the clocks: choose two positions, shift both, and watch what their product does.

# %%
position_explorer()

# %% [markdown]
# ## 8 · What positions are worth: name the word before
#
# A task that is nothing but order: read 20 random symbols out of 16, and at each place name the symbol *before*. One layer of attention with 4 heads, nothing else but an embedding and an output layer, trained for the same
# number of steps with each kind of position. Then we try sentences that are longer than all it was trained on.
#
# > **Predict first.** Which will learn it? The causal mask gives away some order: will it do? And which of the three that know positions will still be right at twice the length?

# %%
SYMBOLS, TRAINED = 16, 20
KINDS = ("none", "causal mask alone", "sinusoidal", "learned", "rotary")


class Before(nn.Module):
    """Embedding, one layer of self-attention, output; `kind` says how it learns of positions."""

    def __init__(self, kind: str, width: int = 64):
        super().__init__()
        self.kind, self.embed, self.read = kind, nn.Embedding(SYMBOLS, width), nn.Linear(width, SYMBOLS)
        self.attention = MultiHeadAttention(width, 4, rotary=kind == "rotary")
        self.places = nn.Embedding(TRAINED, width) if kind == "learned" else None

    def forward(self, tokens, with_weights=False):
        x, places = self.embed(tokens), torch.arange(tokens.shape[1], device=tokens.device)
        if self.kind == "sinusoidal":
            x = x + sinusoidal(places, x.shape[2])
        if self.kind == "learned":
            x = x + self.places(places)
        mask = causal_mask(len(places), tokens.device) if self.kind == "causal mask alone" else None
        found = self.attention(x, self.attention.remember(x), mask, with_weights=with_weights)
        return self.read(found.output), found.weights


# %%
TASK_STEPS = runtime.by_scale(class_=200, full=2_000)


def draw(count: int, length: int, generator: torch.Generator) -> torch.Tensor:
    """Random sentences, (count, length), drawn on the CPU."""
    return torch.randint(SYMBOLS, (count, length), generator=generator).to(device)


def learn_before(kind: str, seed: int = 0) -> Before:
    """A fresh model, trained on sentences of TRAINED symbols."""
    generator = runtime.seed(seed)
    model = Before(kind).to(device)
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(TASK_STEPS):
        tokens = draw(32, TRAINED, generator)
        logits, _ = model(tokens)
        loss = F.cross_entropy(logits[:, 1:].flatten(0, 1), tokens[:, :-1].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model


# %%
@torch.no_grad()
def named_right(model: Before, length: int) -> float:
    """The share of symbols of unseen sentences whose predecessor it names."""
    tokens = draw(200, length, torch.Generator().manual_seed(99))
    return float((model(tokens)[0][:, 1:].argmax(-1) == tokens[:, :-1]).float().mean())


# %%
trained = {kind: learn_before(kind) for kind in KINDS}
print(f"{'positions':18}" + "".join(f"{f'{n} symbols':>12}" for n in (20, 30, 40, 80)))
right = {}
for kind, model in trained.items():
    lengths = (20,) if kind == "learned" else (20, 30, 40, 80)
    right[kind] = {n: named_right(model, n) for n in lengths}
    shown = [f"{right[kind][n]:.0%}" if n in right[kind] else "no row" for n in (20, 30, 40, 80)]
    print(f"{kind:18}" + "".join(f"{text:>12}" for text in shown))

# %% tags=["nbval-check-output"]
with_positions = ("sinusoidal", "learned", "rotary")
print("chance is 1 in", SYMBOLS)
print("without positions under 25%:      ", right["none"][20] < 0.25)
print("a causal mask alone under 45%:    ", right["causal mask alone"][20] < 0.45)
print("each kind of position over 95%:   ", all(right[kind][20] > 0.95 for kind in with_positions))
print("at 40 symbols, rotary over 90%:   ", right["rotary"][40] > 0.9)
print("               sinusoidal does not:", right["sinusoidal"][40] < 0.8)

# %% [markdown]
# Without positions the model can only guess, a little better than chance, since the symbol before is one of those that it sees. Positions of any kind solve the task at the length that was trained. Beyond it they differ: the learned table has no row, the
# sinusoidal one has rows that the layer has never met, and rotary positions give distance 1 the same scores at every place. (That is this task, which asks for a distance. In larger models rotary positions do not go
# on to longer texts for free either.)
#
# Here is what the layer with rotary positions looks at, head by head averaged:

# %%
text = draw(1, 12, torch.Generator().manual_seed(5))
with torch.no_grad():
    _, looked = trained["rotary"](text, with_weights=True)  # (1, heads, words, words)
names = [chr(ord("a") + symbol) for symbol in text[0].tolist()]
figures.attention_matrix(looked[0].mean(dim=0).cpu().numpy(), names, names, title="rotary, mean of the heads")

# %% [markdown]
# ## 9 · The path from any word to any word
#
# In lesson 01 the gradient had to go back through every state between two words, and each step cost it a factor. In self-attention each word is read **directly**: one weight, one value, whatever the distance. The path has length 1.
#
# > **Predict first.** 200 words, no training. We take the output at the last word and ask for its gradient at each of the words. For the attention layer, what will the curve look like: falling slowly, level, or rising at the end?


# %%
def attention_flow(layer: MultiHeadAttention, x: torch.Tensor) -> np.ndarray:
    """The gradient norm at each word by its distance from the last, as probes.gradient_flow measures it."""
    inputs = [word.requires_grad_() for word in x.unbind(dim=1)]
    x = torch.stack(inputs, dim=1)
    direction = torch.randn(x.shape[2], generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    last = layer(x, layer.remember(x)).output[:, -1]
    return probes.gradient_norms((last @ (direction / direction.norm())).sum(), inputs)[::-1]


# %%
LENGTH = 200
generator = runtime.seed(0)
noise = torch.randn(16, LENGTH, 64, generator=generator, dtype=torch.float64)  # (batch, words, width)
plain, gated = (Recurrent(kind, 64, 64, fused=False).double() for kind in ("rnn", "lstm"))
orthogonal_(plain.rnn, 0.9, generator)  # as in lesson 01: a step scales by 0.9, and tanh takes more
forget_bias_(gated.rnn, 1)
layer = MultiHeadAttention(64, 4).double()
norms = {
    "plain RNN": probes.gradient_flow(plain, noise).norms[:LENGTH],
    "LSTM, forget bias 1": probes.gradient_flow(gated, noise).norms[:LENGTH],
    "attention": attention_flow(layer, noise),
}

# %%
figures.lines(
    {name: (np.arange(1, LENGTH), norm[1:] / norm[1]) for name, norm in norms.items()},
    xlabel="distance (words)",
    ylabel="gradient, relative to distance 1",
    yscale="log",
)

# %% tags=["nbval-check-output"]
fall = {name: norm[-1] / norm[1] for name, norm in norms.items()}
level = norms["attention"][1:].min() / norms["attention"][1:].max()
claim(
    "06.1",
    "any two positions are one step apart: the gradient at distance 199 is within a factor of 4 of that at distance 1; "
    "in a plain RNN it has fallen below 1e-20 of it",
    holds=0.25 < fall["attention"] < 4 and level > 0.2 and fall["plain RNN"] < 1e-20,
    measured="; ".join(f"{name} {value:.1e}" for name, value in fall.items())
    + f"; attention's smallest over its largest {level:.2f}",
)

# %% [markdown]
# Level. But level at which height? An untrained layer spreads its weights evenly, so each of $N$ words gets about $1/N$ of the gradient:

# %%
for length in (25, 50, 100, 200):
    flow = attention_flow(layer, noise[:, :length])
    print(
        f"{length:4} words: mean gradient at the others {flow[1:].mean():.4f}, times the number of words {length * flow[1:].mean():.2f}"
    )

# %% [markdown]
# $1/N$ is not $0.9^N$. It is a share that training can move: once a layer has learned where to look, the gradient goes there and nowhere else. An RNN cannot move its path. What is said here is about *one* layer, and about the length of the path. Whether
# something useful is learned along it is another question.
#
# ## 10 · All at once
#
# The second gain: no word waits for another. Count the operations that PyTorch records for a sentence of $N$ words:


# %%
def operations(result: torch.Tensor) -> int:
    """How many operations autograd has recorded on the way to `result`."""
    seen, todo = set(), [result.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [before for before, _ in node.next_functions]
    return len(seen)


WIDTH = 32
runtime.seed(0)
attention = MultiHeadAttention(WIDTH, 1).to(device)
lstm = {fused: Recurrent("lstm", WIDTH, WIDTH, fused=fused).to(device) for fused in (True, False)}
counted = {"attention": {}, "LSTM, step by step": {}}
for length in (16, 64, 256):
    x = torch.randn(1, length, WIDTH, device=device)
    counted["attention"][length] = operations(attention(x, attention.remember(x), with_weights=True).output)
    counted["LSTM, step by step"][length] = operations(lstm[False](x)[0])
for name, counts in counted.items():
    print(f"{name:18}", ", ".join(f"{count:,} for {length} words" for length, count in counts.items()))

# %% [markdown]
# The number for attention does not depend on the length: the operations become larger, not more. You can read that, therefore, "on a GPU a sequence of 1,024 tokens takes the same time as one of 2". Let us measure it here.
#
# > **Predict first.** From 2 to 8,192 words, one sentence, width 32. Up to which length will the time of attention stay level on your machine? And the LSTM's? Which of the two is faster at 8,192 words?

# %%
ON_GPU = device.type != "cpu"
LENGTHS = [2, 8, 32, 128, 512, 1024, 2048, 4096, 8192] + [16384, 32768, 65536] * ON_GPU
LONG_LSTM = [] if ON_GPU else [16384, 32768]  # cheap here, and a steadier slope
inputs = {n: torch.randn(1, n, WIDTH, device=device) for n in [*LENGTHS, *LONG_LSTM]}


@torch.no_grad()
def look(x: torch.Tensor, with_weights: bool):
    return attention(x, attention.remember(x), with_weights=with_weights).output


@torch.no_grad()
def read(x: torch.Tensor, fused: bool):
    return lstm[fused](x)[0]


# %%
runs = {  # name: (function, the longest sentence that it gets)
    "LSTM, fused": (lambda x: read(x, True), max(inputs)),
    "attention, fused": (lambda x: look(x, False), LENGTHS[-1]),
    "attention, written out": (lambda x: look(x, True), 4096),
    "LSTM, step by step": (lambda x: read(x, False), 512),
}
calls = {
    (name, n): lambda run=run, x=x: run(x)
    for name, (run, longest) in runs.items()
    for n, x in inputs.items()
    if n <= longest
}
# %%
took = probes.compare(calls, repeats=7)  # all calls in each round, so that a busy moment meets all alike
times = {name: {} for name, _ in took}
for (name, n), seconds in took.items():
    times[name][n] = 1000 * seconds
figures.lines(
    {name: (list(found), list(found.values())) for name, found in times.items()},
    xlabel="length of the sentence (words)",
    ylabel="time (ms)",
    xscale="log",
    yscale="log",
)


# %%
def bend(found: dict[int, float]) -> int:
    """The largest length up to which nothing takes three times as long as 2 words."""
    return max(n for n in found if all(found[m] < 3 * found[2] for m in found if m <= n))


for name, found in times.items():
    print(
        f"{name:22} level up to {bend(found):5} words; {found[512] / found[2]:6.1f} times the time of 2 words at 512"
    )
fused = times["attention, fused"]
print(
    f"1,024 words take {fused[1024] / fused[2]:.1f} times as long as 2 (attention, fused, on {device.type})"
)

# %% tags=["nbval-check-output"]
loop, longest = times["LSTM, step by step"], LENGTHS[-1]
claim(
    "06.2",
    "attention takes all positions at once, in the same number of operations for any length, and its time is level only "
    "until the device is full; an LSTM step by step grows from the start",
    holds=len(set(counted["attention"].values())) == 1
    and bend(fused) >= 8
    and fused[longest] > 10 * fused[2]
    and loop[512] > 10 * loop[2],
    measured=f"{device.type}: level up to {bend(fused)} words, 1,024 words {fused[1024] / fused[2]:.1f} times the time of 2, "
    f"{longest:,} words {fused[longest] / fused[2]:,.0f} times; LSTM step by step, 512 words {loop[512] / loop[2]:.0f} times",
)

# %% [markdown]
# The sentence about 1,024 and 2 tokens is true **while the device is not full**. A device has a number of things that it can do at once, and a small attention layer leaves most of them idle; what you see then is the time it takes to *start* the operations. Past the bend
# there is more to do than can be done at once. One CPU core is full very early, a large GPU very late (run this cell on one).
#
# And an honest word about the LSTM. In the loop it pays for every step. The fused one does not start steps one by one, and on a single core nothing could be done at the same time anyway: there it is *faster* than attention on long sentences, because it
# has less to do. Attention wins where there are many units to keep busy: on GPUs, in training. That it has more to do is the next section.
#
# ## 11 · What it costs: $N^2$
#
# $N$ words ask $N$ words: $N^2$ scores. Twice the length, four times the scores, four times the work, and, if the scores are kept for the way back, four times the memory. On log-log axes a power law $N^p$ is a straight line of slope $p$.
#
# Memory first, since it can be counted exactly: the bytes that autograd keeps for the backward pass.


# %%
def kept_bytes(run) -> int:
    """The bytes of all tensors that autograd keeps for the way back, each memory counted once."""
    kept = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = run()
    assert result.requires_grad
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


# %%
memory = {"attention, written out": {}, "attention, fused": {}, "LSTM, fused": {}}
for n in (128, 512, 1024, 2048, 4096):
    x = inputs[n]
    for name, with_weights in (("attention, written out", True), ("attention, fused", False)):
        memory[name][n] = kept_bytes(
            lambda x=x, w=with_weights: attention(x, attention.remember(x), with_weights=w).output
        )
    memory["LSTM, fused"][n] = kept_bytes(lambda x=x: lstm[True](x)[0])
figures.lines(
    {name: (list(found), [size / 2**20 for size in found.values()]) for name, found in memory.items()},
    xlabel="length of the sentence (words)",
    ylabel="kept for the way back (MiB)",
    xscale="log",
    yscale="log",
)

# %% [markdown]
# The steep line is the table of weights, $N^2$ numbers of 4 bytes. The lowest line is *the same attention*: PyTorch's `scaled_dot_product_attention` goes through the keys block by block, never holds the whole table, and makes it again on the way back
# (the idea of FlashAttention, which lesson 08 takes apart). Same values, without the memory:

# %% tags=["nbval-check-output"]
x = inputs[1024]
with torch.no_grad():
    agree = torch.allclose(look(x, True), look(x, False), atol=1e-4)
print("fused and written out agree:", agree)
print(
    "written out keeps more than 5 times as much at 4,096 words:",
    memory["attention, written out"][4096] > 5 * memory["attention, fused"][4096],
)


# %%
def slope(found: dict[int, float]) -> float:
    """The slope on log-log axes for long sentences: from 1,024 words on (on a GPU, the four longest)."""
    start = min(LENGTHS[-4], sorted(found)[-3])
    lengths = [n for n in found if n >= start]
    return float(np.polyfit(np.log(lengths), np.log([found[n] for n in lengths]), 1)[0])


slopes = {name: slope(times[name]) for name in memory}
bytes_slope = {name: slope(found) for name, found in memory.items()}
print(f"{'':22}  slope of time   slope of memory")
for name in memory:
    print(f"{name:22}  {slopes[name]:13.2f}   {bytes_slope[name]:15.2f}")
more = times["attention, written out"][4096] / fused[4096]
print(f"attention at 4,096 words: written out takes {more:.1f} times as long as fused")

# %% tags=["nbval-check-output"]
claim(
    "06.3",
    "the scores are N x N: for long sentences attention's time has a slope of 1.6 to 2.2 on log-log axes, the LSTM's one "
    "near 1, and the memory of attention written out one near 2",
    holds=1.6 <= slopes["attention, fused"] <= 2.2
    and 0.6 <= slopes["LSTM, fused"] <= 1.4
    and 1.8 <= bytes_slope["attention, written out"] <= 2.1
    and bytes_slope["attention, fused"] < 1.2,
    measured=f"slope of time: attention {slopes['attention, fused']:.2f}, LSTM {slopes['LSTM, fused']:.2f}; of memory: "
    + ", ".join(f"{name} {value:.2f}" for name, value in bytes_slope.items()),
)

# %% [markdown]
# If the written-out form has a slope above 2 on your machine, that is no mistake: its table outgrows the processor's fast memory and has to be carried to and fro. Work is not the only thing that costs time.
#
# The other side of the ledger is what a layer of width $d$ does for **one** word. An LSTM multiplies with two matrices of $d \times 4d$: $8d^2$ multiplications. Attention multiplies with four of $d \times d$ and then
# looks at $N$ keys and $N$ values: $4d^2 + 2Nd$. In sentences shorter than $2d$ words, attention has *less* to do. The paper's Table 1 says it in orders of magnitude: $N^2 d$ against $N d^2$ operations, a path of 1
# against $N$, and 1 operation after another against $N$.
#
# ## 12 · Common mistakes
#
# Each of these has been found in published code. Each runs without an error, or nearly.
#
# **The scale used the wrong way round.** A scale stored as $d_k^{-1/2}$ is a factor; who divides by it multiplies by $\sqrt{d_k}$. Scores 2 and 0, $d_k = 2$:

# %%
row = torch.tensor([2.0, 0.0])
for name, scores in (
    ("right", row / math.sqrt(2)),
    ("not divided", row),
    ("divided by d_k", row / 2),
    ("divided by d_k ** -0.5", row / 2**-0.5),
):
    print(f"{name:23} {[round(w, 4) for w in scores.softmax(-1).tolist()]}")

# %% [markdown]
# **One mask, two meanings.** `F.scaled_dot_product_attention`: True means keep. `nn.MultiheadAttention`: True means *ignore*, in `attn_mask` and in `key_padding_mask`. The same causal mask in both; the weights of three words:

# %%
runtime.seed(0)
module, three = nn.MultiheadAttention(4, 1, batch_first=True), torch.zeros(1, 3, 4)
_, wrong = module(three, three, three, attn_mask=causal_mask(3))
_, turned = module(three, three, three, attn_mask=~causal_mask(3))
for name, found in (("True = keep given to nn.MultiheadAttention", wrong), ("inverted", turned)):
    print(f"{name}:", [[round(w, 2) for w in row] for row in found[0].tolist()])

# %% [markdown]
# The first word sees the future only, and the last one, which may see nothing, is NaN. Nothing else would have shown it.
#
# **The diagonal.** `torch.triu(..., diagonal=1)` hides what lies strictly above the diagonal. With `diagonal=0` a word does not see itself, and the first sees nothing. (That has been proposed as a *correction*.)

# %%
for diagonal in (1, 0):
    hidden = torch.triu(torch.full((3, 3), -torch.inf), diagonal=diagonal)
    print(f"diagonal={diagonal}:", [[round(w, 2) for w in row] for row in hidden.softmax(-1).tolist()])

# %% [markdown]
# **Batch and length confused.** `nn.MultiheadAttention` without `batch_first=True` takes (length, batch, width). Given (batch, length, width), each word attends to its place in the *other sentences*. Change sentence 1, and see whether sentence 0 moves:

# %%
runtime.seed(0)
two = torch.randn(2, 5, 8)
other = torch.cat([two[:1], two[1:] + 1])
for batch_first in (True, False):
    module = nn.MultiheadAttention(8, 2, batch_first=batch_first)
    change = (module(two, two, two)[0][0] - module(other, other, other)[0][0]).abs().max().item()
    print(f"batch_first={batch_first!s:5}  sentence 0 moves by {change:.3f}")

# %% [markdown]
# **Dropout that never stops.** The fused function does not know whether the model trains. A constant `dropout_p` drops weights when you translate, too.

# %%
module.eval()
q = torch.randn(1, 4, 8, generator=runtime.seed(0))
for name, p in (
    ("dropout_p=0.5", 0.5),
    ("dropout_p=0.5 if self.training else 0.0", 0.5 if module.training else 0.0),
):
    passes = [F.scaled_dot_product_attention(q, q, q, dropout_p=p) for _ in range(2)]
    print(f"{name}: two passes agree: {torch.equal(*passes)}")

# %% [markdown]
# **One layer, three times.** `[layer] * 3` is a list with the same layer in it three times. `copy.deepcopy` makes three layers that start alike, which is fine (PyTorch's own `nn.TransformerEncoder` does it), and does not mean that they share anything.

# %%
import copy

block = nn.Linear(2, 2)
for name, layers in (
    ("[layer] * 3", [block] * 3),
    ("three deep copies", [copy.deepcopy(block) for _ in range(3)]),
):
    print(f"{name:18} {sum(p.numel() for p in nn.ModuleList(layers).parameters())} parameters")

# %% [markdown]
# **Positions along the batch.** Code written for (length, batch, width) cuts the table with `x.shape[0]`. For (batch, length, width), that gives a whole sentence one position:

# %%
zeros = torch.zeros(2, 3, 4)  # (batch, words, width)
along_batch = zeros + sinusoidal(torch.arange(zeros.shape[0]), 4)[:, None]
along_words = zeros + sinusoidal(torch.arange(zeros.shape[1]), 4)
for name, encoded in (("table[:x.shape[0], None]", along_batch), ("table[:x.shape[1]]", along_words)):
    print(
        f"{name:25} first column, by sentence: {[[round(v, 2) for v in row] for row in encoded[..., 0].tolist()]}"
    )

# %% [markdown]
# **Positions that drown the words.** The paper multiplies embeddings by $\sqrt{d}$ before it adds positions. An embedding that starts small, and is not multiplied (or is divided), is a whisper beside its position. (BERT does not multiply; it learns its positions, and they start small too.)

# %%
runtime.seed(0)
small = torch.randn(1000, 64) / math.sqrt(64)  # a usual start: each embedding about 1 long
position = sinusoidal(torch.tensor([7]), 64).norm().item()
for name, factor in (("times sqrt(d)", 8), ("as they are", 1), ("divided by sqrt(d)", 1 / 8)):
    print(f"embeddings {name:19} length {factor * small.norm(dim=1).mean():.2f}, position {position:.2f}")

# %% [markdown]
# **A table that stays behind.** A tensor kept as a plain attribute does not move with the model, to a GPU or to another dtype. `register_buffer` makes it part of it. The test needs no GPU: convert the model, and look.


# %%
class Positions(nn.Module):
    def __init__(self, as_buffer: bool):
        super().__init__()
        if as_buffer:
            self.register_buffer("table", sinusoidal(torch.arange(10), 8), persistent=False)
        else:
            self.table = sinusoidal(torch.arange(10), 8)


for as_buffer in (False, True):
    print(f"buffer: {as_buffer!s:5}  after .double(): {Positions(as_buffer).double().table.dtype}")

# %% [markdown]
# **Tested here, trained there.** Mask objects have lost their meaning on the way to a GPU: a causal one arrived as a plain one. So run the leak test of section 4 on the device that trains:

# %%
there = torch.randn(6, 8, generator=runtime.seed(1)).to(device)
mask = causal_mask(6).to(device)
print(
    f"on {device.type}: word 3 changed, moved:",
    moved(lambda x: F.scaled_dot_product_attention(x, x, x, mask), there, 3),
)

# %% [markdown]
# ## 13 · Check yourself
#
# **1. A word has the query q. What is it compared with?**
#
# <details><summary>a) With the values of all words</summary>No. Values are what is summed. They are not looked at when weights are made.</details>
# <details><summary>b) With the keys of all words, its own too</summary>Yes: one dot product for each, divided by the root of their width, then a softmax.</details>
# <details><summary>c) With the keys of the words before it</summary>Only under a causal mask. Without one, words look both ways.</details>
#
# **2. You double the width of every head and forget to change the scale. What happens at the start of training?**
#
# <details><summary>a) Nothing; the scale is a constant</summary>No. The variance of the scores is the width divided by the square of the scale: it doubles.</details>
# <details><summary>b) Weights become sharper, and the gradient through the softmax smaller</summary>Yes. That is what the division is for.</details>
# <details><summary>c) Weights become more even</summary>No. Larger scores make a softmax sharper.</details>
#
# **3. A decoder has a causal mask, and its sentences are padded at the end. Does it need the padding mask for its real words?**
#
# <details><summary>a) No: padding at the end is in their future</summary>Yes, that is right. (The loss still has to ignore the rows of padding; and with padding in front, the mask is needed.)</details>
# <details><summary>b) Yes: padding takes weight otherwise</summary>Not from them: the causal mask hides it already.</details>
# <details><summary>c) Yes: otherwise rows are NaN</summary>No. A row is NaN if it may see nothing, and each real word sees itself.</details>
#
# **4. A layer of self-attention without positions gets a sentence with two equal words. What can it say of them?**
#
# <details><summary>a) Their outputs are equal</summary>Yes. Same vector, same query, same keys to meet: nothing tells them apart.</details>
# <details><summary>b) Their outputs differ, since they have different neighbours</summary>No. It does not know who is a neighbour.</details>
# <details><summary>c) The first gets more weight than the second</summary>No. Equal keys have equal scores.</details>
#
# **5. From 4,096 to 8,192 words the time of attention grows four times. What would make it twice?**
#
# <details><summary>a) The fused function</summary>No. It saves memory and the carrying to and fro. The work stays N<sup>2</sup>.</details>
# <details><summary>b) More heads</summary>No. They share out the width; each still has N<sup>2</sup> scores.</details>
# <details><summary>c) A window: each word sees a fixed number of others</summary>Yes. Then there are N times a constant scores. Lesson 08 does that, and pays with a longer path.</details>
#
# ## 14 · What to take away
#
# - In self-attention each word asks, is asked and answers: $\mathrm{softmax}(QK^\top/\sqrt{d_k})\,V$, with all three made from the same words.
# - The division keeps the variance of the scores at 1, so that the softmax can still learn.
# - Masks: True = may attend. Padding hides columns, causality hides the upper triangle, an empty row is zeros. Test by changing a word.
# - Heads are slices of the width. Reshape, *then* transpose.
# - Attention is blind to order. Positions are added (sinusoidal, learned) or turned into queries and keys (rotary).
# - A path of length 1 and no waiting, for $N^2$ scores. What is faster depends on the device and on the length: measure.
#
# **Further reading**: [Vaswani et al. (2017)](https://arxiv.org/abs/1706.03762), section 3.2 and Table 1 · [Su et al. (2021)](https://arxiv.org/abs/2104.09864), rotary positions ·
# [Shaw et al. (2018)](https://arxiv.org/abs/1803.02155), distances in the scores · [Haviv et al. (2022)](https://arxiv.org/abs/2203.16634), what a causal mask alone tells of positions ·
# [Dao et al. (2022)](https://arxiv.org/abs/2205.14135), FlashAttention · [Voita et al. (2019)](https://arxiv.org/abs/1905.09418), what heads do, and which can go.
#
# **Now do the exercises**: `exercises/06_self_attention.ipynb`. **Next**, lesson 07: two of these layers, a small network for each word, and what holds a deep stack of them together: the Transformer.
