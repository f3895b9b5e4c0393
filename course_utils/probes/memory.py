"""What a recurrent network remembers: gradients by lag, and the recall of a symbol after many others."""

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_utils.models.recurrent import Kind, Recurrent, State

# --- gradients by lag ---------------------------------------------------------------------------------------


def gradient_norms(loss: Float[Tensor, ""], states: Sequence[Tensor]) -> Float[np.ndarray, " states"]:
    """How much each state matters to the loss: the norm of dloss/dh_t, for every h_t in `states`.

    A state is (batch, hidden). Norms of single sequences differ by factors, so the mean over the batch is
    the geometric one; it is 0 where a sequence has no gradient at all. Leaves the graph of the loss standing.
    """
    gradients = torch.autograd.grad(loss, list(states), retain_graph=True)
    norms = torch.stack([g.double().norm(dim=-1) for g in gradients])  # (states, batch)
    return norms.log().mean(dim=-1).exp().cpu().numpy()


def spectral_radius(matrix: Float[Tensor, "hidden hidden"]) -> float:
    """The largest absolute value of an eigenvalue: what a matrix does to a vector in the long run, a step."""
    return float(torch.linalg.eigvals(matrix.detach().double().cpu()).abs().max())


@torch.no_grad()
def scale_to_radius_(matrix: Float[Tensor, "hidden hidden"], radius: float) -> None:
    """Multiplies a matrix in place so that its spectral radius is `radius`.

    Raises ValueError for a matrix whose eigenvalues are all 0: no factor helps it.
    """
    own = spectral_radius(matrix)
    if own == 0:
        raise ValueError("the matrix has the spectral radius 0, which no factor changes; start from another")
    matrix.mul_(radius / own)


class GradientFlow(NamedTuple):
    """The gradient's way back through a recurrent layer.

    Attributes:
        norms: the gradient norm at every lag: norms[0] at the last state, norms[k] at the one k steps before.
        slope: the fitted change of the natural logarithm of the norm, a step back.
        predicted: what spectral radius and activation alone predict for `slope`; None where there are gates.
    """

    norms: Float[np.ndarray, " lags"]
    slope: float
    predicted: float | None


def gradient_flow(
    layer: Recurrent,
    x: Float[Tensor, "batch length input"],
    *,
    state: State | None = None,
    seed: int = 0,
    skip: int = 0,
) -> GradientFlow:
    """Runs the layer over x and follows the gradient of a number that depends on the last state alone.

    The number is the product of h_T with a fixed random direction of length 1. The states are h_0 ... h_T (of
    an LSTM the h, whose gradient includes what flows through the cell).

    Args:
        seed: of the direction.
        skip: how many lags next to the loss the fit leaves out.
    """
    states = [tuple(s.detach().requires_grad_() for s in state or layer.zeros(x))]
    with torch.enable_grad():
        states += layer.unroll(x, states[0])[1:]
        hidden = [s[0] for s in states]
        direction = torch.randn(layer.hidden, generator=torch.Generator().manual_seed(seed))
        loss = (hidden[-1] @ (direction / direction.norm()).to(hidden[-1])).sum()
    norms = gradient_norms(loss, hidden)[::-1]
    predicted = None
    if layer.kind in ("rnn", "relu"):
        predicted = predicted_slope(layer.rnn.weight_hh_l0, _derivatives(layer.kind, torch.stack(hidden[1:])))
    return GradientFlow(norms, fitted_slope(norms, skip), predicted)


def predicted_slope(matrix: Float[Tensor, "hidden hidden"], derivatives: Float[Tensor, "..."]) -> float:
    """The change of the log gradient norm a step back that an RNN's matrix and activation predict.

    A step back multiplies the gradient by the activation's derivatives and by the matrix. The derivatives
    shrink its squared length by their mean square. The matrix stretches it by its spectral radius: exactly so
    if it is a multiple of an orthogonal one; roughly, and better the wider it is, if its entries are
    independent, since in few dimensions the largest eigenvalue says little about the others.
    """
    mean_square = float(derivatives.detach().double().pow(2).mean())
    return math.log(spectral_radius(matrix)) + 0.5 * math.log(mean_square)


def _derivatives(kind: Kind, outputs: Tensor) -> Tensor:
    """The activation's derivative, from its output."""
    return 1 - outputs**2 if kind == "rnn" else (outputs > 0).double()


