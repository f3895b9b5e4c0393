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
# # 01 · Vanishing gradients: why a plain RNN forgets
#
# <!-- badge -->
#
# A recurrent network reads a sequence one token at a time and keeps a *state*, a vector of fixed size, in which everything
# that it has read has to fit. In principle it can remember for as long as it likes. In practice a plain one *learns* to remember
# for ten or twenty steps. This lesson shows why, with numbers. All that comes later in this course, gates, attention and the
# Transformer, is an answer to what you see here.
#
# **What you will be able to do**
#
# - write a recurrent network by hand, and the way back through it (backpropagation through time), and check both;
# - say why a gradient shrinks or grows exponentially with distance, predict how fast, and measure it;
# - clip a gradient that explodes, and say why no clipping helps one that vanishes;
# - measure how far back a network learns to remember, under a budget that you state;
# - say what moves that limit, and why it is a limit of training and not of what such a network can do.
#
# **Time**: about 75 minutes, then as long again for the exercises in `exercises/01_vanishing_gradients.ipynb`. The notebook
# runs from top to bottom in about a minute on two cores. **You need** Python, PyTorch's tensors and autograd, and an idea of what a gradient is.

# %% tags=["setup"]
from course_utils import runtime

device = runtime.start("01", needs="training the small networks of sections 4 to 6")

# %%
import math
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from course_utils import figures, probes
from course_utils.claims import claim
from course_utils.models import Recurrent, identity_, orthogonal_
from course_utils.widgets import gradient_explorer

# %% [markdown]
# ## 1 · A network that reads
#
# Take a vector $x_t$ for each token, and a state $h_t$. At every step the network mixes the new input with the old state, and
# squashes the result so that each number stays between -1 and 1:
#
# $$h_t = \tanh(W_x\, x_t + W_h\, h_{t-1} + b)$$
#
# This is the network of Elman ([1990](https://doi.org/10.1207/s15516709cog1402_1)). Drawn once for each step, "unrolled", it looks
# like a deep network. But all its layers share the same weights.

# %%
figures.unrolled_diagram(["the", "cat", "that", "sat"])

# %% [markdown]
# A picture to keep: a story that is retold from person to person, each adding a sentence. The picture is good because nobody
# sees the beginning again; there is only what the last person said. It breaks in one place: here it is the *same* person each time, with the
# same habits ($W_h$). What this person tends to drop is dropped again at every step.
#
# By hand, in numpy, for one sequence:


# %%
def step(x_t, h, W_x, W_h, b):
    """One step. x_t (input,), h (hidden,) -> (hidden,)"""
    return np.tanh(W_x @ x_t + W_h @ h + b)


def forward(x, h0, W_x, W_h, b):
    """All states h_0 ... h_T, the first one included. x (length, input) -> (length + 1, hidden)"""
    states = [h0]
    for x_t in x:
        states.append(step(x_t, states[-1], W_x, W_h, b))
    return np.stack(states)


random = np.random.default_rng(0)
x = random.normal(size=(4, 2))  # (length, input): four tokens
W_x = random.normal(size=(3, 2))  # (hidden, input)
W_h = 0.4 * random.normal(size=(3, 3))  # (hidden, hidden)
b, h0 = 0.1 * random.normal(size=3), random.normal(size=3)
states = forward(x, h0, W_x, W_h, b)
print(states.round(3))

# %% [markdown]
# Five rows: the state that we start with, and one after each token. The same in torch is the same five lines with `torch.tanh`; we
# write it so, because torch can then find the gradients. PyTorch's own layer, `nn.RNN`, keeps two biases, one for the input and one for the
# state. They are added, so one of them may be zero.


# %%
def forward_torch(x, h0, W_x, W_h, b):
    """The same, with tensors. x (length, input) -> (length + 1, hidden)"""
    states = [h0]
    for x_t in x:
        states.append(torch.tanh(W_x @ x_t + W_h @ states[-1] + b))
    return torch.stack(states)


given = [torch.tensor(a, requires_grad=True) for a in (x, h0, W_x, W_h, b)]
by_hand = forward_torch(*given)

layer = nn.RNN(2, 3, batch_first=True).double()
with torch.no_grad():
    layer.weight_ih_l0.copy_(given[2]), layer.weight_hh_l0.copy_(given[3])
    layer.bias_ih_l0.copy_(given[4]), layer.bias_hh_l0.zero_()
fused, last = layer(given[0][None], given[1][None, None])  # (1, length, hidden), (1, 1, hidden)
print("numpy and torch agree:   ", np.allclose(states, by_hand.detach()))
print("torch and nn.RNN agree:  ", torch.allclose(by_hand[1:], fused[0], atol=1e-12))

# %% [markdown]
# Now count. Let a network of width 256 read 200 tokens.
#
# > **Predict first.** We change the first token and nothing else. How different will the last state be: as different as the first
# > state, a tenth as much, or not at all?

