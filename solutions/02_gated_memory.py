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
# # 02 · Gated memory: exercises
#
# <!-- badge -->
#
# In the lesson you wrote gated cells for one sequence in numpy. Now you write them the way that PyTorch stores
# them, set a memory of a length you choose, and send a gradient back along the cell. Five exercises, 10 points,
# about 80 minutes.
#
# **How it works.** Write your answer in place of the line that raises `NotImplementedError`, run the cell,
# then run the check below it. A check tries your function on small random inputs. If something is wrong, it
# shows the smallest input that goes wrong, what you gave and what was expected; very often it recognises the
# mistake and says where to look. You can run it as often as you like. Below each check stands what it prints
# for a right answer; running the cell replaces that by what it says of yours. Under each check wait three hints,
# each stronger than the one before.
#
# **Words we use.** `batch` counts sequences, `length` the steps of a sequence, `input` and `hidden` are the widths
# of the input and of the state. Everything is batch first.

# %% tags=["setup"]
from course_utils import runtime

device = runtime.start("02")

# %%
import math

import torch
from jaxtyping import Float
from torch import Tensor

from course_utils.checks import check, summary

# %% [markdown]
# ## 02.1 · One step of an LSTM
#
# > **3 points · about 20 minutes · medium ★★☆**
#
# PyTorch keeps the weights of all four parts in one matrix, one below the other, **in the order i, f, g, o**:
# the input gate, the forget gate, the candidate, the output gate. So `W_ih` has 4 · hidden rows, and so have
# `W_hh` and the two biases. Write the step of `nn.LSTM`:
#
# $$\begin{aligned}
# i, f, o &= \sigma(W\,x_t + b + U\,h_{t-1} + b') \quad\text{with the rows of } i, f, o &
# g &= \tanh(W\,x_t + b + U\,h_{t-1} + b') \quad\text{with the rows of } g \\
# c_t &= f \odot c_{t-1} + i \odot g & h_t &= o \odot \tanh(c_t)
# \end{aligned}$$
#
# | name | shape | what it is |
# |---|---|---|
# | `x` | (batch, input) | the input of this step |
# | `h`, `c` | (batch, hidden) | hidden state and cell state of the step before; they are not zero |
# | `W_ih`, `W_hh` | (4 · hidden, input), (4 · hidden, hidden) | $W$ and $U$ of all four parts |
# | `b_ih`, `b_hh` | (4 · hidden,) | $b$ and $b'$ |
#
# Return the new `h` and the new `c`, in this order. The gates do not look at the cell (there are LSTMs in which they do, through
# so-called peepholes; `nn.LSTM` has none). The check takes three steps in a row, each from what you
# returned, and asks for the gradient through all of them. What you were given stays as it is.
#
# **A tiny example.** All weights 0, so that only the biases speak: `b_ih = [0, 1, 0.5, 2]`, `b_hh` zero, and `c = 1`. Then
# i = 0.5, f = 0.7311, g = 0.4621, o = 0.8808; the new `c` is 0.7311 · 1 + 0.5 · 0.4621 = 0.9621, the new `h` is 0.8808 ·
# tanh(0.9621) = 0.6564.


# %% tags=["exercise:02.1"]
def lstm_step(
    x: Float[Tensor, "batch input"],
    h: Float[Tensor, "batch hidden"],
    c: Float[Tensor, "batch hidden"],
    W_ih: Float[Tensor, "4*hidden input"],
    W_hh: Float[Tensor, "4*hidden hidden"],
    b_ih: Float[Tensor, " 4*hidden"],
    b_hh: Float[Tensor, " 4*hidden"],
) -> tuple[Float[Tensor, "batch hidden"], Float[Tensor, "batch hidden"]]:
    """(new h, new c) of one step of nn.LSTM; the rows of the weights are in the order i, f, g, o."""
    ### BEGIN SOLUTION
    sums = x @ W_ih.T + b_ih + h @ W_hh.T + b_hh  # (batch, 4 * hidden)
    i, f, g, o = sums.chunk(4, dim=-1)  # (batch, hidden) each
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c
    ### END SOLUTION


# %% tags=["check:02.1", "nbval-check-output"]
check("02.1", lstm_step)

# %% [markdown]
# <details><summary>Hint 1: one product for all four</summary>
#
# Do not cut the matrices. `x @ W_ih.T` is (batch, 4 · hidden): the sums of all four parts, side by side. Add
# the other product and both biases, and cut the result.
#
# </details>
# <details><summary>Hint 2: the cut</summary>
#
# `sums.chunk(4, dim=-1)` gives four pieces of (batch, hidden), in the order of the rows: i, f, g, o. Without
# `dim`, `chunk` would cut the batch. Three of the pieces go through a sigmoid, and g through a tanh.
#
# </details>
# <details><summary>Hint 3: almost the code</summary>
#
# `new_c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)`. The new h is the output gate times
# `torch.tanh(new_c)`: of the *new* cell, and with the tanh.
#
# </details>

