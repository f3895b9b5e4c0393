"""Sequence to sequence with recurrent networks: through one vector, and with attention.

Every translation model of the course offers four methods, whatever it is made of:

    forward(source, source_mask, target_in) -> Output      all steps at once, for training
    encode(source, source_mask)             -> memory      what the decoder may look at
    start(memory)                           -> state       the decoder's state before the first word
    step(token, state, memory)              -> StepOutput  one word on, for decoding

Memory and state are tuples of tensors with the batch first, so that a search can reorder both.
"""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_utils.models.attention import AdditiveScore, Attention
from course_utils.models.recurrent import CELLS, State, run_fused

RNNS = {"gru": nn.GRU, "lstm": nn.LSTM}


class Output(NamedTuple):
    """A model's answer for a whole target sentence."""

    logits: Float[Tensor, "batch target vocabulary"]
    weights: Float[Tensor, "batch target source"] | None  # None where a model has no attention


class StepOutput(NamedTuple):
    """A model's answer for one target word."""

    logits: Float[Tensor, "batch vocabulary"]
    state: State
    weights: Float[Tensor, "batch source"] | None


class Encoded(NamedTuple):
    """What an encoder hands on."""

    states: Float[Tensor, "batch source width"]  # h_j, zeros on padding
    first: Float[Tensor, "batch hidden"]  # has read all: backward h_1 (forward h_S where there is no other)