# %%
runtime.seed(0)
wide = Recurrent("rnn", 16, 256, fused=False).double()  # the course's layer: the same loop, for batches
with torch.no_grad():
    tokens = F.one_hot(torch.randint(16, (1, 200)), 16).double().repeat(2, 1, 1)  # (batch, length, input)
    tokens[1, 0] = tokens[1, 0].roll(1)  # another first token, all else alike
    read = [h for (h,) in wide.unroll(tokens)]  # h_0 ... h_200, each (batch, hidden)
for t in (1, 2, 5, 10, 20, 50, 200):
    print(f"after token {t:3}: the two states are {float((read[t][0] - read[t][1]).norm()):.1e} apart")

# %%
maps = len(read[1:]) - 1  # from h_1, which has read the first token, to h_200
sizes = {h[0].numel() for h in read}
print(f"{maps} maps lie between the state after token 1 and the state after token 200;")
print(f"the numbers in a state, over all 200 of them: {sizes}")

# %% tags=["nbval-check-output"]
claim(
    "01.3",
    "from token 1 to token 200 the state goes through 199 nonlinear maps, and its size does not change with the length",
    holds=maps == 199 and sizes == {256},
    measured=f"{maps} maps; {4 * 256:,} bytes at width 256, {4 * 1024:,} at width 1024, after 1 token as after 200",
)

# %% [markdown]
# A different first token makes different states, and then the difference fades, by about the same *factor* at every step, until nothing is left of it but
# rounding (these are 64-bit numbers, which hold about 16 digits). This untrained network does not know any more that its first token was another.
#
# But the weights are random. Cannot training find better ones, under which the first token stays? That depends on whether the training hears about
# the first token at all. So we look at the way back.
#
# ## 2 · The way back, by hand
#
# Take one number at the end as the loss, here the share of the last state in some direction: $L = u \cdot h_T$. Training asks for its gradient by each weight.
# Every weight is used $T$ times, once at each step, so the gradients of the $T$ uses add up. To get them, go back through the steps, from
# the last to the first. With $z_t = W_x x_t + W_h h_{t-1} + b$ for what stands inside tanh, and with $\tanh' = 1 - \tanh^2$, the chain rule says
#
# $$\frac{dL}{dz_t} = (1 - h_t^2) \odot \frac{dL}{dh_t} \qquad \frac{dL}{dh_{t-1}} = W_h^\top\, \frac{dL}{dz_t}$$
#
# $$\frac{dL}{dW_h} = \sum_t \frac{dL}{dz_t}\, h_{t-1}^\top \qquad \frac{dL}{dW_x} = \sum_t \frac{dL}{dz_t}\, x_t^\top \qquad \frac{dL}{db} = \sum_t \frac{dL}{dz_t}$$
#
# This is **backpropagation through time** (Werbos [1990](https://doi.org/10.1109/5.58337)): the ordinary chain rule on the unrolled network.


# %%
def backward(x, states, W_h, u):
    """Gradients of L = u . h_T by W_x, W_h, b, and by every state h_0 ... h_T."""
    dW_x, dW_h, db = np.zeros((len(u), x.shape[1])), np.zeros_like(W_h), np.zeros_like(u)
    dh = [u]  # dL/dh_T
    for t in range(len(x), 0, -1):  # from the last step to the first
        dz = (1 - states[t] ** 2) * dh[0]  # (hidden,)
        dW_x += np.outer(dz, x[t - 1])  # x[0] is the token of step 1
        dW_h += np.outer(dz, states[t - 1])  # the state *before* the step
        db += dz
        dh.insert(0, W_h.T @ dz)  # dL/dh_{t-1}
    return dW_x, dW_h, db, np.stack(dh)


u = random.normal(size=3)
dW_x, dW_h, db, dh = backward(x, states, W_h, u)

# %% [markdown]
# Is it right? Two checks. Autograd must agree, to rounding. And so must **finite differences**, which know no chain rule: move one weight a little, up and
# down, and see how the loss moves. That check works on any gradient, in any language, so it is worth having.

# %%
loss = by_hand[-1] @ torch.tensor(u)
autograd = torch.autograd.grad(loss, given[1:])  # by h0, W_x, W_h, b


def finite_differences(weights: list[np.ndarray], which: int, nudge: float = 1e-5) -> np.ndarray:
    """(L(w + nudge) - L(w - nudge)) / (2 nudge), for each number w of one array."""
    result = np.zeros_like(weights[which])
    for index in np.ndindex(result.shape):
        ends = []
        for sign in (1, -1):
            moved = [w.copy() for w in weights]
            moved[which][index] += sign * nudge
            ends.append(u @ forward(x, *moved)[-1])
        result[index] = (ends[0] - ends[1]) / (2 * nudge)
    return result


