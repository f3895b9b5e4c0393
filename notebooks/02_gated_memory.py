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
# # 02 · Gated memory: keep it until you are told otherwise
#
# <!-- badge -->
#
# A plain RNN rewrites its whole state at every step, and lesson 01 showed what becomes of an old symbol then. In this lesson
# the state gets a part that stays as it is unless a *gate* says otherwise. That is the idea of the LSTM (Hochreiter and
# Schmidhuber [1997](https://doi.org/10.1162/neco.1997.9.8.1735)) and of its younger sister, the GRU (Cho et al.
# [2014](https://arxiv.org/abs/1406.1078)).
#
# **What you will be able to do**
#
# - write an LSTM and a GRU by hand, from the equations, and show that they compute what PyTorch computes;
# - say what the gradient along the cell's path is, and compute it in two ways;
# - start an LSTM with a memory as long as the task asks for, and measure what that is worth;
# - do the arithmetic of how much a state can hold;
# - say what no gate changes: the steps wait for one another.
#
# **Time**: about 70 minutes, then as long again for the exercises in `exercises/02_gated_memory.ipynb`. The notebook runs from top
# to bottom in about a minute on two cores. **You need** lesson 01: backpropagation through time, and why gradients vanish.

# %% tags=["setup"]
from course_utils import runtime

device = runtime.start("02", needs="training the small models of section 6")

# %%
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from course_utils import figures, probes
from course_utils.claims import claim
from course_utils.models import Recurrent, forget_bias_, gates_of, long_memory_
from course_utils.widgets import gate_viewer

# %% [markdown]
# ## 1 · The idea: add, do not rewrite
#
# A step of a plain RNN is $h_t = \tanh(W x_t + U h_{t-1} + b)$. Whatever the state held goes through a matrix and a squashing
# function, at every step, and on the way back so does the gradient. To keep a number for 300 steps, the network would have to
# learn weights under which 300 such steps come out as "leave it alone".
#
# So make "leave it alone" the easy thing. Give the network a second state, the **cell** $c$, that is changed in two ways only: each of its
# numbers is *multiplied* by a number between 0 and 1, and something is *added* to it. What multiplies is the **forget gate**
# $f$, what lets the addition in is the **input gate** $i$, and a third gate, the **output gate** $o$, decides what is shown of the cell to
# the rest of the network:
#
# $$\begin{aligned}
# i_t &= \sigma(W_i x_t + U_i h_{t-1} + b_i) & f_t &= \sigma(W_f x_t + U_f h_{t-1} + b_f) \\
# g_t &= \tanh(W_g x_t + U_g h_{t-1} + b_g) & o_t &= \sigma(W_o x_t + U_o h_{t-1} + b_o) \\
# c_t &= f_t \odot c_{t-1} + i_t \odot g_t & h_t &= o_t \odot \tanh(c_t)
# \end{aligned}$$
#
# $\sigma$ is the sigmoid, which lies between 0 and 1; $\odot$ multiplies number by number; $g_t$ is the new content that is offered. The
# three gates and $g_t$ are four small layers with the same inputs.

# %%
figures.lstm_diagram()

# %% [markdown]
# A picture to keep: a whiteboard with a cautious secretary. Each line of the board is one number of the cell. At every step the secretary decides
# for each line how much to wipe off ($f$), how much of the new note to write ($i$), and which lines to read out ($o$). The picture is good
# because doing nothing costs nothing: a line that is neither wiped nor written stays. It breaks in two places: the lines are wiped by a share, never
# quite fully and never quite not at all; and no one tells the secretary what matters, which has to be *learned*.
#
# The forget gate is the youngest of the three. The LSTM of 1997 had none ($f = 1$, always), and its cell could only fill up; Gers et al.
# ([2000](https://doi.org/10.1162/089976600300015015)) added it.
#
# ## 2 · An LSTM by hand
#
# The equations as they stand, for one sequence, in numpy. `parts` holds $W$, $U$ and $b$ of each of the four.


# %%
def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def lstm_step(x, h, c, parts):
    """One step: (input,), (hidden,), (hidden,) -> the new h and c. Also returns the gates, to look at."""
    sums = {name: W @ x + U @ h + b for name, (W, U, b) in parts.items()}  # (hidden,) each
    i, f, o = sigmoid(sums["i"]), sigmoid(sums["f"]), sigmoid(sums["o"])
    g = np.tanh(sums["g"])
    c = f * c + i * g
    return o * np.tanh(c), c, {"i": i, "f": f, "g": g, "o": o}


# %% [markdown]
# Before any training, let us set the weights of one unit by hand. Its input has two numbers: a *value*, and a *flag* that is 1 when the value
# is to be remembered. The input gate opens on the flag (its sum is 10 with the flag and -10 without), the forget gate closes on it.
#
# > **Predict first.** The flag comes at steps 2 and 25. In between, the value is noise. What does the cell hold at step 24: the value of step 2, the
# > mean of the noise, or nearly nothing?

