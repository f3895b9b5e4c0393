"""Recurrent networks: the steps by hand, one layer by hand or fused, cells with a split input, first weights.

The steps are pure functions of the projected input. `Recurrent` runs them over a sequence, or PyTorch's fused
layer with the same parameters. The cells with a split input are what the course's decoders are made of: their
input is [E y_{t-1}; c_t], the embedding of the last word is known for every step while the model trains, the
context only when its step comes; and a product with a concatenation is a sum of products. So the embeddings'
share of the gates is one large product before the loop instead of a small one a step.
"""

import math
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

State = tuple[Tensor, ...]  # (h,), or (h, c) for an LSTM; each (batch, hidden)
Kind = Literal["rnn", "relu", "gru", "lstm"]

# --- one step, by hand --------------------------------------------------------------------------------------


def rnn_step(
    projected: Float[Tensor, "batch hidden"], state: State, weight_hh: Tensor, bias_hh: Tensor
) -> State:
    """h_t = tanh(W x_t + b + U h_{t-1} + b') (Elman 1990), given the projected input W x_t + b."""
    (h,) = state
    return (torch.tanh(projected + F.linear(h, weight_hh, bias_hh)),)


def relu_step(
    projected: Float[Tensor, "batch hidden"], state: State, weight_hh: Tensor, bias_hh: Tensor
) -> State:
    """The step of `rnn_step` with max(0, x) in place of tanh (Le et al. 2015)."""
    (h,) = state
    return (torch.relu(projected + F.linear(h, weight_hh, bias_hh)),)


def gru_step(
    projected: Float[Tensor, "batch 3*hidden"], state: State, weight_hh: Tensor, bias_hh: Tensor
) -> State:
    """One step of a GRU, given the projected input of the gates r, z and the candidate n, in this order.

    As in PyTorch, the update gate z is the share of the old state that stays (so in Cho et al. 2014; in
    Bahdanau et al. 2015 it is 1 - z), and the reset gate is applied after the recurrent product (in both
    papers before it).
    """
    (h,) = state
    widths = [2 * h.shape[1], h.shape[1]]  # split, since a slice costs more on the way back
    gates, candidate = projected.split(widths, dim=1)
    recurrent, memory = F.linear(h, weight_hh, bias_hh).split(widths, dim=1)
    reset, update = torch.sigmoid(gates + recurrent).chunk(2, dim=1)
    new = torch.tanh(torch.addcmul(candidate, reset, memory))
    return (new + update * (h - new),)


class Gates(NamedTuple):
    """What an LSTM does in a step, or in all steps: gates after their sigmoid, the new content after tanh."""

    enter: Float[Tensor, "*steps hidden"]  # i, the input gate
    forget: Float[Tensor, "*steps hidden"]  # f
    new: Float[Tensor, "*steps hidden"]  # g, what would be written
    leave: Float[Tensor, "*steps hidden"]  # o, the output gate
    cell: Float[Tensor, "*steps hidden"]  # c_t
    hidden: Float[Tensor, "*steps hidden"]  # h_t


def lstm_gates(
    projected: Float[Tensor, "batch 4*hidden"], state: State, weight_hh: Tensor, bias_hh: Tensor
) -> Gates:
    """One step of an LSTM with all that happens in it: c_t = f c_{t-1} + i g, h_t = o tanh(c_t).

    The order of the gates in the parameters is PyTorch's: i, f, g, o. The forget gate is that of Gers et al.
    (2000); there are no peepholes.
    """
    h, c = state
    gates = projected + F.linear(h, weight_hh, bias_hh)  # (batch, 4 hidden)
    enter, forget, new, leave = gates.chunk(4, dim=1)
    enter, forget, new, leave = enter.sigmoid(), forget.sigmoid(), new.tanh(), leave.sigmoid()
    c = forget * c + enter * new
    return Gates(enter, forget, new, leave, c, leave * torch.tanh(c))


def lstm_step(
    projected: Float[Tensor, "batch 4*hidden"], state: State, weight_hh: Tensor, bias_hh: Tensor
) -> State:
    """The state (h_t, c_t) after one step of `lstm_gates`."""
    step = lstm_gates(projected, state, weight_hh, bias_hh)
    return step.hidden, step.cell