# %%
names, ours = ("h0", "W_x", "W_h", "b"), (dh[0], dW_x, dW_h, db)
for i, (name, mine, theirs) in enumerate(zip(names, ours, autograd, strict=True)):
    differences = finite_differences([h0, W_x, W_h, b], i)
    print(
        f"{name:3}  largest gap to autograd {abs(mine - theirs.numpy()).max():.0e}, "
        f"to finite differences {abs(mine - differences).max():.0e}"
    )

# %% [markdown]
# Both agree, autograd to the last digit, finite differences as well as finite steps can. Here is the way back in the picture, with the norms of $dL/dh_t$ that
# we have just computed:

# %%
words = ["the", "cat", "that", "sat"]
figures.unrolled_diagram(words, norms=np.linalg.norm(dh, axis=1).tolist(), loss="u · h₄")

# %% [markdown]
# ## 3 · A product of many factors
#
# Put the two equations of the way back together, and then $k$ of them:
#
# $$\frac{dL}{dh_{T-k}} = \underbrace{J_{T-k+1}^\top \cdots J_{T-1}^\top\, J_T^\top}_{k \text{ factors}}\; \frac{dL}{dh_T},
# \qquad J_t = \operatorname{diag}(1 - h_t^2)\, W_h$$
#
# The gradient that arrives $k$ steps before the end has been multiplied by $k$ matrices. A product of many similar factors does one of
# three things: it vanishes, it explodes, or, in the narrow place between, it stays. We can say how fast. Each step back does two things to the length of the gradient:
#
# - tanh′ multiplies its numbers by something between 0 and 1. The squared length shrinks by the mean of tanh′², so the length by the
#   **root mean square** of tanh′;
# - $W_h^\top$ stretches it by about the **spectral radius** $\rho$, the size of the largest eigenvalue of $W_h$. For a multiple of an
#   orthogonal matrix (a rotation, say) this is exact: it stretches every vector alike.
#
# So we expect the length to change by the factor $\rho \cdot \sqrt{\operatorname{mean}(\tanh'^2)}$ a step: a straight line on a logarithmic axis, with the slope
#
# $$\text{slope} = \log \rho + \tfrac{1}{2} \log \operatorname{mean}\,(1 - h^2)^2$$
#
# > **Predict first.** With $\rho = 1.2$ the matrix makes every vector longer. Will the gradient grow?


# %%
def random_layer(radius: float, *, width: int = 64, orthogonal: bool = True, seed: int = 0) -> Recurrent:
    """A tanh layer with random weights and a recurrent matrix of this spectral radius, in double precision."""
    generator = runtime.seed(seed)
    layer = Recurrent("rnn", 16, width, fused=False).double()
    with torch.no_grad():
        layer.rnn.weight_ih_l0.normal_(0, 0.25, generator=generator)
        layer.rnn.bias_ih_l0.zero_(), layer.rnn.bias_hh_l0.zero_()
        if orthogonal:
            orthogonal_(layer.rnn, radius, generator)
        else:  # independent normal entries
            layer.rnn.weight_hh_l0.normal_(generator=generator)
            probes.scale_to_radius_(layer.rnn.weight_hh_l0, radius)
    return layer


# %%
def noise(length: int, size: float = 1.0, *, batch: int = 16) -> torch.Tensor:
    """Random inputs, (batch, length, 16)."""
    generator = torch.Generator().manual_seed(1)
    return size * torch.randn(batch, length, 16, generator=generator, dtype=torch.float64)


SCALES = (0.5, 0.7, 0.9, 1.2)
flows = {scale: probes.gradient_flow(random_layer(scale), noise(60)) for scale in SCALES}
print("scale   measured slope   predicted   factor a step   60 steps back")
for scale, flow in flows.items():
    factor, left = math.exp(flow.slope), flow.norms[-1] / flow.norms[0]
    print(f"{scale:5}   {flow.slope:14.3f}   {flow.predicted:9.3f}   {factor:13.3f}   {left:13.0e}")

# %% [markdown]
# `gradient_flow` runs the layer, takes $L = u \cdot h_T$ with a random direction $u$, and returns the norm of $dL/dh_t$ for every state, the slope of a straight line through
# its logarithm, and the predicted slope.

# %%
series = {}
for scale in (0.5, 0.9, 1.2):
    flow = flows[scale]
    lags = np.arange(len(flow.norms))
    series[f"scale {scale}"] = (lags, flow.norms)
    series[f"{scale} predicted"] = (lags, flow.norms[0] * np.exp(flow.predicted * lags))
figures.lines(series, xlabel="lag (steps back from the end)", ylabel="gradient norm, dL/dh", yscale="log")