# %%
on_flag, no_state = np.array([[0.0, 20.0]]), np.zeros((1, 1))
by_hand = {
    "i": (on_flag, no_state, np.array([-10.0])),  # opens on the flag
    "f": (-on_flag, no_state, np.array([10.0])),  # closes on it
    "g": (np.array([[1.0, 0.0]]), no_state, np.zeros(1)),  # the value, through the tanh
    "o": (np.zeros((1, 2)), no_state, np.array([10.0])),  # always open
}
values = np.random.default_rng(0).normal(size=40)
flags = np.isin(np.arange(1, 41), (2, 25)).astype(float)
h, c, held = np.zeros(1), np.zeros(1), []
for value, flag in zip(values, flags, strict=True):
    h, c, gates = lstm_step(np.array([value, flag]), h, c, by_hand)
    held.append(c[0])
steps = np.arange(1, 41)
figures.lines(
    {"offered": (steps, np.tanh(values).round(3)), "cell": (steps, np.round(held, 3))},
    xlabel="step",
    ylabel="value",
)

# %% [markdown]
# The cell takes the value of step 2, holds it level through the noise, and changes at step 25, when it is told to. A unit of a plain RNN has no
# such setting: what it reads goes into its sum at every step, whatever the flag says.
#
# Now the same function with PyTorch's weights. `nn.LSTM` keeps the four parts in one matrix, one below the other, in the order **i, f, g, o**,
# and has two bias vectors, `bias_ih` and `bias_hh`, of which only the sum matters. (Two are one too many; cuDNN, NVIDIA's library, wanted them so.)

# %%
runtime.seed(0)
lstm = nn.LSTM(input_size=5, hidden_size=7, batch_first=True).double()
x = torch.randn(1, 30, 5, dtype=torch.float64)  # (batch, length, input)


def parts_of(layer: nn.RNNBase, order: str) -> dict:
    """W, U and b of each part, by its letter."""
    W, U = (w.detach().numpy() for w in (layer.weight_ih_l0, layer.weight_hh_l0))
    b = (layer.bias_ih_l0 + layer.bias_hh_l0).detach().numpy()
    pieces = zip(*(np.split(each, len(order)) for each in (W, U, b)), strict=True)
    return dict(zip(order, pieces, strict=True))


h, c, outputs = np.zeros(7), np.zeros(7), []
for step in x[0].numpy():
    h, c, _ = lstm_step(step, h, c, parts_of(lstm, "ifgo"))
    outputs.append(h)

# %% tags=["nbval-check-output"]
expected, (last_h, last_c) = lstm(x)
print("all 30 outputs agree with nn.LSTM:", np.allclose(outputs, expected[0].detach(), atol=1e-12))
print("so does the last cell:            ", np.allclose(c, last_c[0, 0].detach(), atol=1e-12))

# %% [markdown]
# The course's `Recurrent` can run a layer both ways, by PyTorch's fused code or by the equations in a Python loop, with the same parameters. So we can compare
# the gradients too.

# %% tags=["nbval-check-output"]
layer = Recurrent("lstm", input_size=5, hidden=7).double()
found = {}
for fused in (True, False):
    layer.fused = fused
    outputs, _ = layer(x)
    found[fused] = torch.autograd.grad(outputs.square().sum(), list(layer.parameters()))
same = [torch.allclose(a, b, atol=1e-12) for a, b in zip(*found.values(), strict=True)]
print("gradients of all", len(same), "parameters agree:", all(same))

# %% [markdown]
# ## 3 · A GRU by hand, in both conventions
#
# The GRU does with one state and two gates. The **update gate** $z$ does the work of forget and input gate at once: what is not kept is
# replaced. The **reset gate** $r$ decides how much of the old state the new content may look at.
#
# $$\begin{aligned}
# r_t &= \sigma(W_r x_t + b_r + U_r h_{t-1} + b'_r) \qquad z_t = \sigma(W_z x_t + b_z + U_z h_{t-1} + b'_z) \\
# h_t &= (1 - z_t) \odot n_t + z_t \odot h_{t-1}
# \end{aligned}$$
#
# For the new content there are two published conventions, and they differ in where the reset stands:
#
# $$\begin{aligned}
# \textbf{reset-after} \quad n_t &= \tanh\big(W_n x_t + b_n + r_t \odot (U_n h_{t-1} + b'_n)\big) && \text{PyTorch, cuDNN} \\
# \textbf{reset-before} \quad n_t &= \tanh\big(W_n x_t + b_n + U_n (r_t \odot h_{t-1}) + b'_n\big) && \text{Cho et al. 2014, Bahdanau et al. 2015}
# \end{aligned}$$

# %%
figures.gru_diagram()