def fitted_slope(norms: Float[np.ndarray, " lags"], skip: int = 0) -> float:
    """The slope of the line of least squares through log(norm) by lag; NaN where two points are not left.

    Norms of 0 or infinity, which have no logarithm, are left out.
    """
    lags = np.arange(len(norms))
    keep = (lags >= skip) & (norms > 0) & np.isfinite(norms)
    if keep.sum() < 2:
        return math.nan
    return float(np.polyfit(lags[keep], np.log(norms[keep]), 1)[0])


# --- recall -------------------------------------------------------------------------------------------------


def recall_batch(
    count: int, lag: int, *, symbols: int = 8, generator: torch.Generator
) -> tuple[Int[Tensor, "count length"], Int[Tensor, "count"]]:
    """A task for the memory: name the first symbol after `lag` others.

    Returns:
        Tokens (count, lag + 1), the first one below `symbols`, all others drawn from `symbols` further ones;
        and the answers, the first tokens. On the CPU; a guess is right once in `symbols` times.
    """
    answers = torch.randint(symbols, (count,), generator=generator)
    others = torch.randint(symbols, 2 * symbols, (count, lag), generator=generator)
    return torch.cat([answers[:, None], others], dim=1), answers


class Recaller(nn.Module):
    """A recurrent layer that reads tokens one-hot, and a linear layer that answers from its last state."""

    def __init__(self, kind: Kind, *, hidden: int = 64, symbols: int = 8):
        super().__init__()
        self.symbols = symbols
        self.layer = Recurrent(kind, 2 * symbols, hidden)
        self.readout = nn.Linear(hidden, symbols)

    def forward(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch symbols"]:
        one_hot = F.one_hot(tokens, 2 * self.symbols).to(self.readout.weight)  # (batch, length, 2 symbols)
        _, state = self.layer(one_hot)
        return self.readout(state[0])


class Learned(NamedTuple):
    """How far a model came: its accuracy on unseen sequences, after how many steps and seconds."""

    accuracy: float
    steps: int
    seconds: float


def learn_recall(
    model: Recaller,
    lag: int,
    *,
    steps: int,
    batch: int = 64,
    learning_rate: float = 2e-3,
    clip: float = 1.0,
    seed: int = 0,
    good_enough: float = 0.97,
) -> Learned:
    """Trains a model on the recall task with Adam, and tests it on 1,000 fresh sequences.

    Every step draws a new batch, so a running mean of its accuracy over about ten steps is an honest one;
    training stops early once that passes `good_enough`.

    Args:
        steps: the budget; the same number of steps gives the same result on every machine.
        clip: the largest norm of all gradients together.
        seed: of the sequences. (The model's first weights are the caller's business.)
    """
    generator = torch.Generator().manual_seed(seed)
    device = next(model.parameters()).device
    optimiser = torch.optim.Adam(model.parameters(), learning_rate)
    started, running, taken = time.perf_counter(), 0.0, 0
    while taken < steps and running <= good_enough:
        tokens, answers = recall_batch(batch, lag, symbols=model.symbols, generator=generator)
        answers = answers.to(device)
        logits = model(tokens.to(device))
        optimiser.zero_grad()
        F.cross_entropy(logits, answers).backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimiser.step()
        running += 0.1 * (float((logits.argmax(-1) == answers).float().mean()) - running)
        taken += 1
    accuracy = recall_accuracy(model, lag, seed=seed + 1)
    return Learned(accuracy, taken, time.perf_counter() - started)


@torch.no_grad()
def recall_accuracy(model: Recaller, lag: int, *, count: int = 1000, seed: int = 1) -> float:
    """The share of `count` fresh sequences whose first symbol the model names."""
    generator = torch.Generator().manual_seed(seed)
    tokens, answers = recall_batch(count, lag, symbols=model.symbols, generator=generator)
    device = next(model.parameters()).device
    return float((model(tokens.to(device)).argmax(-1).cpu() == answers).float().mean())


def memory_horizon(lags: Sequence[int], accuracies: Sequence[float], threshold: float = 0.9) -> int:
    """The largest lag up to which a model has learned every tested lag; 0 if it failed at the shortest.

    A lucky success beyond a failure does not count.

    Raises ValueError where lags and accuracies differ in number.
    """
    horizon = 0
    for lag, accuracy in sorted(zip(lags, accuracies, strict=True)):
        if accuracy < threshold:
            break
        horizon = lag
    return horizon