# %% [markdown]
# Straight lines, and close to the predicted ones. The third answers the question: at scale 1.2 the gradient shrinks all the same. The inputs drive
# the states towards -1 and 1, where tanh is flat: the squashing takes more than the matrix gives.
#
# The prediction from the radius is exact for orthogonal matrices only. For one with independent random entries it is rougher, and better the
# wider the layer:

# %%
print("width   measured / predicted slope at scale 0.7, five matrices with independent entries each")
for width in (16, 64, 256):
    found = [
        probes.gradient_flow(random_layer(0.7, width=width, orthogonal=False, seed=seed), noise(40, batch=4))
        for seed in range(5)
    ]
    print(f"{width:5}  ", "  ".join(f"{flow.slope / flow.predicted:.2f}" for flow in found))

# %% [markdown]
# ### Exploding
#
# Where tanh is not flat, a scale above 1 shows. Small inputs keep the states near 0, where tanh′ is nearly 1.

# %%
growing = {scale: probes.gradient_flow(random_layer(scale), noise(40, 1e-4)) for scale in (1.0, 1.1, 1.2)}
for scale, flow in growing.items():
    print(
        f"scale {scale}: slope {flow.slope:+.3f}, predicted {flow.predicted:+.3f}; "
        f"40 steps back the gradient is {flow.norms[-1] / flow.norms[0]:,.0f} times as large"
    )

# %% tags=["nbval-check-output"]
known = [*flows.values(), growing[1.1], growing[1.2]]
ratios = [flow.slope / flow.predicted for flow in known]
claim(
    "01.1",
    "the gradient shrinks exponentially with distance: its slope is within 10% of what radius and tanh' predict, for six scales",
    holds=all(abs(ratio - 1) < 0.1 for ratio in ratios)
    and all(flow.slope < -0.1 for flow in flows.values())
    and all(flow.slope > 0.05 for flow in (growing[1.1], growing[1.2])),
    measured=f"measured / predicted {min(ratios):.3f} to {max(ratios):.3f}; factors a step "
    f"{math.exp(known[0].slope):.2f} to {math.exp(known[-1].slope):.2f} (above 1 it explodes: small inputs)",
)

# %% [markdown]
# An exploding gradient does harm at once: a single step of training throws the weights far away. There is a simple cure, **clipping**
# (Pascanu, Mikolov and Bengio [2013](https://arxiv.org/abs/1211.5063)): if the norm of all gradients together is above a limit, scale them down to it. The
# direction stays, the step becomes shorter. Here is a ReLU network that starts with $W_h = 1.1\, I$, on the task of the next section, five steps of
# plain gradient descent each:


# %%
def five_steps(clip: float) -> list[str]:
    """The loss before each of five steps, and the gradient norm before clipping."""
    runtime.seed(0)
    model = probes.Recaller("relu")
    identity_(model.layer.rnn, 1.1)
    tokens, answers = probes.recall_batch(64, 60, generator=torch.Generator().manual_seed(0))
    optimiser, told = torch.optim.SGD(model.parameters(), 0.1), []
    for _ in range(5):
        loss = F.cross_entropy(model(tokens), answers)
        optimiser.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), clip)  # returns the norm as it was before
        optimiser.step()
        told.append(f"{loss.item():.3g} ({norm:.1g})")
    return told


print("loss (gradient norm) without clipping:", ", ".join(five_steps(math.inf)))
print("loss (gradient norm) clipped to 1:    ", ", ".join(five_steps(1.0)))

# %% [markdown]
# Without clipping, everything is NaN after one step. With it, the loss jumps once and then falls. Clipping cures explosion. It does nothing
# against vanishing: a longer step would help, if only one knew in which direction. The gradient of a weight is a *sum* over all steps, and in this sum the near steps drown the far ones:

# %%
layer, long_input = random_layer(0.9), noise(60, batch=1)
hidden = torch.stack([h[0] for (h,) in layer.unroll(long_input)]).detach().numpy()  # (61, hidden)
direction = np.random.default_rng(2).normal(size=64)
W = layer.rnn.weight_hh_l0.detach().numpy()
*_, dh = backward(long_input[0].numpy(), hidden, W, direction)
uses = [
    np.outer((1 - hidden[t] ** 2) * dh[t], hidden[t - 1]) for t in range(60, 0, -1)
]  # the last step first
for far in (5, 10, 20, 40):
    share = np.linalg.norm(sum(uses[far:])) / np.linalg.norm(sum(uses))
    print(f"all steps more than {far:2} before the end together: {share:.0e} of the norm of dL/dW_h")

# %% [markdown]
# That is the trouble in one table. What happened 40 steps before the end has next to no say in how the weights change. It is not silent; it is drowned out by what happened just before.
#
# ## 4 · How far back does it learn?
#
# A task that is only about memory. The first token is one of eight symbols. Then come `lag` distractors, drawn from eight *other*
# symbols. At the end the network has to name the first token. Guessing is right once in eight times: **chance is 0.125**, and an accuracy near it means that nothing was learned.