class Encoder(nn.Module):
    """Reads the source with a GRU or LSTM, in both directions or in one.

    Padding changes no result: each row is read as if it were alone. Padding stands at the end, where the
    forward direction meets it after all words; and for the backward direction the words of each row are
    turned around in their own places, so that it too starts with a word. That does what packing does
    (pack_padded_sequence), in less time on a CPU and without asking a GPU for the lengths.

    Args:
        vocabulary: the number of source words.
        embedding: the width of a word's embedding.
        hidden: the width of the state of one direction.
        cell: "gru" or "lstm".
        bidirectional: both directions, h_j = [forward h_j; backward h_j] (Bahdanau et al. 2015, equation 7).
        reverse: which one it is otherwise. True reads from the end, as Sutskever et al. (2014) do: then the
            state at the first word has seen all of it, and its beginning last. False reads from the start.
        dropout: the share of the embedding's entries that is dropped in training.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        embedding: int,
        hidden: int,
        cell: Literal["gru", "lstm"] = "gru",
        bidirectional: bool = True,
        reverse: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.dropout = nn.Dropout(dropout)
        onward, back = bidirectional or not reverse, bidirectional or reverse
        self.forward_rnn = RNNS[cell](embedding, hidden, batch_first=True) if onward else None
        self.backward_rnn = RNNS[cell](embedding, hidden, batch_first=True) if back else None
        self.hidden = hidden
        self.width = 2 * hidden if bidirectional else hidden

    def forward(
        self, source: Int[Tensor, "batch source"], source_mask: Bool[Tensor, "batch source"]
    ) -> Encoded:
        """Encodes sentences that are padded at their end and have at least one real token each."""
        embedded = self.dropout(self.embedding(source))  # (batch, source, embedding)
        lengths = source_mask.sum(dim=1)
        directions = []  # (batch, source, hidden) each
        if self.forward_rnn is not None:
            directions.append(self.forward_rnn(embedded)[0])
            first = directions[-1][torch.arange(len(source), device=source.device), lengths - 1]  # h_S
        if self.backward_rnn is not None:
            directions.append(_reverse(self.backward_rnn(_reverse(embedded, lengths))[0], lengths))
            first = directions[-1][:, 0]  # backward h_1
        return Encoded(torch.cat(directions, dim=-1) * source_mask[:, :, None], first)  # (7)


def _reverse(rows: Tensor, lengths: Int[Tensor, "batch"]) -> Tensor:
    """Turns the first `lengths[i]` entries of row i around and leaves the padding behind them."""
    here = torch.arange(rows.shape[1], device=rows.device)
    there = lengths[:, None] - 1 - here  # (batch, source)
    there = torch.where(there < 0, here, there)
    return rows[torch.arange(len(rows), device=rows.device)[:, None], there]


class Readout(nn.Sequential):
    """The output layer: W_o tanh(U_o s_t + V_o E y_{t-1} + C_o c_t), the logits of the next word.

    After the "deep output" of Bahdanau et al. (2015, appendix A.2.2), with two simplifications: a tanh where
    they take the larger of two units each (maxout), and s_t, as in their equation 4, where the appendix has
    s_{t-1}.
    """

    def __init__(self, width: int, embedding: int, vocabulary: int, dropout: float):
        super().__init__(
            nn.Linear(width, embedding), nn.Tanh(), nn.Dropout(dropout), nn.Linear(embedding, vocabulary)
        )


class AttentionMemory(NamedTuple):
    """What the attentional decoder may look at; all but the mask is computed once a sentence."""

    states: Float[Tensor, "batch source width"]  # h_j
    keys: Float[Tensor, "batch source attention"]  # U_a h_j
    values: Float[Tensor, "batch source gates"]  # the share of h_j in the cell's gates
    mask: Bool[Tensor, "batch source"]
    first: Float[Tensor, "batch hidden"]  # backward h_1


class _LaterGradient(torch.autograd.Function):
    """The gradient of the values V of c_t = a_t V, for all steps in one product.

    Autograd would make a gradient as large as V at every step, and add them up. But c_t is added to the
    gates, so the two share their gradients G = [g_1; g_2; ...], and the sum over steps is A^T G. So the steps
    take V as a constant; the gates pass through here before the loop, and on the way back V gets its due.
    """

    @staticmethod
    def forward(ctx, gates: Tensor, values: Tensor, rows: list[Tensor]) -> Tensor:
        # Empty still: the loop will put the weights a_t there, detached. Their own history leads back to this
        # node, and such a circle, which Python cannot see through, would never be freed.
        ctx.rows = rows
        return gates.view_as(gates)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        weights = torch.cat(ctx.rows, dim=1).to(gradient.dtype)  # (batch, target, source)
        return gradient, torch.bmm(weights.mT, gradient), None


class AttentionDecoder(nn.Module):
    """The decoder of Bahdanau et al. (2015): it looks at the source with s_{t-1}, then takes its step to s_t.

    Args:
        vocabulary: the number of target words.
        embedding: the width of a word's embedding, and of the hidden layer before the logits.
        hidden: the width of the state s.
        encoder: the encoder that it will look at (its widths are read, it is not kept).
        score: compares s_{t-1} with each h_j, such as AdditiveScore(hidden, encoder.width, ...).
        cell: "gru" or "lstm".
        dropout: the share of the entries of embeddings and hidden layer that is dropped in training.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        embedding: int,
        hidden: int,
        encoder: Encoder,
        score: nn.Module,
        cell: Literal["gru", "lstm"] = "gru",
        dropout: float = 0.0,
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.dropout = nn.Dropout(dropout)
        self.cell = CELLS[cell](embedding, encoder.width, hidden=hidden)
        self.bridge = nn.Linear(encoder.hidden, self.cell.states * hidden)  # W_s
        self.attention = Attention(score)
        self.readout = Readout(hidden + embedding + encoder.width, embedding, vocabulary, dropout)

    def remember(self, encoded: Encoded, source_mask: Bool[Tensor, "batch source"]) -> AttentionMemory:
        """All that depends on the source alone.

        The cell wants W c_t with c_t = sum_j a_tj h_j. Since that is sum_j a_tj (W h_j), the product with W
        is done here, once for all positions, instead of in every step.
        """
        keys = self.attention.score.project_keys(encoded.states)
        values = self.cell.project(1, encoded.states)  # (batch, source, gates)
        return AttentionMemory(encoded.states, keys, values, source_mask, encoded.first)

    def start(self, memory: AttentionMemory) -> State:
        """s_0 = tanh(W_s backward h_1) (appendix A.2.2); an LSTM's first cell is made in the same way."""
        return torch.tanh(self.bridge(memory.first)).chunk(self.cell.states, dim=-1)

    def unroll(
        self, gates: Float[Tensor, "batch target gates"], state: State, memory: AttentionMemory
    ) -> tuple[Float[Tensor, "batch target hidden"], State, Float[Tensor, "batch target source"]]:
        """Takes one step after another, in Bahdanau's order: look with s_{t-1}, then go to s_t.

        Args:
            gates: the share of each E y_{t-1} in the cell's gates.

        Returns:
            All s_t, the last state, and the weights a_t.
        """
        states, rows, constants = [], [], []
        gates = _LaterGradient.apply(gates, memory.values, constants)
        values = memory.values.detach()
        for embedded in gates.unbind(dim=1):  # (batch, gates)
            query = state[0][:, None]  # s_{t-1}: (batch, 1, hidden)
            context, weights = self.attention(query, memory.keys, values, memory.mask)  # (5), (6)
            state = self.cell(embedded + context.squeeze(1), state)  # s_t = f(s_{t-1}, y_{t-1}, c_t)
            states.append(state[0])
            rows.append(weights)
            constants.append(weights.detach())
        return torch.stack(states, dim=1), state, torch.cat(rows, dim=1)

    def forward(
        self, tokens: Int[Tensor, "batch target"], state: State, memory: AttentionMemory
    ) -> tuple[Float[Tensor, "batch target vocabulary"], State, Float[Tensor, "batch target source"]]:
        """Reads the target words y_{t-1}: the logits of the y_t, the last state, and the weights."""
        embedded = self.dropout(self.embedding(tokens))  # (batch, target, embedding)
        states, state, weights = self.unroll(self.cell.project(0, embedded), state, memory)
        contexts = torch.bmm(weights, memory.states)  # (5) c_t of all steps: (batch, target, width)
        return self.readout(torch.cat([states, embedded, contexts], dim=-1)), state, weights  # (4)