# %% [markdown]
# > **Predict first.** With the same weights, will the two conventions give the same numbers? And if the recurrent matrix $U_n$ has a single row and
# > column, so that $U_n (r h) = r\, (U_n h)$?


# %%
def gru_step(x, h, W, U, b, b_rec, reset_after):
    """One step: (input,), (hidden,) -> the new h. W, U, b, b_rec: one of each for r, z and n."""
    r, z = (sigmoid(W[k] @ x + b[k] + U[k] @ h + b_rec[k]) for k in "rz")
    after, before = r * (U["n"] @ h + b_rec["n"]), U["n"] @ (r * h) + b_rec["n"]
    n = np.tanh(W["n"] @ x + b["n"] + (after if reset_after else before))
    return (1 - z) * n + z * h


def run_gru(gru: nn.GRU, sequence: np.ndarray, reset_after: bool) -> np.ndarray:
    """All states of one sequence, from a state of zeros."""
    weights = (gru.weight_ih_l0, gru.weight_hh_l0, gru.bias_ih_l0, gru.bias_hh_l0)
    W, U, b, b_rec = (dict(zip("rzn", np.split(w.detach().numpy(), 3), strict=True)) for w in weights)
    h, states = np.zeros(gru.hidden_size), []
    for x in sequence:
        h = gru_step(x, h, W, U, b, b_rec, reset_after)
        states.append(h)
    return np.array(states)


# %% tags=["nbval-check-output"]
for hidden in (7, 1):
    runtime.seed(1)
    gru = nn.GRU(input_size=5, hidden_size=hidden, batch_first=True).double()
    expected = gru(x)[0][0].detach().numpy()
    for name, reset_after in (("reset-after", True), ("reset-before", False)):
        agrees = np.allclose(run_gru(gru, x[0].numpy(), reset_after), expected, atol=1e-12)
        print(f"width {hidden}, {name:12} equals nn.GRU: {agrees}")

# %% [markdown]
# Only one of them is `nn.GRU`. The width of 1 does not save the other: in reset-before the recurrent bias stands outside the reset. Neither is wrong; but weights of the one
# do not fit the other. (Keras calls the switch `reset_after`. And a second thing to look up before you move weights: in some papers $z$ is the
# share of the *new* content. In PyTorch it keeps the old.)
#
# What do the gates cost? A plain RNN has one part, a GRU three, an LSTM four. For an input and a state of width 64:

# %% tags=["nbval-check-output"]
for kind in ("rnn", "gru", "lstm"):
    count = sum(p.numel() for p in Recurrent(kind, 64, 64).parameters())
    print(f"{kind:4} {count:6,} parameters")

# %% [markdown]
# ## 4 · The path of the cell
#
# Now to the gradient. If we hold the gates fixed, a cell depends on the one before in one way only, $c_t = f_t \odot c_{t-1} + \dots$, so
#
# $$\frac{\partial c_t}{\partial c_{t-1}} = f_t \qquad\text{and}\qquad \frac{\partial c_T}{\partial c_t} = f_{t+1} \odot f_{t+2} \odot \dots \odot f_T$$
#
# number by number: no matrix, and no tanh. Compare lesson 01, where every step back was a product with $U^\top$ and with tanh'. What is held fixed is the gates'
# own dependence on earlier states, through $h$. It adds further paths, which go through matrices and shrink as those of a plain RNN do; we
# look at them below.
#
# Computed from the gates, and by autograd with the gates detached:


# %%
def through_the_cell(layer: Recurrent, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """dc_T/dc_t for t = 0 .. T, (length + 1, hidden): as a product of forget gates, and by autograd."""
    gates = gates_of(layer, x)  # each (1, length, hidden)
    f, added = gates.forget[0].detach(), (gates.enter * gates.new)[0].detach()
    product = [torch.ones_like(f[0])]
    for gate in f.flip(0):
        product.append(product[-1] * gate)
    cells = [torch.zeros_like(f[0]).requires_grad_()]
    for gate, new in zip(f, added, strict=True):
        cells.append(gate * cells[-1] + new)
    by_autograd = torch.autograd.grad(cells[-1].sum(), cells)
    return torch.stack(product[::-1]), torch.stack(by_autograd)


runtime.seed(2)
long_x = torch.randn(1, 100, 8, dtype=torch.float64)  # (batch, length, input)
layers = {}
for bias in (0.0, 1.0, 5.0):
    layers[bias] = Recurrent("lstm", input_size=8, hidden=32).double()
    forget_bias_(layers[bias].rnn, bias)
paths = {bias: through_the_cell(layer, long_x) for bias, layer in layers.items()}

# %% [markdown]
# > **Predict first.** With a forget bias of 1, the gate is $\sigma(1) = 0.73$. That sounds like a good memory. What is left of the gradient after 100 steps: a half, a
# > hundredth, or nothing that a float32 could add to anything?

# %%
series = {
    f"forget bias {bias:g}": (np.arange(101), product.mean(dim=1).flip(0).detach().numpy())
    for bias, (product, _) in paths.items()
}
figures.lines(series, xlabel="lag (steps back)", ylabel="dc_T/dc_t, mean over units", yscale="log")


# %% tags=["nbval-check-output"]
gap = max(float((product - by_autograd).abs().max()) for product, by_autograd in paths.values())
left = {bias: float(product[0].mean()) for bias, (product, _) in paths.items()}
claim(
    "02.1",
    "along the cell's path dc_T/dc_t is the product of the forget gates; near 1 they preserve it, at 0.73 they do not",
    holds=gap < 1e-12 and left[5.0] > 0.4 and left[1.0] < 1e-6 and left[0.0] < left[1.0],
    measured=f"largest gap between product and autograd {gap:.1g}; left after 100 steps: bias 5 (gate about "
    f"{1 / (1 + math.exp(-5)):.3f}) {left[5.0]:.2f}, bias 1 {left[1.0]:.0e}, bias 0 {left[0.0]:.0e}",
)

# %% [markdown]
# A gate has to be *very* near to 1: what counts is the distance from 1, since about $1 / (1 - f)$ steps pass until 1/e is left. A gate of 0.73 is a memory of
# four steps.
#
# And the other paths? Here is the whole gradient of $c_T$, with everything that flows through the gates, beside the cell's path alone.


# %%
def norms(rows) -> np.ndarray:
    """The norm of each row, from lag 0 on."""
    return torch.stack([row.reshape(-1).norm() for row in rows]).detach().numpy()[::-1]


both = {}
for bias in (1.0, 5.0):
    first = tuple(s.requires_grad_() for s in layers[bias].zeros(long_x))
    cells = [state[1] for state in layers[bias].unroll(long_x, first)]
    both[f"bias {bias:g}, all paths"] = (np.arange(101), norms(torch.autograd.grad(cells[-1].sum(), cells)))
    both[f"bias {bias:g}, cell alone"] = (np.arange(101), norms(paths[bias][0]))
figures.lines(both, xlabel="lag (steps back)", ylabel="norm of the gradient of c_T", yscale="log")

# %% [markdown]
# All curves start together on the left, at the loss. The other paths are not small. With a bias of 1 the whole gradient falls more slowly than the cell's path
# alone, but it falls, and after 100 steps there is next to nothing of it. With a bias of 5 it *grows*: what is kept at every step also feeds the gates of every later step,
# and those shares add up. So the gates decide about *one* path, and others come on top. Gated networks can explode too, and we keep clipping
# their gradients.
#
# ## 5 · A memory of the wished length
#
# At the start of training the weights are small, so a forget gate is about $\sigma(b_f)$: the bias alone decides how far back the first gradients reach. A network whose
# gradients do not reach back to the symbol cannot learn to keep it.

# %% tags=["nbval-check-output"]
print("bias    gate   memory 1 / (1 - f)")
for bias in (0, 1, 2, 5, 7):
    gate = 1 / (1 + math.exp(-bias))
    print(f"{bias:4} {gate:7.4f} {1 / (1 - gate):8.1f} steps")

# %% [markdown]
# A bias of 1 is the standard advice ([Jozefowicz et al. 2015](https://proceedings.mlr.press/v37/jozefowicz15.html)), and better than 0. But why should all units have the
# same memory? Tallec and Ollivier ([2018](https://arxiv.org/abs/1804.11188)) ask how a unit's gates should stand if the task has a time scale
# of $u$ steps, and find $f = 1 - 1/(1 + u)$, so $b_f = \log u$, and for what enters the complement, $b_i = -\log u$: who keeps long should write seldom. Then they draw a $u$ for each unit
# up to the longest memory that is wished. They draw evenly from the steps; `long_memory_` draws evenly from their orders of magnitude, so that short memories have
# units too. Nothing is trained yet, and here is what is left of a cell's content when nothing comes in:

# %%
lags = np.unique(np.geomspace(1, 2000, 60).round())
kept = {}
for name, prepare in {
    "bias 0": lambda lstm: forget_bias_(lstm, 0),
    "bias 1": lambda lstm: forget_bias_(lstm, 1),
    "long memory": lambda lstm: long_memory_(lstm, 1280, torch.Generator().manual_seed(0)),
}.items():
    fresh = nn.LSTM(16, 32)
    prepare(fresh)
    f = (fresh.bias_ih_l0 + fresh.bias_hh_l0).chunk(4)[1].sigmoid().detach().numpy()  # (hidden,)
    kept[name] = (lags, (100 * f[:, None] ** lags).mean(axis=0).round(2))
figures.lines(kept, xlabel="lag (steps)", ylabel="left of the cell (%), mean over units", xscale="log")

# %% [markdown]
# ## 6 · How far does each remember?
#
# The recall task of lesson 01: the first symbol is one of eight, then come `lag` others that mean nothing, and the answer is the first. Chance is one in eight, 12.5%.
# Every model has 32 units, sees batches of 16, and may take the same number of steps at most; one that names nearly every symbol stops early. Models differ in their learning rate: each got the
# best of those that we tried beforehand. A model that has fallen to little more than chance is not tried at longer lags.

# %%
LAGS = runtime.by_scale(class_=[5, 10, 20, 40, 80, 160, 320], full=[5, 10, 20, 40, 80, 160, 320, 640])
BUDGET = runtime.by_scale(class_=400, full=4_000)
NEAR_CHANCE = 0.25  # twice as often as a guess
MODELS = {  # kind, learning rate, how the LSTM's biases start
    "RNN": ("rnn", 5e-3, None),
    "GRU": ("gru", 1e-2, None),
    "LSTM, bias 0": ("lstm", 1e-2, lambda lstm: forget_bias_(lstm, 0)),
    "LSTM, bias 1": ("lstm", 2e-3, lambda lstm: forget_bias_(lstm, 1)),
    "LSTM, long": ("lstm", 2e-2, lambda lstm: long_memory_(lstm, 1280)),
}


def learn(name: str, lag: int, seed: int = 0) -> tuple[probes.Recaller, probes.Learned]:
    """A fresh model of this name, trained at this lag."""
    kind, rate, prepare = MODELS[name]
    runtime.seed(seed)
    model = probes.Recaller(kind, hidden=32)
    if prepare:
        prepare(model.layer.rnn)
    model = model.to(device)
    return model, probes.learn_recall(model, lag, steps=BUDGET, batch=16, learning_rate=rate, seed=seed)


# %% [markdown]
# > **Predict first.** A gate is a gate: GRU, LSTM with bias 1 and LSTM with long biases have the same equations or nearly so. Up to which lag will each of
# > them get, and the plain RNN? Write down four numbers.

# %%
results = {name: {} for name in MODELS}
print(f"{'':13}" + "".join(f"{f'lag {lag}':>20}" for lag in LAGS))
for name, found in results.items():
    for lag in LAGS:
        found[lag] = learn(name, lag)[1]
        if found[lag].accuracy < NEAR_CHANCE:
            break
    row = [f"{learned.accuracy:.0%} in {learned.steps} steps" for learned in found.values()]
    print(f"{name:13}" + "".join(f"{text:>20}" for text in row))
seconds = sum(learned.seconds for found in results.values() for learned in found.values())
print(f"{seconds:.0f} s in all")

# %%
figures.lines(
    {name: (list(found), [100 * r.accuracy for r in found.values()]) for name, found in results.items()},
    xlabel="lag (steps)",
    ylabel="symbols recalled (%)",
    xscale="log",
)

# %% [markdown]
# One seed is one seed. The longest lag again, with two others:

# %%
again = [learn("LSTM, long", LAGS[-1], seed)[1] for seed in (1, 2)]
for learned in again:
    print(f"lag {LAGS[-1]}: {learned.accuracy:.1%} after {learned.steps} steps, {learned.seconds:.0f} s")

# %% tags=["nbval-check-output"]
horizon = {
    name: probes.memory_horizon(list(found), [r.accuracy for r in found.values()])
    for name, found in results.items()
}
at_chance = max(results["RNN"])  # the lag at which it was given up
claim(
    "02.2",
    "gates extend memory to hundreds of steps if their biases start long: that LSTM recalls over 95% at every lag up to "
    "320, with three seeds, and the plain RNN is near chance from 80 at the latest",
    holds=all(r.accuracy > 0.95 for r in [*results["LSTM, long"].values(), *again])
    and results["RNN"][at_chance].accuracy < NEAR_CHANCE
    and at_chance <= 80
    and max(reach for name, reach in horizon.items() if name != "LSTM, long") < LAGS[-1] / 2,
    measured="over 90% up to lag: "
    + ", ".join(f"{name} {lag}" for name, lag in horizon.items())
    + f"; RNN at {at_chance}: {results['RNN'][at_chance].accuracy:.0%}; long LSTM at {LAGS[-1]}, three seeds: "
    + ", ".join(f"{r.accuracy:.1%}" for r in [results["LSTM, long"][LAGS[-1]], *again]),
)

# %% [markdown]
# Read the table from the last row up. The LSTM that started with long biases recalls the symbol at every lag, the longest included. The *same equations* with a bias of 1 or
# 0 stop where the plain RNN stops, or before. So in this budget the gate alone is worth little: it *can* hold, but it must first find out that holding pays, and it only
# can if some gradient reaches back to the symbol. The biases see to that from the first step on. That is a statement about training, as in lesson 01: with more steps the other rows
# reach longer lags (`COURSE_SCALE=full` gives each ten times as many). It is also a statement about this task, in which nothing but one symbol matters. In practice, gated networks are
# said to use some 200 tokens of context: Khandelwal et al. ([2018](https://arxiv.org/abs/1805.04623)) measured that for LSTM language models.
#
# What does a trained model do with its gates? Play a sequence, and drag the forget bias down to see
# it forget. The upper-case letter is the symbol to keep, the lower-case ones mean nothing. Each row is a unit, sorted by how much it keeps.

# %%
model, learned = learn("LSTM, long", 20)
tokens, answers = probes.recall_batch(4, 20, generator=torch.Generator().manual_seed(5))
letters = "ABCDEFGHabcdefgh"
shown = {letters[answer]: row for answer, row in zip(answers.tolist(), tokens, strict=True)}
gate_viewer(
    model.layer,
    {f"keep {name}": F.one_hot(row, 16).float() for name, row in shown.items()},
    {f"keep {name}": [letters[token] for token in row] for name, row in shown.items()},
)

# %% [markdown]
# The forget gates are dark nearly everywhere: they stay open, as they started. The cells take up something at the first step and move on from there to a level that they hold. Look at the rows
# in which the enter gate (our $i$) turns dark as well: such a unit does not only keep its number, it goes on adding to it, told so by a state that already knows the answer. Nobody asked for that; holding
# still was enough. Training found a memory that confirms itself.
#
# ## 7 · What fits into a state
#
# However well it is kept: a state is a fixed number of floats. You can read that a document of 1,000 tokens, "4 KB of ids", is squeezed into an LSTM of width 512, "2 KB". Let us do
# that arithmetic openly.
#
# > **Predict first.** The vocabulary has 50,000 words. How many bits does one token need, at least? 8, 16 or 32?

# %%
TOKENS, VOCABULARY, WIDTH = 1_000, 50_000, 512
ids = torch.zeros(TOKENS, dtype=torch.int32)
state = [torch.zeros(WIDTH), torch.zeros(WIDTH)]  # h and c
as_ids = ids.numel() * ids.element_size()
hidden_bytes, both_bytes = (sum(s.numel() * s.element_size() for s in part) for part in (state[:1], state))
at_least = TOKENS * math.log2(VOCABULARY) / 8
print(f"ids as int32:            {as_ids:,} bytes")
print(f"ids, no bit too many:    {at_least:,.0f} bytes ({math.log2(VOCABULARY):.1f} bits a token)")
print(f"h alone, float32:        {hidden_bytes:,} bytes")
print(f"h and c:                 {both_bytes:,} bytes")

# %% tags=["nbval-check-output"]
claim(
    "02.3",
    "1,000 ids of int32 take 4,000 bytes and h of width 512 takes 2,048; but h and c take 4,096, and the ids need under half",
    holds=(as_ids, hidden_bytes, both_bytes) == (4_000, 2_048, 4_096) and at_least < hidden_bytes,
    measured=f"{as_ids}, {hidden_bytes} and {both_bytes} bytes; ids of 50,000 words, all equally likely, {at_least:.0f} bytes",
)

# %% [markdown]
# So by bits, these 1,000 tokens would *fit*, even into $h$ alone. The comparison of 4 KB with 2 KB compares one way to store ids with another way to store floats; and the LSTM carries two
# vectors. What is right about it is something else. **The state does not grow**: ten times the document, the same 4,096 bytes, and by then no code could fit it in. And long before
# that the limit is not the bits. A network has to *find* weights that write each token into a place of its own, leave it alone, and read it out again, through gates
# that are never quite 0 or 1. The task above asked it for three bits, one symbol of eight. Lesson 03 measures what that means for sentences.
#
# ## 8 · What gates do not change
#
# A gate decides what is kept. It does not change the order of the work: $h_t$ cannot be computed before $h_{t-1}$ is there, on no machine. We can count that. The longest chain of
# operations that wait for one another, from the input to the result, is in autograd's graph:


# %%
def longest_chain(result: torch.Tensor) -> int:
    """How many recorded operations lie one behind the other on the longest way to `result`."""
    depth, todo = {}, [result.grad_fn]
    while todo:
        before = [node for node, _ in todo[-1].next_functions if node is not None]
        missing = [node for node in before if node not in depth]
        if missing:
            todo += missing
        else:
            depth[todo.pop()] = 1 + max((depth[node] for node in before), default=0)
    return depth[result.grad_fn]


by_hand_layer = Recurrent("lstm", 64, 64, fused=False)
weight = torch.randn(128, 256, requires_grad=True)
CHAIN = (64, 256, 1024)
chains = {length: longest_chain(by_hand_layer(torch.randn(1, length, 64))[0]) for length in CHAIN}
products = {length: longest_chain(torch.randn(length, 128) @ weight) for length in CHAIN}
for length in CHAIN:
    print(
        f"{length:5} tokens: LSTM {chains[length]:6,} in a row; one product for all of them: {products[length]}"
    )

# %% [markdown]
# And the clock. We keep the total work the same, 2,048 tokens, cut into ever fewer and longer sequences: 1,024 sequences of 2 tokens up to 2 sequences of 1,024. Beside the LSTM stands one matrix product with the same number of multiplications, for all
# tokens at once.
#
# > **Predict first.** The work is the same everywhere. Will the time be?

# %%
LENGTHS, WORK = (2, 16, 128, 1024), 2_048  # tokens in all
timed = Recurrent("lstm", 64, 64).to(device)
flat, matrix = torch.randn(WORK, 128, device=device), torch.randn(128, 256, device=device)


@torch.no_grad()
def run(fused: bool, x: torch.Tensor):
    timed.fused = fused
    return timed(x)


times = {"LSTM, Python loop": [], "LSTM, fused": [], "one product": []}
for length in LENGTHS:
    x_timed = torch.randn(WORK // length, length, 64, device=device)  # (batch, length, input)
    calls = (lambda x=x_timed: run(False, x), lambda x=x_timed: run(True, x), lambda: flat @ matrix)
    for name, took in probes.compare(dict(zip(times, calls, strict=True))).items():
        times[name].append(1000 * took)

# %%
figures.lines(
    {name: (LENGTHS, took) for name, took in times.items()},
    xlabel=f"length of the sequences ({WORK:,} tokens in all)",
    ylabel="time (ms)",
    xscale="log",
    yscale="log",
)

# %% tags=["nbval-check-output"]
a_step = (chains[1024] - chains[256]) / (1024 - 256)
fused, loop, product = times["LSTM, fused"][-1], times["LSTM, Python loop"][-1], times["one product"][-1]
claim(
    "02.4",
    "an LSTM over 1,024 tokens is 1,024 steps that wait for one another; one product for all tokens is a single one",
    holds=a_step >= 1
    and len(set(products.values())) == 1
    and loop > fused
    and loop > 2 * times["LSTM, Python loop"][1],
    measured=f"{a_step:g} operations a step in a row; 2,048 tokens as 2 sequences of 1,024: loop {loop:.1f} ms, "
    f"fused {fused:.1f} ms, one product {product:.1f} ms",
)

# %% [markdown]
# Two things are in the figure. The **loop** pays for each step separately: it starts a few small operations, waits for them, and starts the next. With fewer and longer sequences there are more steps, each with less to do. The **fused** code runs the
# same steps without going through Python, and so it pays less for each; but it does run them one after the other. On one CPU core that costs little, since a core does one thing at a time anyway. On a GPU it is the
# difference between thousands of units at work and a few, since what they could share out is only ever one step. (Run this cell on a GPU to see it.) The product has no steps. Lesson 06 builds a layer that consists of such products.
#
# ## 9 · Common mistakes
#
# Each of these has been found in published code. Each runs without an error.
#
# **The parts in another order.** i, f, g, o in PyTorch; others keep i, g, f, o, or i, f, o, g. The shapes fit, a model trained from scratch still learns, and weights
# moved from one library to the other give nonsense.

# %%
for order in ("ifgo", "ifog", "igfo"):
    h, c = np.zeros(7), np.zeros(7)
    for step in x[0].numpy():
        h, c, _ = lstm_step(step, h, c, parts_of(lstm, order))
    print(
        f"rows read as {', '.join(order)}: largest difference from nn.LSTM {abs(h - last_h[0, 0].detach().numpy()).max():.3f}"
    )

# %% [markdown]
# **No tanh on the way out.** $h = o \odot c$ is right as long as $c$ is small, and the cell can become large: it adds.

# %%
cell, open_by = np.array([0.1, 1.0, 5.0]), 0.9
print("o tanh(c):", (open_by * np.tanh(cell)).round(3), "  o c:", (open_by * cell).round(3))

# %% [markdown]
# **The forget bias set twice.** PyTorch adds two bias vectors. Who writes a 1 into the forget part of every tensor named "bias" has a bias of 2.

# %%
twice = nn.LSTM(4, 3)
for name, parameter in twice.named_parameters():
    if "bias" in name:
        nn.init.ones_(parameter.data.chunk(4)[1])
forget = (twice.bias_ih_l0 + twice.bias_hh_l0).detach().chunk(4)[1]
print("forget bias that the gate sees:", forget.tolist())

# %% [markdown]
# **The GRU's recurrent bias outside the bracket, or no reset at all.** With biases of zero, the first passes every test. x = 0.3, h = 0.5, both gates 0.5:

# %%
r, z, from_x, from_h, bias, old = 0.5, 0.5, 0.3, 2 * 0.5, 0.5, 0.5
for name, inside in {
    "r (U h + b)   right": from_x + r * (from_h + bias),
    "r (U h) + b   bias outside": from_x + r * from_h + bias,
    "U h + b       never reset": from_x + from_h + bias,
}.items():
    n = np.tanh(inside)
    print(f"{name:28} n = {n:.4f}   new h = {(1 - z) * n + z * old:.4f}")

# %% [markdown]
# **Batch and length confused.** Without `batch_first=True`, `nn.LSTM` takes (length, batch, input). Given (batch, length, input), it runs through the *batch*, and each sequence reads the ones before it in
# the batch. Test: change sequence 0 and see whether sequence 1 moves.

# %%
batch = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0))  # (batch, length, input)
other = torch.cat([batch[:1] + 1, batch[1:]])  # only sequence 0 is changed
for batch_first in (True, False):
    runtime.seed(3)
    reader = nn.LSTM(4, 5, batch_first=batch_first)
    moved = (reader(batch)[0][1] - reader(other)[0][1]).abs().max().item()
    print(f"batch_first={batch_first!s:5}: sequence 1 moves by {moved:.3f}")