STEPS = {"rnn": rnn_step, "relu": relu_step, "gru": gru_step, "lstm": lstm_step}

# --- one layer, by hand or fused ----------------------------------------------------------------------------


def run_fused(
    rnn: nn.RNNBase, x: Float[Tensor, "batch length input"], state: State
) -> tuple[Float[Tensor, "batch length hidden"], State]:
    """All outputs and the last state of PyTorch's own layer (one layer, batch first), from `state`.

    PyTorch wants a state as (layers, batch, hidden), and under autocast in the dtype of the input.
    """
    first = tuple(s[None].contiguous().to(x.dtype) for s in state)
    outputs, last = rnn(x, first if len(first) > 1 else first[0])
    return outputs, tuple(s[0] for s in (last if len(first) > 1 else (last,)))


class Recurrent(nn.Module):
    """One recurrent layer with two ways to run it: PyTorch's fused kernel, or the steps above in a loop.

    Both use the parameters of `rnn`, so `fused` may be switched at any time and the result stays the same.

    Args:
        kind: "rnn" (tanh), "relu", "gru" or "lstm".
        input_size: the width of the input.
        hidden: the width of the state.
        fused: run PyTorch's kernel.
    """

    def __init__(self, kind: Kind, input_size: int, hidden: int, *, fused: bool = True):
        super().__init__()
        if kind not in STEPS:
            raise ValueError(f"there is no recurrent layer {kind!r}; choose one of {', '.join(STEPS)}")
        layer = {"gru": nn.GRU, "lstm": nn.LSTM}.get(kind, nn.RNN)
        options = {"nonlinearity": "relu"} if kind == "relu" else {}
        self.rnn = layer(input_size, hidden, batch_first=True, **options)
        self.kind, self.hidden, self.fused = kind, hidden, fused
        self.states = 2 if kind == "lstm" else 1

    def forward(
        self, x: Float[Tensor, "batch length input"], state: State | None = None
    ) -> tuple[Float[Tensor, "batch length hidden"], State]:
        """All outputs h_1 ... h_T and the last state, from `state` or zeros."""
        if not self.fused:
            states = self.unroll(x, state)
            return torch.stack([s[0] for s in states[1:]], dim=1), states[-1]
        return run_fused(self.rnn, x, state or self.zeros(x))

    def unroll(self, x: Float[Tensor, "batch length input"], state: State | None = None) -> list[State]:
        """The states of all steps by hand, T + 1 of them: the one before the first step, then one a step."""
        step, rnn = STEPS[self.kind], self.rnn
        states = [tuple(state or self.zeros(x))]
        for projected in self.project(x).unbind(dim=1):  # (batch, gates)
            states.append(step(projected, states[-1], rnn.weight_hh_l0, rnn.bias_hh_l0))
        return states

    def project(self, x: Float[Tensor, "batch length input"]) -> Float[Tensor, "batch length gates"]:
        """The input's share of the gates, for all steps at once."""
        return F.linear(x, self.rnn.weight_ih_l0, self.rnn.bias_ih_l0)

    def zeros(self, x: Float[Tensor, "batch length input"]) -> State:
        """The state that a layer starts from where none is given."""
        return tuple(x.new_zeros(len(x), self.hidden) for _ in range(self.states))


def gates_of(layer: Recurrent, x: Float[Tensor, "batch length input"], state: State | None = None) -> Gates:
    """All gates of an LSTM while it reads x, each (batch, length, hidden).

    Raises ValueError for a layer of another kind, which has not these gates.
    """
    if layer.kind != "lstm":
        raise ValueError(f"these are the gates of an LSTM, but this layer is of kind {layer.kind!r}")
    h, c = state or layer.zeros(x)
    steps = []
    for projected in layer.project(x).unbind(dim=1):
        steps.append(lstm_gates(projected, (h, c), layer.rnn.weight_hh_l0, layer.rnn.bias_hh_l0))
        h, c = steps[-1].hidden, steps[-1].cell
    return Gates(*(torch.stack(values, dim=1) for values in zip(*steps, strict=True)))


# --- cells with their input in parts ------------------------------------------------------------------------