# %%
tokens, answers = probes.recall_batch(3, 10, generator=torch.Generator().manual_seed(0))
for row, answer in zip(tokens.tolist(), answers.tolist(), strict=True):
    symbols = ["ABCDEFGHstuvwxyz"[token] for token in row]
    print(" ".join(symbols), " -> ", "ABCDEFGH"[answer])

# %% [markdown]
# The network is a plain tanh RNN of width 64, in PyTorch's usual random start, with a linear layer on its last state. **The budget**: a fixed number of batches
# (`STEPS`) of 64 sequences, Adam with rate 0.002, gradients clipped to norm 1. Training stops early once it gets 97% right. Each lag gets a fresh network, and
# several seeds, since one run proves little.

# %%
STEPS = runtime.by_scale(class_=300, full=3_000)
LAGS = runtime.by_scale(class_=(5, 10, 20, 40, 60), full=(5, 10, 20, 40, 60, 100, 150))
SEEDS = runtime.by_scale(class_=3, full=8)
BUDGET = {"steps": STEPS, "batch": 64, "learning_rate": 2e-3, "clip": 1.0}


def start(kind: str, seed: int, *, width: int = 64) -> probes.Recaller:
    """A fresh network: "plain", "orthogonal" or "ReLU, identity"."""
    generator = runtime.seed(seed)
    model = probes.Recaller("relu" if kind == "ReLU, identity" else "rnn", hidden=width)
    if kind == "orthogonal":
        orthogonal_(model.layer.rnn, 1.0, generator)
    if kind == "ReLU, identity":
        identity_(model.layer.rnn)
    return model.to(device)


# %%
def flow_on_recall(model: probes.Recaller, lag: int) -> probes.GradientFlow:
    """The gradient by lag while the model reads sequences of the task."""
    tokens, _ = probes.recall_batch(64, lag, generator=torch.Generator().manual_seed(9))
    return probes.gradient_flow(model.layer, F.one_hot(tokens, 16).float().to(device), skip=3)


for seed in range(3):
    flow = flow_on_recall(start("plain", seed), 60)
    print(
        f"before training, seed {seed}: slope {flow.slope:.2f}, a factor of {math.exp(flow.slope):.2f} a step"
    )

# %% [markdown]
# > **Predict first.** From that factor: what is left after 10 steps, after 20, after 60? And how far back will the network learn to remember?

# %%
models = {(seed, lag): start("plain", seed) for seed in range(SEEDS) for lag in LAGS}
learned = {
    (seed, lag): probes.learn_recall(model, lag, seed=seed, **BUDGET) for (seed, lag), model in models.items()
}
plain = {seed: [learned[seed, lag].accuracy for lag in LAGS] for seed in range(SEEDS)}
by_seed = {f"seed {seed}": (LAGS, found) for seed, found in plain.items()}
by_seed["chance"] = ([LAGS[0], LAGS[-1]], [1 / 8, 1 / 8])
figures.lines(by_seed, xlabel="lag (distractors between symbol and answer)", ylabel="accuracy (share right)")

# %% tags=["nbval-check-output"]
best_far = max(found[-1] for found in plain.values())
worst_near = min(found[0] for found in plain.values())
horizons = [probes.memory_horizon(LAGS, found) for found in plain.values()]
claim(
    "01.2",
    "under this budget a plain RNN learns to remember over 5 steps with every seed, and over the longest lag with none",
    holds=worst_near >= 0.9 and best_far <= 0.4,
    measured=f"accuracy at lag {LAGS[0]} at least {worst_near:.2f}, at lag {LAGS[-1]} at most {best_far:.2f} (chance 0.125); "
    f"horizons of the seeds (every lag up to it at 0.9 or more) {horizons}, {STEPS} steps",
)

# %% [markdown]
# Between "always" and "never" lies a stretch where it depends on the seed: a run may fail at a lag and another one succeed at twice that lag. So a sentence such as "plain RNNs remember 10 to
# 20 tokens" is a fair summary of such curves, and no law. It depends on the width, the start, the optimiser, and on how long you are ready to wait.
#
# Why does it stop there? Look at the gradient before training, and after:

# %%
print("lag   gradient at the first symbol's state, relative to the end   accuracy")
for lag in LAGS[1:]:
    before, after = (flow_on_recall(model, lag).norms for model in (start("plain", 1), models[1, lag]))
    print(
        f"{lag:3}   {before[lag - 1] / before[0]:.0e} before training, {after[lag - 1] / after[0]:.0e} after"
        f"{learned[1, lag].accuracy:26.2f}"
    )