class VectorMemory(NamedTuple):
    """All that a decoder without attention knows of the source."""

    vector: Float[Tensor, "batch hidden"]


class VectorDecoder(nn.Module):
    """A decoder that knows one vector of the source, reads it at every step and again in the output layer.

    That is the decoder of Cho et al. (2014). Nothing that it computes is fed back but the state, so one call
    of nn.GRU runs all steps.

    Args: as AttentionDecoder's.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        embedding: int,
        hidden: int,
        encoder: Encoder,
        cell: Literal["gru", "lstm"] = "gru",
        dropout: float = 0.0,
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.dropout = nn.Dropout(dropout)
        self.rnn = RNNS[cell](embedding + encoder.hidden, hidden, batch_first=True)
        self.bridge = nn.Linear(encoder.hidden, CELLS[cell].states * hidden)
        self.readout = Readout(hidden + embedding + encoder.hidden, embedding, vocabulary, dropout)

    def remember(self, encoded: Encoded, source_mask: Bool[Tensor, "batch source"]) -> VectorMemory:
        """The one vector: the state of the encoder when it has read the whole sentence."""
        return VectorMemory(encoded.first)

    def start(self, memory: VectorMemory) -> State:
        """s_0 = tanh(W_s vector)."""
        return torch.tanh(self.bridge(memory.vector)).split(self.rnn.hidden_size, dim=-1)

    def forward(
        self, tokens: Int[Tensor, "batch target"], state: State, memory: VectorMemory
    ) -> tuple[Float[Tensor, "batch target vocabulary"], State, None]:
        """Reads the target words y_{t-1}: the logits of the y_t and the last state (there are no weights)."""
        embedded = self.dropout(self.embedding(tokens))  # (batch, target, embedding)
        vector = memory.vector[:, None].expand(-1, tokens.shape[1], -1)  # (batch, target, hidden)
        states, state = run_fused(self.rnn, torch.cat([embedded, vector], dim=-1), state)
        return self.readout(torch.cat([states, embedded, vector], dim=-1)), state, None


class Seq2Seq(nn.Module):
    """An encoder and a decoder, as one translation model.

    Args:
        encoder: source tokens and their mask to Encoded.
        decoder: a module with `remember(encoded, source_mask) -> memory`, `start(memory) -> state` and
            `forward(tokens, state, memory) -> (logits, state, weights)` for any number of tokens.
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def encode(self, source: Int[Tensor, "batch source"], source_mask: Bool[Tensor, "batch source"]) -> tuple:
        """What the decoder may look at, computed once a sentence."""
        return self.decoder.remember(self.encoder(source, source_mask), source_mask)

    def start(self, memory: tuple) -> State:
        """The decoder's state before the first word."""
        return self.decoder.start(memory)

    def step(self, token: Int[Tensor, "batch"], state: State, memory: tuple) -> StepOutput:
        """Reads one word of each row and gives the logits of the next one."""
        logits, state, weights = self.decoder(token[:, None], state, memory)
        return StepOutput(logits[:, 0], state, None if weights is None else weights[:, 0])

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        target_in: Int[Tensor, "batch target"],
    ) -> Output:
        """The logits of every next word when the target is known (teacher forcing), and the weights."""
        memory = self.encode(source, source_mask)
        logits, _, weights = self.decoder(target_in, self.start(memory), memory)
        return Output(logits, weights)