# %% [markdown]
# ## 10 · Check yourself
#
# **1. A forget gate stands at 0.99 at every step. What is left along the cell's path after 100 steps?**
#
# <details><summary>a) 99%</summary>No. That is after one step.</details>
# <details><summary>b) About 37%</summary>Yes: 0.99<sup>100</sup> = 0.366, about 1/e. One over the distance from 1 is the memory in steps.</details>
# <details><summary>c) Nothing: 100 factors below 1 always vanish</summary>No. They do shrink, but how fast depends on how near to 1 they are; at 0.99 it takes a hundred steps to lose two thirds.</details>
#
# **2. Why did the LSTM with a forget bias of 1 fail at long lags?**
#
# <details><summary>a) Its equations cannot hold a symbol for that long</summary>No. It has the same equations as the one that did; only the first biases differ.</details>
# <details><summary>b) At the start its gates are near 0.73, so no gradient from the answer reaches the symbol</summary>Yes. It is a failure of training: what does not reach back cannot teach.</details>
# <details><summary>c) Its gradient explodes</summary>No. It was clipped as all others, and it vanishes: 0.73 to the power of the lag.</details>
#
# **3. You load Keras weights of a GRU with `reset_after=False` into `nn.GRU`, with rows and transposes put right. What happens?**
#
# <details><summary>a) The same outputs up to rounding</summary>No. The reset stands elsewhere in the candidate.</details>
# <details><summary>b) Other outputs: the two conventions are different functions</summary>Yes. The weights have to be trained for the convention in which they are used.</details>
# <details><summary>c) An error about shapes</summary>No, and that is the trouble: it runs. (With <code>reset_after=False</code> there is one bias vector where PyTorch has two; zeros for the other fit.)</details>
#
# **4. A GPU has 100 times the units of your CPU. An LSTM reads one sequence of 1,024 tokens. How much faster will it be?**
#
# <details><summary>a) About 100 times</summary>No. The units can share out the work of one step only, and for one sequence that is small.</details>
# <details><summary>b) Perhaps not at all: 1,024 steps wait for one another</summary>Yes. A large batch would give the units something to do; a long sequence does not.</details>
# <details><summary>c) As fast as one matrix product</summary>No. A product has no steps to wait for.</details>
#
# ## 11 · What to take away
#
# - An LSTM has a second state, the cell, that is multiplied by a gate and added to, and not rewritten.
# - Along the cell's path the gradient is the product of the forget gates. Memory in steps is one over their distance from 1.
# - The forget biases decide how far back a fresh network can learn. Drawn for long memories, they bring hundreds of steps into reach.
# - A GRU does it with one state and two gates. There are two conventions for the reset; PyTorch's is reset-after.
# - The state does not grow with the text, and the steps stay serial. Both are what attention will change.
#
# **Further reading**: [Hochreiter and Schmidhuber (1997)](https://doi.org/10.1162/neco.1997.9.8.1735) and
# [Gers et al. (2000)](https://doi.org/10.1162/089976600300015015), the LSTM and its forget gate ·
# [Cho et al. (2014)](https://arxiv.org/abs/1406.1078), the GRU · [Jozefowicz et al. (2015)](https://proceedings.mlr.press/v37/jozefowicz15.html), thousands of
# gated cells compared, and the forget bias · [Tallec and Ollivier (2018)](https://arxiv.org/abs/1804.11188), why gates, and how to start them ·
# [Khandelwal et al. (2018)](https://arxiv.org/abs/1805.04623), how much context an LSTM uses.
#
# **Now do the exercises**: `exercises/02_gated_memory.ipynb`. **Next**, lesson 03: a gated network reads a sentence into one state, another writes
# the translation from it, and we measure what does not fit.