# %% [markdown]
# Where it learned, training itself has made the line nearly level: the weights have become such that the gradient comes through, and then the symbol comes
# through as well. Where it failed, the line is as steep as it was, or nearly. To flatten it, training needs a signal from the first symbol; the signal gets through
# only when the line is flat. The further away the symbol, the longer it takes to find a way out of this circle.
#
# ## 5 · What moves the limit
#
# If the start is the trouble, start elsewhere. Three changes, everything else as before:
#
# - **width**: more units, and so more random directions, some of which fade more slowly;
# - **orthogonal**: $W_h$ starts as a random orthogonal matrix. All its eigenvalues have size 1, so only tanh′ shrinks the gradient;
# - **ReLU and identity** (Le, Jaitly and Hinton [2015](https://arxiv.org/abs/1504.00941)): $W_h$ starts as the identity, with ReLU in place of
#   tanh, whose derivative is 1 wherever the unit is active. The state starts as a perfect memory.
#
# > **Predict first.** Which of the three moves the limit furthest: twice the width, the orthogonal start, or the identity?

# %%
VARIANTS = {  # kind, width, the lags that are tried
    "width 16": ("plain", 16, LAGS[1:3]),
    "width 64": ("plain", 64, LAGS[1:]),
    "width 128": ("plain", 128, LAGS[1:4]),
    "orthogonal": ("orthogonal", 64, LAGS[1:]),
    "ReLU, identity": ("ReLU, identity", 64, LAGS[1:]),
}


def accuracy(kind: str, width: int, lag: int, seed: int) -> float:
    """The accuracy on fresh sequences after training under the budget."""
    if (kind, width) == ("plain", 64):
        return learned[seed, lag].accuracy  # from above
    return probes.learn_recall(start(kind, seed, width=width), lag, seed=seed, **BUDGET).accuracy


found = {
    name: [[accuracy(kind, width, lag, seed) for seed in range(2)] for lag in lags]
    for name, (kind, width, lags) in VARIANTS.items()
}

# %%
print("                slope before   accuracy of two seeds, by lag")
for name, (kind, width, lags) in VARIANTS.items():
    slope = flow_on_recall(start(kind, 0, width=width), 60).slope
    row = [f"{lag}: {a:.2f} {b:.2f}" for lag, (a, b) in zip(lags, found[name], strict=True)]
    print(f"{name:15} {slope:+12.2f}   {'   '.join(row)}")
means = {name: (VARIANTS[name][2], np.mean(pairs, axis=1)) for name, pairs in found.items()}
figures.lines(
    means, xlabel="lag (distractors between symbol and answer)", ylabel="accuracy (mean of two seeds)"
)

# %% [markdown]
# Both new starts have a much flatter gradient before training, and they learn much further. Width moves the limit less, and not through the slope, which hardly differs. (One candidate: Adam moves
# every weight by about the same amount, so a wider layer changes more in one step. We have not tested it.)
#
# And this answers the question whether a plain RNN *can* remember for 40 steps. The network "orthogonal" has the same equation, the same width, the same number of weights as "width 64".
# After training it remembers. So there are weights under which a plain tanh RNN of width 64 solves the task; from the usual start, within this budget, gradient descent does not find them. It is
# **a limit of training, not of what the network can hold**.
#
# So why not stop here, with a good start? Because the start is all that it is: nothing in the network *keeps* the gradient alive while it learns other things, and a state that never
# fades also never forgets what it should. Lesson 02 puts the memory into the architecture.
#
# ## 6 · Cutting the way back short
#
# Real sequences are long, a book has 100,000 words, and the way back through all of them costs memory for every state. **Truncated** backpropagation through time goes back only a window of
# steps: the state is passed on, the gradient is cut.

# %%
figures.windows_diagram(10, 4)

# %% [markdown]
# > **Predict first.** The symbol lies 15 steps before the answer; the window has 8 steps. The state still flows through all steps. Can the network learn the task?


