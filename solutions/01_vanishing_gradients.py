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
# # 01 · Vanishing gradients: exercises
#
# <!-- badge -->
#
# In the lesson a network read one sequence, and one loss at its end went back through it. Now you build what
# training needs: whole batches, a loss at every step, and the instruments that tell you how far back a network
# learns. Six exercises, 10 points, about 80 minutes.
#
# **How it works.** Write your answer in place of the line that raises `NotImplementedError`, run the cell,
# then run the check below it. A check tries your function on small random inputs. If something is wrong, it
# shows the smallest input that goes wrong, what you gave and what was expected; very often it recognises the
# mistake and says where to look. You can run it as often as you like. Below each check stands what it prints
# for a right answer; running the cell replaces that by what it says of yours. Under each check wait three hints,
# each stronger than the one before.
#
# **Words we use.** `batch` counts sequences, `length` the steps of each, `input` the numbers of one input,
# `hidden` those of one state. Everything is batch first. The weights have PyTorch's orientation: `W_x` is
# (hidden, input), and `W_h` is (hidden, hidden): row i makes unit i of the new state.

# %% tags=["setup"]
from course_utils import runtime

device = runtime.start("01")

# %%
import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_utils.checks import check, summary

# %% [markdown]
# ## 01.1 · The forward pass of a batch
#
# > **2 points · about 10 minutes · easy ★☆☆**
#
# The lesson's network read one sequence. Let yours read a whole batch, each sequence from a first state of its own:
#
# $$h_t = \tanh(W_x\, x_t + W_h\, h_{t-1} + b), \qquad t = 1 \dots T$$
#
# | name | shape | what it is |
# |---|---|---|
# | `x` | (batch, length, input) | the inputs $x_1 \dots x_T$ |
# | `h0` | (batch, hidden) | the state before the first input |
# | `W_x`, `W_h`, `b` | (hidden, input), (hidden, hidden), (hidden,) | the parameters, the same at every step |
#
# Return the states $h_1 \dots h_T$, (batch, length, hidden); `h0` is not among them. The check also asks for the
# gradient through all your steps, so autograd must be able to follow. `nn.RNN` and `nn.RNNCell` are not allowed here.
#
# **A tiny example.** Inputs `[1]`, `[-1]`, first state `[0.5, -0.5]`, `W_x = [[1], [0]]`, `W_h = [[0, 2], [1, 0]]`,
# `b = [0, 0.5]`. The first state is `tanh([1 + 0 - 1, 0 + 0.5 + 0.5]) = [0, 0.7616]`, the second
# `tanh([-1 + 1.5232, 0 + 0 + 0.5]) = [0.4802, 0.4621]`.


# %% tags=["exercise:01.1"]
def rnn_forward(
    x: Float[Tensor, "batch length input"],
    h0: Float[Tensor, "batch hidden"],
    W_x: Float[Tensor, "hidden input"],
    W_h: Float[Tensor, "hidden hidden"],
    b: Float[Tensor, " hidden"],
) -> Float[Tensor, "batch length hidden"]:
    """The states after every step of a tanh network (Elman 1990)."""
    ### BEGIN SOLUTION
    h, states = h0, []
    for x_t in x.unbind(1):  # (batch, input)
        h = torch.tanh(x_t @ W_x.T + h @ W_h.T + b)  # (batch, hidden)
        states.append(h)
    return torch.stack(states, dim=1)  # (batch, length, hidden)
    ### END SOLUTION


# %% tags=["check:01.1", "nbval-check-output"]
check("01.1", rnn_forward)

# %% [markdown]
# <details><summary>Hint 1: one step</summary>
#
# The batch stands on the left of each product, so both matrices are transposed: `x_t @ W_x.T` is (batch, hidden).
# All three parts stand inside the tanh.
#
# </details>
# <details><summary>Hint 2: the loop</summary>
#
# Time is axis 1. `x[:, t]` is the input of step t for all sequences, (batch, input). Keep one variable `h` that starts
# as `h0` and becomes the new state in each step, and append it to a list.
#
# </details>
# <details><summary>Hint 3: the result</summary>
#
# `torch.stack(states, dim=1)` makes (batch, length, hidden) of a list of (batch, hidden).
#
# </details>