# %% [markdown]
# ## 02.2 · One step of a GRU
#
# > **3 points · about 20 minutes · medium ★★☆**
#
# The same for the GRU of PyTorch, whose rows are **in the order r, z, n**: reset gate, update gate, candidate.
#
# $$\begin{aligned}
# r &= \sigma(W_r x_t + b_r + U_r h_{t-1} + b'_r) \qquad z = \sigma(W_z x_t + b_z + U_z h_{t-1} + b'_z) \\
# n &= \tanh\big(W_n x_t + b_n + r \odot (U_n h_{t-1} + b'_n)\big) \\
# h_t &= (1 - z) \odot n + z \odot h_{t-1}
# \end{aligned}$$
#
# Of the two conventions of the lesson this is **reset-after**: r multiplies what comes *out* of the recurrent product,
# its bias included. (In *reset-before*, r multiplies $h_{t-1}$ before the product. Keep to the equations above.)
#
# | name | shape | what it is |
# |---|---|---|
# | `x`, `h` | (batch, input), (batch, hidden) | the input of this step, the state of the step before |
# | `W_ih`, `W_hh` | (3 · hidden, input), (3 · hidden, hidden) | $W_r, W_z, W_n$ and $U_r, U_z, U_n$ |
# | `b_ih`, `b_hh` | (3 · hidden,) | $b_r, b_z, b_n$ and $b'_r, b'_z, b'_n$ |
#
# Return the new `h`.
#
# **A tiny example.** Everything has width 1, x = 0.3 and h = 0.5. Rows r and z of all weights and biases are 0, so that both
# gates are 0.5. For n: $W_n = 1$, $b_n = 0$, $U_n = 2$, $b'_n = 0.5$. Then n = tanh(0.3 + 0.5 · (2 · 0.5 + 0.5)) =
# tanh(1.05) = 0.7818, and the new h is 0.5 · 0.7818 + 0.5 · 0.5 = 0.6409.


# %% tags=["exercise:02.2"]
def gru_step(
    x: Float[Tensor, "batch input"],
    h: Float[Tensor, "batch hidden"],
    W_ih: Float[Tensor, "3*hidden input"],
    W_hh: Float[Tensor, "3*hidden hidden"],
    b_ih: Float[Tensor, " 3*hidden"],
    b_hh: Float[Tensor, " 3*hidden"],
) -> Float[Tensor, "batch hidden"]:
    """The new state of one step of nn.GRU (reset-after); the rows of the weights are in the order r, z, n."""
    ### BEGIN SOLUTION
    r_x, z_x, n_x = (x @ W_ih.T + b_ih).chunk(3, dim=-1)  # (batch, hidden) each
    r_h, z_h, n_h = (h @ W_hh.T + b_hh).chunk(3, dim=-1)  # (batch, hidden) each
    r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
    n = torch.tanh(n_x + r * n_h)
    return (1 - z) * n + z * h
    ### END SOLUTION


# %% tags=["check:02.2", "nbval-check-output"]
check("02.2", gru_step)

# %% [markdown]
# <details><summary>Hint 1: what is different from the LSTM</summary>
#
# The two products cannot be added at once, since r stands between them in the candidate. Compute
# `x @ W_ih.T + b_ih` and `h @ W_hh.T + b_hh`, and cut each into three.
#
# </details>
# <details><summary>Hint 2: who gets which bias</summary>
#
# With the cut from hint 1, each bias is where it belongs: the recurrent piece for n brings its own bias along, and r
# multiplies both.
#
# </details>
# <details><summary>Hint 3: almost the code</summary>
#
# `r = torch.sigmoid(r_x + r_h)`, z in the same way, `n = torch.tanh(n_x + r * n_h)`. Then mix: the update gate z is the share of
# the *old* state.
#
# </details>

