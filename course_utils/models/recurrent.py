"""Recurrent cells whose input product is split, so that its known part is computed for all steps at once.

A decoder's cell reads [E y_{t-1}; c_t]. The embedding of the last word is known for every step while the
model trains, the context only when its step comes; and a product with a concatenation is a sum of products.
So the embeddings' share of the gates is one large product before the loop instead of a small one a step.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

State = tuple[Tensor, ...]


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
    """nn.GRUCell (same parameters, same result) with its input in parts of the given widths.

    As in PyTorch, the update gate z is the share of the old state that stays (so in Cho et al. 2014; in
    Bahdanau et al. 2015 it is 1 - z), and the reset gate is applied after the recurrent product (in both
    papers before it).
    """

    states = 1

    def forward(self, gates: Float[Tensor, "batch 3*hidden"], state: State) -> State:
        """One step from `state` = (s,), given the projected input (the sum of all parts)."""
        (s,) = state
        widths = [2 * self.hidden_size, self.hidden_size]  # split, since a slice costs more on the way back
        gates, candidate = gates.split(widths, dim=1)
        recurrent, memory = F.linear(s, self.weight_hh, self.bias_hh).split(widths, dim=1)
        reset, update = torch.sigmoid(gates + recurrent).chunk(2, dim=1)
        new = torch.tanh(torch.addcmul(candidate, reset, memory))
        return (new + update * (s - new),)


class SplitLSTMCell(SplitInput, nn.LSTMCell):
    """nn.LSTMCell (same parameters, same result) with its input in parts of the given widths."""

    states = 2

    def forward(self, gates: Float[Tensor, "batch 4*hidden"], state: State) -> State:
        """One step from `state` = (h, c), given the projected input (the sum of all parts)."""
        h, c = state
        gates = gates + F.linear(h, self.weight_hh, self.bias_hh)  # (batch, 4 hidden)
        enter, forget, new, leave = gates.chunk(4, dim=1)
        c = torch.sigmoid(forget) * c + torch.sigmoid(enter) * torch.tanh(new)
        return torch.sigmoid(leave) * torch.tanh(c), c


CELLS = {"gru": SplitGRUCell, "lstm": SplitLSTMCell}