# %% [markdown]
# ## 01.2 · Backpropagation through time
#
# > **3 points · about 25 minutes · hard ★★★**
#
# In the lesson the loss read the last state only. In a language model it reads every state. Write the way back by hand,
# without autograd. You are given what the forward pass left behind, and the gradient that arrives at every state from above:
#
# | name | shape | what it is |
# |---|---|---|
# | `x`, `h0` | (batch, length, input), (batch, hidden) | inputs and first state |
# | `states` | (batch, length, hidden) | $h_1 \dots h_T$, as 01.1 returns them |
# | `W_h` | (hidden, hidden) | the recurrent weights |
# | `d_states` | (batch, length, hidden) | $\partial L / \partial h_t$ *directly*: as if no later state depended on $h_t$ |
#
# Return the gradients of the loss by `W_x`, `W_h`, `b` and `h0`, in this order, each in the shape of what it
# belongs to. Sum over the batch for the first three (they are shared); `h0` has a row for each sequence. With $z_t$ for what
# stands inside tanh, the whole gradient that reaches $h_t$ is
#
# $$\frac{dL}{dh_t} = \frac{\partial L}{\partial h_t} + W_h^\top \frac{dL}{dz_{t+1}},
# \qquad \frac{dL}{dz_t} = (1 - h_t^2) \odot \frac{dL}{dh_t}$$
#
# **A tiny example.** One sequence, everything of width 1: inputs 1 and 1, `h0` 0.8, `W_x` 1, `W_h` 0.5, `b` 0. The states are
# `tanh(1.4) = 0.8854` and `tanh(1 + 0.4427) = 0.8942`. The loss is the last state, so `d_states` is 0, then 1. Back at the
# second state, `dz` is `1 - 0.8942² = 0.2003`; back at the first, `(1 - 0.8854²) · 0.5 · 0.2003 = 0.0217`. So `dW_x` and `db`
# are `0.2003 + 0.0217 = 0.2220`, `dW_h` is `0.2003 · 0.8854 + 0.0217 · 0.8 = 0.1947`, and `dh0` is `0.5 · 0.0217 = 0.0108`.