# %%
def train_truncated(lag: int, window: int, seed: int, steps: int = 250) -> tuple[float, float]:
    """(accuracy, norm of the gradient by the weights that read the symbols) with truncated backpropagation."""
    model, generator = start("plain", seed), torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(steps):
        tokens, answers = probes.recall_batch(64, lag, generator=generator)
        x = F.one_hot(tokens, 16).float().to(device)  # (batch, lag + 1, 16)
        state = None
        if lag + 1 > window:
            with torch.no_grad():  # what lies before the window: read, but cut off
                _, state = model.layer(x[:, :-window])
        _, state = model.layer(x[:, -window:], state)
        optimiser.zero_grad()
        F.cross_entropy(model.readout(state[0]), answers.to(device)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    of_symbols = model.layer.rnn.weight_ih_l0.grad[:, :8].norm().item()  # columns 0-7 read the symbols
    return probes.recall_accuracy(model, lag, seed=seed + 1), of_symbols


# %%
for lag, windows in ((15, (8, 16)), (5, (1, 3, 6))):
    for window in windows:
        runs = [train_truncated(lag, window, seed) for seed in range(2)]
        right = ", ".join(f"{share:.2f}" for share, _ in runs)
        arrived = "exactly 0" if all(norm == 0 for _, norm in runs) else "not 0"
        print(
            f"lag {lag:2}, window {window:2}: accuracy {right}   gradient of what reads the symbol: {arrived}"
        )

# %% [markdown]
# Look at the last column first. Unless the window covers the symbol, the weights that read the symbol get a gradient of **exactly zero**, always: nobody teaches them. At lag 15 that is fatal, while the
# full window learns.
#
# At lag 5 something else happens: with a window of 3, the accuracy is far above chance. The random start carries a trace of the symbol over a few steps, so that some of it *enters* the window, and what the window teaches
# about carrying (the weights are the same at every step) helps outside the window as well. So truncation is no wall. It is the rule that nothing beyond the window is ever taught *on purpose*, and that
# what is learned there is luck.
#
# ## 7 · Explore
#
# Turn the recurrent scale, the length, the size of the inputs, and the kind of cell; the curve and its slope move at once. Where does the tanh network stop vanishing? What does a scale of 1.05 do to a
# ReLU network? (LSTM and GRU are the subject of lesson 02.) Without a running kernel you see one setting as a picture.

# %%
gradient_explorer()

# %% [markdown]
# ## 8 · Common mistakes
#
# Each of these has been found in published code. Most of them run without an error.
#
# **Clipping after the step.** Then the step has been taken already, with the whole gradient. The order is backward, clip, step.


# %%
def one_step(order: str) -> None:
    """The parameter after one step of SGD with rate 1, gradient [3, 4], limit 1."""
    parameter = nn.Parameter(torch.zeros(2))
    optimiser = torch.optim.SGD([parameter], lr=1.0)
    parameter.grad = torch.tensor([3.0, 4.0])
    if order == "step, clip":
        optimiser.step()
    norm = nn.utils.clip_grad_norm_([parameter], 1.0)
    if order == "clip, step":
        optimiser.step()
    moved = [round(-value, 3) for value in parameter.tolist()]
    print(f"{order}: moved by {moved}; clip_grad_norm_ returned {norm:.1f}")


one_step("step, clip")
one_step("clip, step")

# %% [markdown]
# **Taking what `clip_grad_norm_` returns for the norm after clipping.** It returned 5.0 in both lines above: the norm *before*. That is the number to log.
#
# **Clipping each part of an accumulated gradient.** When a batch is too large for the memory, its gradient is summed over parts. Clip once, when the sum is complete.

# %%
parts = [torch.tensor([6.0, 8.0]), torch.tensor([3.0, -4.0])]
for name, clip_each in (("after each part", True), ("once, at the end", False)):
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.zeros(2)
    for part in parts:
        parameter.grad += part
        if clip_each:
            nn.utils.clip_grad_norm_([parameter], 5.0)
    nn.utils.clip_grad_norm_([parameter], 5.0)
    print(f"clipped {name}: {[round(g, 3) for g in parameter.grad.tolist()]}")

# %% [markdown]
# **Clipping scaled gradients.** Mixed precision with float16 multiplies the loss by a large number, so that small gradients do not underflow. Clip such gradients and the limit is that many
# times too small. `scaler.unscale_(optimizer)` comes first.

# %%
for unscale in (False, True):
    parameter = nn.Parameter(torch.zeros(2))
    optimiser = torch.optim.SGD([parameter], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=65_536.0)
    scaler.scale((parameter * torch.tensor([3.0, 4.0])).sum()).backward()
    if unscale:
        scaler.unscale_(optimiser)
    norm = nn.utils.clip_grad_norm_([parameter], 1.0)
    scaler.step(optimiser)
    moved = ", ".join(f"{-value:.2g}" for value in parameter.tolist())
    print(f"unscaled first: {unscale!s:5}   norm seen {norm:9,.0f}   moved by {moved}")

# %% [markdown]
# **Reading `.grad` of a state.** After `backward()` autograd keeps the gradients of leaves only. A state that was computed has none, and None is not zero. Ask for it with `retain_grad()`, or use
# `torch.autograd.grad(loss, states)`.

# %%
start_state = torch.ones(1, requires_grad=True)
kept, lost = 2 * start_state, 3 * start_state
kept.retain_grad()
(kept + lost).sum().backward()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch warns, which is easy to miss in a long log
    print("with retain_grad():", kept.grad, "  without:", lost.grad)

# %% [markdown]
# **A gradient check that is off by a constant factor.** The loss that is printed is a mean, the gradient by hand is that of the sum. The ratio of the two is then the same everywhere, here the number of
# steps. A wrong derivative never looks like that; a wrong normalisation always does.

# %%
checked = finite_differences([h0, W_x, W_h, b], 2) / len(x)  # of a loss that is printed "per step"
print("ratio of the two, number by number:", np.unique((dW_h / checked).round(6)))

# %% [markdown]
# **Closing the bracket too early.** With tanh over the input's share alone, the state is not squashed at all, and it can grow without end.

# %%
inputs = np.ones(30)
right = wrong = 0.0
for x_t in inputs:
    right, wrong = np.tanh(1.0 * x_t + 1.2 * right + 0.5), np.tanh(1.0 * x_t) + 1.2 * wrong + 0.5
print(f"after 30 steps: tanh over everything {right:.3f}, tanh over the input alone {wrong:,.0f}")

# %% [markdown]
# ## 9 · Check yourself
#
# **1. The recurrent matrix has the spectral radius 1.2. What does the gradient of a tanh RNN do?**
#
# <details><summary>a) It explodes, since 1.2 is larger than 1</summary>Not necessarily. tanh′ is at most 1 and often much less; the product of both decides, and in section 3 it was below 1.</details>
# <details><summary>b) It depends on the states: near 0 it grows, near -1 and 1 it shrinks</summary>Yes. The factor a step is the radius times the root mean square of tanh′.</details>
# <details><summary>c) It vanishes, as it does in every RNN</summary>No. With small states it grew in section 3.</details>
#
# **2. A gradient shrinks by the factor 0.6 a step. How much is left after 40 steps?**
#
# <details><summary>a) 0.6 / 40 = 0.015</summary>No. Each step multiplies.</details>
# <details><summary>b) 0.6<sup>40</sup>, about 10<sup>-9</sup></summary>Yes: 40 · log<sub>10</sub> 0.6 = -8.9.</details>
# <details><summary>c) 1 - 40 · 0.4, which is below zero, so nothing</summary>No. It never reaches zero, it is only drowned out by the near steps.</details>
#
# **3. What does clipping do against vanishing gradients?**
#
# <details><summary>a) It scales small gradients up</summary>No. Below the limit they stay as they are; and scaling up would scale the near steps' share as well.</details>
# <details><summary>b) Nothing</summary>Yes. It shortens steps that are too long. What is missing here is the far steps' share in the sum.</details>
# <details><summary>c) It removes the near steps' share</summary>No. It treats the sum as a whole.</details>
#
# **4. With two symbols instead of eight, a network reaches 0.55 at lag 40. Has it learned something?**
#
# <details><summary>a) Yes, more than the 0.125 of section 4</summary>No. Chance is 1/2 here; 0.55 is a tenth of the way from guessing to knowing.</details>
# <details><summary>b) Next to nothing: chance is 0.5</summary>Yes. (0.55 - 0.5) / (1 - 0.5) = 0.1.</details>
# <details><summary>c) That cannot be said from one number</summary>Partly: more seeds would help. But 0.55 against chance 0.5 is little in any case.</details>
#
# **5. Why is it a limit of training?**
#
# <details><summary>a) Because a plain RNN of that width can hold the answer: started elsewhere, it learns to</summary>Yes. Same equation, same number of weights, another start.</details>
# <details><summary>b) Because the state is too small for eight symbols</summary>No. 64 numbers hold 3 bits with ease.</details>
# <details><summary>c) Because with enough steps every start would succeed</summary>We have not shown that, and 300 steps say nothing about 300,000. What we showed is that the solution exists.</details>
#
# ## 10 · What to take away
#
# - A recurrent network squeezes all it has read into one state of fixed size, and rewrites that state at every step.
# - The gradient of an early state is a product of one matrix a step. It shrinks or grows by the factor radius · rms(tanh′) a step: exponentially with distance.
# - Explosion is cured by clipping. Vanishing is not: the far steps' share is drowned out by the near ones'.
# - How far a network learns to remember is a matter of training: budget, width and start move it. State them, and the level of chance.
# - Truncation teaches nothing on purpose beyond its window.
#
# **Further reading**: [Hochreiter (1991)](https://people.idsia.ch/~juergen/SeppHochreiter1991ThesisAdvisorSchmidhuber.pdf), where the problem was found (in German) ·
# [Bengio, Simard and Frasconi (1994)](https://doi.org/10.1109/72.279181), why learning long dependencies is hard ·
# [Pascanu, Mikolov and Bengio (2013)](https://arxiv.org/abs/1211.5063), both problems and clipping ·
# [Saxe, McClelland and Ganguli (2014)](https://arxiv.org/abs/1312.6120), orthogonal starts ·
# [Le, Jaitly and Hinton (2015)](https://arxiv.org/abs/1504.00941), identity and ReLU.
#
# **Now do the exercises**: `exercises/01_vanishing_gradients.ipynb`. **Next**, lesson 02: gates, which put the level line into the architecture.