class SplitInput:
    """What the cells below add to PyTorch's: an input in parts, projected part by part.

    A cell of any kind fits the course's decoders if it has
        states               how many tensors its state has (a GRU 1, an LSTM 2),
        hidden_size          the width of each of them,
        project(part, x)     the share of one part of the input in the gates (the cell wants the sum),
        forward(gates, state) -> state   one step; the first tensor of a state is the one that others read.
    """

    states: int

    def __init__(self, *widths: int, hidden: int):
        super().__init__(sum(widths), hidden)
        self.widths = widths

    def project(self, part: int, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch gates"]:
        """The share of one part of the input in the gates; part 0 brings the bias."""
        weight = self.weight_ih.split(self.widths, dim=1)[part]
        return F.linear(x, weight, self.bias_ih if part == 0 else None)


class SplitGRUCell(SplitInput, nn.GRUCell):
    """nn.GRUCell (same parameters, same result) with its input in parts of the given widths."""

    states = 1

    def forward(self, gates: Float[Tensor, "batch 3*hidden"], state: State) -> State:
        """One step from `state` = (s,), given the projected input (the sum of all parts)."""
        return gru_step(gates, state, self.weight_hh, self.bias_hh)


class SplitLSTMCell(SplitInput, nn.LSTMCell):
    """nn.LSTMCell (same parameters, same result) with its input in parts of the given widths."""

    states = 2

    def forward(self, gates: Float[Tensor, "batch 4*hidden"], state: State) -> State:
        """One step from `state` = (h, c), given the projected input (the sum of all parts)."""
        return lstm_step(gates, state, self.weight_hh, self.bias_hh)


CELLS = {"gru": SplitGRUCell, "lstm": SplitLSTMCell}

# --- first weights ------------------------------------------------------------------------------------------


@torch.no_grad()
def forget_bias_(lstm: nn.LSTM, value: float) -> None:
    """Sets the forget bias of an LSTM to `value`, and its other biases to 0.

    PyTorch adds two bias vectors; one of them carries the value. 1 is the advice of Jozefowicz et al. (2015).
    """
    _zero_biases(lstm)
    lstm.bias_hh_l0.chunk(4)[1].fill_(value)


@torch.no_grad()
def long_memory_(lstm: nn.LSTM, longest: float, generator: torch.Generator | None = None) -> None:
    """Biases for memories of 1 to `longest` steps (Tallec and Ollivier 2018, "chrono").

    A forget gate of f keeps a memory for about 1 / (1 - f) steps, so a bias of log(u) keeps it for 1 + u. The
    paper draws u uniformly from [1, longest - 1]; here it is log-uniform in [1, longest], so that every order
    of magnitude gets as many units. The input bias is -log(u): who keeps long, writes seldom. The other
    biases are 0.

    Raises ValueError for a memory of less than one step.
    """
    if not longest >= 1:
        raise ValueError(f"a memory of {longest} steps is none; longest must be at least 1")
    _zero_biases(lstm)
    share = torch.rand(lstm.hidden_size, generator=generator, dtype=torch.float32)
    bias = (share * math.log(longest)).to(lstm.bias_hh_l0)  # log(u) of a log-uniform u
    enter, forget, *_ = lstm.bias_hh_l0.chunk(4)
    enter.copy_(-bias)
    forget.copy_(bias)


@torch.no_grad()
def orthogonal_(rnn: nn.RNNBase, gain: float = 1.0, generator: torch.Generator | None = None) -> None:
    """Makes each recurrent matrix `gain` times a random orthogonal one, whose singular values are all 1."""
    for matrix in rnn.weight_hh_l0.split(rnn.hidden_size):
        nn.init.orthogonal_(matrix, gain, generator=generator)


@torch.no_grad()
def identity_(rnn: nn.RNN, scale: float = 1.0) -> None:
    """Makes the recurrent matrix `scale` times the identity and the biases 0 (Le et al. 2015, for ReLU)."""
    rnn.weight_hh_l0.copy_(scale * torch.eye(rnn.hidden_size))
    _zero_biases(rnn)


def _zero_biases(rnn: nn.RNNBase) -> None:
    rnn.bias_ih_l0.zero_()
    rnn.bias_hh_l0.zero_()