# %% tags=["exercise:01.2"]
def bptt(
    x: Float[Tensor, "batch length input"],
    h0: Float[Tensor, "batch hidden"],
    states: Float[Tensor, "batch length hidden"],
    W_h: Float[Tensor, "hidden hidden"],
    d_states: Float[Tensor, "batch length hidden"],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(dW_x, dW_h, db, dh0): backpropagation through time, by hand (Werbos 1990)."""
    ### BEGIN SOLUTION
    dW_x, dW_h, db = x.new_zeros(len(W_h), x.shape[2]), torch.zeros_like(W_h), x.new_zeros(len(W_h))
    carry = torch.zeros_like(h0)  # what comes back from the step after: nothing yet
    for t in reversed(range(x.shape[1])):
        before = states[:, t - 1] if t > 0 else h0  # (batch, hidden)
        dz = (1 - states[:, t] ** 2) * (d_states[:, t] + carry)  # (batch, hidden)
        dW_x += dz.T @ x[:, t]  # (hidden, input), summed over the batch
        dW_h += dz.T @ before  # (hidden, hidden)
        db += dz.sum(dim=0)  # (hidden,)
        carry = dz @ W_h  # (batch, hidden)
    return dW_x, dW_h, db, carry
    ### END SOLUTION


# %% tags=["check:01.2", "nbval-check-output"]
check("01.2", bptt)

# %% [markdown]
# <details><summary>Hint 1: one step back</summary>
#
# Start with length 1. What reaches $h_1$ is `d_states[:, 0]`. Through tanh it becomes `dz = dh * (1 - h ** 2)`; the states
# have been through tanh already. Inside stand three parts, and each takes dz times what its parameter was multiplied with.
# Forward the product was `x @ W_x.T`, so back it is `dz.T @ x`, which also sums over the batch.
#
# </details>
# <details><summary>Hint 2: from step to step</summary>
#
# Go from the last step to the first, and carry one tensor along: what flows back to the state before, `dz @ W_h`. It is
# zero to begin with. At each step, add it to `d_states[:, t]` before anything else. What is left of it after the first step is
# the gradient of `h0`.
#
# </details>
# <details><summary>Hint 3: the state before</summary>
#
# `W_h` was multiplied with the state *before*: `states[:, t - 1]`, and `h0` at the first step. There Python would not complain
# about `states[:, -1]`, which is the last state. The gradients of the parameters add up over the steps: `+=`.
#
# </details>

# %% [markdown]
# ## 01.3 · How much gradient reaches each step?
#
# > **2 points · about 15 minutes · medium ★★☆**
#
# An instrument for networks that you have not built yourself. You get a cell, and `cell(x_t, h)` returns the next state; it may be
# an `nn.RNNCell` or an `nn.GRUCell`. Here autograd is welcome. Run the cell through the inputs from `h0`, and take the loss
#
# $$L = \sum_{\text{batch}} \text{direction} \cdot h_T$$
#
# Return the norm $\lVert dL/dh_t \rVert$ for every sequence and every state, **h0 included**, in the order of time:
# (batch, length + 1).
#
# `x` is (batch, length, input), `h0` (batch, hidden), `direction` (hidden,).
#
# **A tiny example.** A cell that returns `0.5 * h` whatever the input, `direction` `[3, 4]`, three inputs. The
# gradient by the last state is the direction itself, with norm 5. Each step back halves it: `[0.625, 1.25, 2.5, 5]`.


# %% tags=["exercise:01.3"]
def gradient_norms(
    cell: nn.Module,
    x: Float[Tensor, "batch length input"],
    h0: Float[Tensor, "batch hidden"],
    direction: Float[Tensor, " hidden"],
) -> Float[Tensor, "batch length+1"]:
    """The norm of dL/dh_t for t = 0 ... length, L being the last states' share of `direction`."""
    ### BEGIN SOLUTION
    states = [h0.clone().requires_grad_()]  # a clone, so that the caller's tensor stays as it is
    for x_t in x.unbind(1):  # (batch, input)
        states.append(cell(x_t, states[-1]))
    loss = (states[-1] @ direction).sum()
    found = torch.autograd.grad(loss, states)  # one (batch, hidden) for each state
    return torch.stack(found, dim=1).norm(dim=-1)  # (batch, length + 1)
    ### END SOLUTION


# %% tags=["check:01.3", "nbval-check-output"]
check("01.3", gradient_norms)

# %% [markdown]
# <details><summary>Hint 1: keep all states</summary>
#
# A list that starts with `h0` and grows by one state a step has length + 1 entries. `h0` came without a graph: it needs
# `requires_grad_()` (on a clone, to leave the caller's tensor alone).
#
# </details>
# <details><summary>Hint 2: gradients of what is not a leaf</summary>
#
# After `loss.backward()`, `.grad` of a computed state is None: autograd keeps gradients for leaves only. Either call
# `h.retain_grad()` on each state as it is made, or ask for what you want: `torch.autograd.grad(loss, states)` returns one
# gradient for each state.
#
# </details>
# <details><summary>Hint 3: one norm for each sequence</summary>
#
# Sequences do not touch, so the gradient of the sum over the batch has a row for each. Stack the gradients along dim 1 to
# (batch, length + 1, hidden), and take the norm over the last axis.
#
# </details>

# %% [markdown]
# ## 01.4 · Clip by the global norm
#
# > **1 point · about 10 minutes · easy ★☆☆**
#
# An exploding gradient is cured by shortening the step without turning it. Treat **all** gradients together as one long vector,
# with the norm $n$. If $n$ is larger than `max_norm`, multiply every tensor by the same factor, `max_norm / n`; if it is not, leave
# them as they are.
#
# `gradients` is a list of tensors of any shapes. Return a list of **new** tensors, and the norm as it was **before**
# clipping (that is the number one wants to log). Gradients that are all zero stay zero. `torch.nn.utils` is not allowed here.
#
# **A tiny example.** The gradients `[3, 0]` and `[[4]]` with `max_norm` 1: their common norm is 5, so they become `[0.6, 0]`
# and `[[0.8]]`, and 5 is returned with them. With `max_norm` 10 they stay, and 5 is returned as well.


# %% tags=["exercise:01.4"]
def clip_by_global_norm(gradients: list[Tensor], max_norm: float) -> tuple[list[Tensor], float]:
    """(clipped gradients, their norm before): one factor for all (Pascanu et al. 2013, algorithm 1)."""
    ### BEGIN SOLUTION
    norm = torch.sqrt(sum(g.square().sum() for g in gradients)).item()
    factor = max_norm / norm if norm > max_norm else 1.0
    return [g * factor for g in gradients], norm
    ### END SOLUTION


# %% tags=["check:01.4", "nbval-check-output"]
check("01.4", clip_by_global_norm)

# %% [markdown]
# <details><summary>Hint 1: one long vector</summary>
#
# The norm of a long vector is the root of the sum of the squares of all its numbers, whichever tensor they stand in.
#
# </details>
# <details><summary>Hint 2: only when it is too long</summary>
#
# A factor of `max_norm / norm` would also *stretch* gradients that are below the limit. It is never larger than 1.
#
# </details>
# <details><summary>Hint 3: almost the code</summary>
#
# `norm = torch.sqrt(sum((g ** 2).sum() for g in gradients))`. Decide once, before the loop over the tensors, and return
# `[g * factor for g in gradients]` with the norm.
#
# </details>

# %% [markdown]
# ## 01.5 · Set the radius, predict the decay
#
# > **1 point · about 10 minutes · medium ★★☆**
#
# The lesson predicts how fast a gradient fades from two numbers. Do both steps yourself, for any matrix:
#
# 1. Scale `W_h` so that its **spectral radius**, the size of its largest eigenvalue, becomes `radius`. Eigenvalues are
#    complex numbers; the size of one is its absolute value.
# 2. Predict by which **factor** the norm of the gradient changes over `lag` steps. Each step back multiplies it by
#    about the radius times the root mean square of tanh′, so the factor is
#
# $$\Bigl(\rho \cdot \sqrt{\operatorname{mean}\,(1 - h^2)^2}\Bigr)^{\text{lag}}$$
#
# with the new radius $\rho$ and the mean over all numbers in `states`, (length, hidden). Return the scaled matrix and the
# factor.
#
# **A tiny example.** `[[0, 2], [-0.5, 0]]` has the eigenvalues $i$ and $-i$, so its radius is 1 (although one of its
# entries is 2). For radius 0.9 it becomes `[[0, 1.8], [-0.45, 0]]`. With the states `[[0, 0.6]]`, tanh′ is 1 and 0.64, its
# root mean square 0.8395; over two steps the factor is `(0.9 · 0.8395)² = 0.5709`.


# %% tags=["exercise:01.5"]
def scale_and_predict(
    W_h: Float[Tensor, "hidden hidden"], radius: float, states: Float[Tensor, "length hidden"], lag: int
) -> tuple[Float[Tensor, "hidden hidden"], float]:
    """(W_h scaled to the radius, the factor by which a gradient is expected to change over `lag` steps)."""
    ### BEGIN SOLUTION
    scaled = W_h * (radius / torch.linalg.eigvals(W_h).abs().max())
    slope = (1 - states**2).square().mean().sqrt().item()  # root mean square of tanh'
    return scaled, (radius * slope) ** lag
    ### END SOLUTION


# %% tags=["check:01.5", "nbval-check-output"]
check("01.5", scale_and_predict)

# %% [markdown]
# <details><summary>Hint 1: the radius</summary>
#
# `torch.linalg.eigvals` returns complex numbers, and `.abs()` gives their sizes. (`eigvalsh` is for symmetric
# matrices, and `matrix_norm(W, 2)` is the largest *singular* value: both are something else.)
#
# </details>
# <details><summary>Hint 2: scaling</summary>
#
# When a matrix is multiplied by c, so are all its eigenvalues. Which c takes the present radius to the wanted one?
#
# </details>
# <details><summary>Hint 3: the factor</summary>
#
# Root mean square, read from the back: square, then mean, then root. The states have been through tanh, so tanh′ is
# `1 - states ** 2`. `lag` steps multiply `lag` times.
#
# </details>

# %% [markdown]
# ## 01.6 · The memory horizon, with guessing taken out
#
# > **1 point · about 10 minutes · easy ★☆☆**
#
# How far back does a network remember? The lesson has eight symbols, so a guess is right once in eight times. With two symbols, half
# of all guesses are right, and an accuracy of 0.6 means next to nothing. So measure how far it is on the way from guessing to knowing:
#
# $$\text{share} = \frac{\text{accuracy} - \text{chance}}{1 - \text{chance}}, \qquad \text{chance} = \frac{1}{\text{symbols}}$$
#
# A lag counts as **learned** when its share is at least 0.5. The **horizon** is the largest lag such that it and all
# shorter lags in the list are learned: an island of luck behind a gap does not count. Return 0 when not even the shortest lag is
# learned. The lists belong together, entry by entry, but the lags may come in any order.
#
# **A tiny example.** Lags `[5, 10, 20]` with the accuracies `[0.9, 0.7, 0.95]`. With two symbols, the shares are 0.8, 0.4 and 0.9:
# the horizon is 5. With four symbols, they are 0.867, 0.6 and 0.933: it is 20.


# %% tags=["exercise:01.6"]
def memory_horizon(lags: list[int], accuracies: list[float], symbols: int) -> int:
    """The largest lag up to which every lag was learned at least half of the way from chance; 0 if none."""
    ### BEGIN SOLUTION
    chance = 1 / symbols
    horizon = 0
    for lag, accuracy in sorted(zip(lags, accuracies, strict=True)):
        if (accuracy - chance) / (1 - chance) < 0.5:
            break
        horizon = lag
    return horizon
    ### END SOLUTION


# %% tags=["check:01.6", "nbval-check-output"]
check("01.6", memory_horizon)

# %% [markdown]
# <details><summary>Hint 1: chance first</summary>
#
# Compute the share for one lag by hand: accuracy 0.7, two symbols: (0.7 - 0.5) / (1 - 0.5) = 0.4. Not learned.
#
# </details>
# <details><summary>Hint 2: in order</summary>
#
# `sorted(zip(lags, accuracies))` gives the pairs from the shortest lag to the longest, and leaves both lists as they
# are.
#
# </details>
# <details><summary>Hint 3: stop at the first gap</summary>
#
# Start with 0. Walk through the sorted pairs; leave the loop at the first lag that is not learned; otherwise remember the
# lag.
#
# </details>

# %% [markdown]
# ## Your points

# %% tags=["summary", "nbval-check-output"]
summary("01")