# %% [markdown]
# ## 02.3 · Biases for a wished memory
#
# > **1 point · about 10 minutes · medium ★★☆**
#
# While nothing comes in, a unit of an LSTM keeps the share $f$ of its cell at each step, so $f^T$ after $T$ steps. At the start of
# training the weights are small, and $f = \sigma(b_f)$ is up to the forget bias alone. So we can set a memory before training.
#
# You are given the **half-life** of each unit: the number of steps after which **half** of the cell is left. Find the
# forget bias of each. Let the input gate open as far as the forget gate closes, $\sigma(b_i) = 1 - f$: then what comes in and what is lost
# are in balance. The other two biases are 0. Return all of them as one vector in the order of `nn.LSTM`: **i, f, g, o**, hidden
# numbers each.
#
# Half-lives are positive and need not be whole; the longest is 300 in float32 and 100,000 in float64.
#
# **A tiny example.** Half-lives `[1, 3]`. The first unit has f = 0.5 and so the forget bias 0; for the second, f³ = 0.5, f =
# 0.7937, and the forget bias is 1.3474. The vector is `[0, -1.3474, 0, 1.3474, 0, 0, 0, 0]`.


# %% tags=["exercise:02.3"]
def memory_biases(half_lives: Float[Tensor, " hidden"]) -> Float[Tensor, " 4*hidden"]:
    """Biases i, f, g, o with which unit k keeps half of its cell for half_lives[k] steps."""
    ### BEGIN SOLUTION
    # f / (1 - f) = 1 / (1 / f - 1), and 1 / f = 2 ** (1 / half-life)
    forget = -torch.log(torch.expm1(math.log(2) / half_lives))  # (hidden,)
    nothing = torch.zeros_like(forget)
    return torch.cat([-forget, forget, nothing, nothing])  # (4 * hidden,)
    ### END SOLUTION


# %% tags=["check:02.3", "nbval-check-output"]
check("02.3", memory_biases)

# %% [markdown]
# <details><summary>Hint 1: first the gate</summary>
#
# Solve $f^T = 1/2$ for $f$. For T = 1 it must give 0.5, and the longer the half-life, the closer f is to 1.
#
# </details>
# <details><summary>Hint 2: from the gate to its bias</summary>
#
# The inverse of the sigmoid is $\log\frac{f}{1 - f}$; `torch.logit` computes it. And $1 - \sigma(b) = \sigma(-b)$, which
# answers the question about the input gate.
#
# </details>
# <details><summary>Hint 3: almost the code</summary>
#
# `f = 0.5 ** (1 / half_lives)`, `forget = torch.logit(f)`, and `torch.cat([-forget, forget, zeros, zeros])` with
# `zeros = torch.zeros_like(forget)`.
#
# </details>

# %% [markdown]
# ## 02.4 · Send a gradient back along the cell
#
# > **2 points · about 20 minutes · hard ★★★**
#
# In the lesson the cell's path was measured: $\partial c_T / \partial c_t$ is the product of the forget gates in between. Now use it as
# backpropagation does. The gates of all steps are **given**, and count as constants: whatever flows through them into earlier states
# is left out. What remains is
#
# $$c_t = f_t \odot c_{t-1} + i_t \odot g_t \qquad h_t = o_t \odot \tanh(c_t) \qquad t = 1 \dots T$$
#
# From the loss you get `grad_h`, $\partial L / \partial h_t$ at *each* step. Return two things:
#
# - `grad_c`, (batch, **length + 1**, hidden): $\partial L / \partial c_t$ for t = 0 to T, so $c_0$ comes first;
# - `grad_f`, (batch, length, hidden): the gradient for the forget gate's **pre-activation** $a_t$, where $f_t = \sigma(a_t)$.
#   That is what goes on to the weights of the gate.
#
# | name | shape | what it is |
# |---|---|---|
# | `i`, `f`, `g`, `o` | (batch, length, hidden) | the gates and the candidate, after sigmoid and tanh |
# | `c_0` | (batch, hidden) | the cell before the first step; it is not zero |
# | `grad_h` | (batch, length, hidden) | $\partial L / \partial h_t$ |
#
# Write the gradients yourself; `torch.autograd` would do the exercise for you (use it to check your answer).
#
# **A tiny example.** Two steps, width 1. All of i and g are 0, o is 1, f is `[0.5, 0.8]` and $c_0 = 1$, so c is 1, 0.5, 0.4.
# Only the last state matters: `grad_h = [0, 1]`. Then $\partial L / \partial c_2 = 1 - \tanh^2(0.4) = 0.8556$, and going back
# multiplies it by 0.8, then by 0.5: `grad_c = [0.3423, 0.6845, 0.8556]`. And `grad_f` is `[0.1711, 0.0685]`: the last one is
# 0.8556 · 0.5 · 0.8 · (1 - 0.8).