def bahdanau(
    source_size: int,
    target_size: int,
    *,
    embedding: int = 128,
    hidden: int = 128,
    encoder_hidden: int = 128,
    attention: int = 96,
    cell: Literal["gru", "lstm"] = "gru",
    score: nn.Module | None = None,
    dropout: float = 0.0,
) -> Seq2Seq:
    """The attentional model of Bahdanau et al. (2015): bidirectional encoder, additive score with s_{t-1}.

    Args:
        source_size, target_size: the numbers of words in the two vocabularies.
        embedding: the width of the embeddings.
        hidden: the width of the decoder's state.
        encoder_hidden: the width of the encoder's state in each direction; h_j is twice as wide.
        attention: the width inside the additive score.
        cell: "gru" (the paper's) or "lstm".
        score: another score of queries of width `hidden` against keys of width 2 x `encoder_hidden`.
        dropout: the share of entries that is dropped in training (embeddings, and before the logits).
    """
    encoder = Encoder(source_size, embedding=embedding, hidden=encoder_hidden, cell=cell, dropout=dropout)
    decoder = AttentionDecoder(
        target_size,
        embedding=embedding,
        hidden=hidden,
        encoder=encoder,
        score=score or AdditiveScore(hidden, encoder.width, attention),
        cell=cell,
        dropout=dropout,
    )
    # With PyTorch's own standard deviation of 1, the words' embeddings outweigh what the states say about
    # them, and the score is slow to find the words that belong together: after 600 steps on the grammar
    # corpus an alignment error rate of 0.33 against 0.10 with 0.5. (fixed_vector has no score, and learns
    # best with 1.)
    for part in (encoder, decoder):
        nn.init.normal_(part.embedding.weight, std=0.5)
    return Seq2Seq(encoder, decoder)


def fixed_vector(
    source_size: int,
    target_size: int,
    *,
    embedding: int = 128,
    hidden: int = 256,
    cell: Literal["gru", "lstm"] = "gru",
    reverse: bool = True,
    dropout: float = 0.0,
) -> Seq2Seq:
    """The best of the models that squeeze the source into one vector.

    The source is read from its end (Sutskever et al. 2014), inside the model; the vector is fed at every step
    and to the output layer (Cho et al. 2014).

    Args:
        source_size, target_size: the numbers of words in the two vocabularies.
        embedding: the width of the embeddings.
        hidden: the width of the vector and of the decoder's state.
        cell: "gru" or "lstm".
        reverse: False reads the source from its start.
        dropout: the share of entries that is dropped in training (embeddings, and before the logits).
    """
    one_way = {"bidirectional": False, "reverse": reverse}
    encoder = Encoder(source_size, embedding=embedding, hidden=hidden, cell=cell, **one_way, dropout=dropout)
    decoder = VectorDecoder(
        target_size, embedding=embedding, hidden=hidden, encoder=encoder, cell=cell, dropout=dropout
    )
    return Seq2Seq(encoder, decoder)