# %% tags=["exercise:02.4"]
def cell_path_gradient(
    i: Float[Tensor, "batch length hidden"],
    f: Float[Tensor, "batch length hidden"],
    g: Float[Tensor, "batch length hidden"],
    o: Float[Tensor, "batch length hidden"],
    c_0: Float[Tensor, "batch hidden"],
    grad_h: Float[Tensor, "batch length hidden"],
) -> tuple[Float[Tensor, "batch length+1 hidden"], Float[Tensor, "batch length hidden"]]:
    """(grad_c, grad_f): the gradients of all cells, c_0 first, and of the forget gates' pre-activations."""
    ### BEGIN SOLUTION
    cells = [c_0]
    for t in range(f.shape[1]):
        cells.append(f[:, t] * cells[-1] + i[:, t] * g[:, t])
    c = torch.stack(cells, dim=1)  # (batch, length + 1, hidden)
    here = grad_h * o * (1 - torch.tanh(c[:, 1:]) ** 2)  # (batch, length, hidden): through h_t alone
    later, grads = torch.zeros_like(c_0), []  # later: what comes back from the next cell
    for t in reversed(range(f.shape[1])):
        grads.insert(0, here[:, t] + later)
        later = f[:, t] * grads[0]
    grad_c = torch.stack([later, *grads], dim=1)  # (batch, length + 1, hidden)
    return grad_c, grad_c[:, 1:] * c[:, :-1] * f * (1 - f)
    ### END SOLUTION


# %% tags=["check:02.4", "nbval-check-output"]
check("02.4", cell_path_gradient)

# %% [markdown]
# <details><summary>Hint 1: three passes</summary>
#
# First forwards: all cells from c_0 on (you need them twice). Then backwards: the gradients of the cells. Then, with no loop at all, those
# of the forget gates.
#
# </details>
# <details><summary>Hint 2: who reads the cell c_t</summary>
#
# Two do: h_t, in which it stands inside a tanh and behind o_t, and c_{t+1}, in which it stands behind f_{t+1}. So its gradient is a sum of
# two terms: `grad_h[:, t] * o[:, t] * (1 - tanh(c_t) ** 2)`, and the forget gate of the *next* step times the gradient of
# the next cell. After the last step only the first term is there; at c_0 only the second.
#
# </details>
# <details><summary>Hint 3: the forget gate</summary>
#
# In c_t, the gate f_t multiplies c_{t-1}. So the gradient of the gate is the gradient of c_t (both terms) times c_{t-1}. One more factor
# leads from the gate to the sum inside its sigmoid: the derivative f · (1 - f).
#
# </details>

# %% [markdown]
# ## 02.5 · The bits of a document against those of a state
#
# > **1 point · about 10 minutes · easy ★☆☆**
#
# A document of `tokens` token ids over a vocabulary of `vocabulary` words, all equally likely, needs $\log_2(\text{vocabulary})$ bits
# a token, and no code can do with less on average. A recurrent layer carries its state from step to step: one vector of `hidden` numbers if `cell` is
# `"gru"`, two (h and c) if it is `"lstm"`; each number has `bits` bits.
#
# Return three numbers: the bits of the document (not rounded), the bits of the state, and the **longest** document, in whole tokens,
# whose ids would fit into the state if every bit of it could be used.
#
# **A tiny example.** 100 tokens over 10,000 words need 100 · 13.2877 = 1328.77 bits. The state of a GRU of width 64 with 16 bits a number
# has 1024 bits, which is room for 77 tokens: 77 · 13.2877 = 1023.15.


# %% tags=["exercise:02.5"]
def document_and_state(
    tokens: int, vocabulary: int, hidden: int, bits: int, cell: str
) -> tuple[float, int, int]:
    """(bits of the document, bits of the state, the most tokens whose ids fit into the state)."""
    ### BEGIN SOLUTION
    each = math.log2(vocabulary)
    state = {"gru": 1, "lstm": 2}[cell] * hidden * bits
    return tokens * each, state, math.floor(state / each)
    ### END SOLUTION


# %% tags=["check:02.5", "nbval-check-output"]
check("02.5", document_and_state)

# %% [markdown]
# <details><summary>Hint 1: bits, not bytes</summary>
#
# With n bits one can number 2ⁿ things. So one of `vocabulary` words needs log2(vocabulary) bits, a fraction in general: several tokens share
# what is left over.
#
# </details>
# <details><summary>Hint 2: the state</summary>
#
# It does not depend on the number of tokens. That is the point of the exercise.
#
# </details>
# <details><summary>Hint 3: the longest</summary>
#
# Divide the bits of the state by the bits of one token, and round **down** (`math.floor`): a token that fits by half does not fit.
#
# </details>

# %% [markdown]
# ## Your points

# %% tags=["summary", "nbval-check-output"]
summary("02")
