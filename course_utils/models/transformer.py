"""The Transformer (Vaswani et al. 2017): one stack of blocks, for an encoder, a decoder, or a model alone."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_utils.models.attention import MultiHeadAttention
from course_utils.models.masks import causal_mask
from course_utils.models.positions import sinusoidal
from course_utils.models.seq2seq import Output, StepOutput

KeysValues = tuple[Tensor, Tensor]  # each (batch, heads, length, width of a head)


class Block(nn.Module):
    """Self-attention, attention to another sequence where there is one, and a feed-forward network.

    Each stands in a residual connection with a layer norm: after the sum in the paper ("post"), before the
    sublayer in most code since ("pre"; Xiong et al. 2020).

    Args:
        width: of the states.
        heads: of each attention.
        inner: the width inside the feed-forward network.
        cross: whether it attends to another sequence.
        norm: "pre" or "post".
        rotary: turn queries and keys by their positions.
        key_heads: as in MultiHeadAttention.
        dropout: the share of each sublayer's output that is dropped in training.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        *,
        cross: bool = False,
        norm: Literal["pre", "post"] = "pre",
        rotary: bool = False,
        key_heads: int | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.norm_first = norm == "pre"
        self.attention = MultiHeadAttention(width, heads, rotary=rotary, key_heads=key_heads)
        self.cross = MultiHeadAttention(width, heads, rotary=rotary, key_heads=key_heads) if cross else None
        self.feed_forward = nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if cross else 2))
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "batch target width"],
        mask: Bool[Tensor, "..."] | None,
        past: KeysValues | None = None,
        memory: KeysValues | None = None,
        memory_mask: Bool[Tensor, "..."] | None = None,
        with_weights: bool = False,
    ) -> tuple[Float[Tensor, "batch target width"], KeysValues, list[Tensor]]:
        """The new states, the keys and values of all tokens so far, and the weights if they are wanted.

        Args:
            mask: who sees whom, past tokens included; True = may attend.
            past: keys and values of the tokens before x.
            memory: keys and values of the other sequence.
        """
        start = 0 if past is None else past[0].shape[2]
        looked = []

        h = self._enter(0, x)
        seen = _joined(past, self.attention.remember(h, start))
        looked.append(self.attention(h, seen, mask, start=start, with_weights=with_weights))
        x = self._leave(0, x, looked[-1].output)
        if self.cross is not None:
            h = self._enter(1, x)
            looked.append(self.cross(h, memory, memory_mask, start=start, with_weights=with_weights))
            x = self._leave(1, x, looked[-1].output)
        x = self._leave(-1, x, self.feed_forward(self._enter(-1, x)))
        return x, seen, [found.weights for found in looked]

    def _enter(self, sublayer: int, x: Tensor) -> Tensor:
        return self.norms[sublayer](x) if self.norm_first else x

    def _leave(self, sublayer: int, x: Tensor, output: Tensor) -> Tensor:
        x = x + self.dropout(output)
        return x if self.norm_first else self.norms[sublayer](x)


def _joined(past: KeysValues | None, own: KeysValues) -> KeysValues:
    """The cache with the new keys and values behind those of the past."""
    return own if past is None else tuple(torch.cat(pair, dim=2) for pair in zip(past, own, strict=True))


class Stacked(NamedTuple):
    """What a stack of blocks gives."""

    states: Float[Tensor, "batch target width"]
    cache: tuple[Tensor, ...]  # keys and values of each block in turn, each (batch, heads, length, own)
    weights: list[list[Tensor]]  # of each block: its self-attention, its attention to the other sequence


class Stack(nn.Module):
    """Embeddings, positions and blocks.

    Args:
        vocabulary: the number of words.
        width, heads, inner, norm, key_heads, dropout, cross: as in Block.
        layers: how many blocks.
        positions: "sinusoidal" (added to the embeddings, as in the paper), "learned" (added), or "rotary".
        longest: how many positions are learned.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int,
        heads: int,
        inner: int,
        layers: int,
        cross: bool = False,
        norm: Literal["pre", "post"] = "pre",
        positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal",
        longest: int = 512,
        key_heads: int | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)  # sqrt(width) times it has the size of 1
        self.positions = positions
        self.learned = nn.Embedding(longest, width) if positions == "learned" else None
        self.dropout = nn.Dropout(dropout)
        options = {"cross": cross, "norm": norm, "key_heads": key_heads, "dropout": dropout}
        self.blocks = nn.ModuleList(
            Block(width, heads, inner, rotary=positions == "rotary", **options) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width) if norm == "pre" else nn.Identity()  # a post block ends with one

    def forward(
        self,
        tokens: Int[Tensor, "batch target"],
        mask: Bool[Tensor, "..."] | None,
        *,
        cache: tuple[Tensor, ...] = (),
        memory: tuple[Tensor, ...] = (),
        memory_mask: Bool[Tensor, "..."] | None = None,
        with_weights: bool = False,
    ) -> Stacked:
        """Reads tokens that stand behind those of the cache.

        Args:
            mask: who sees whom: (batch, 1, target, seen), or anything that broadcasts against it.
            cache: what an earlier call gave.
            memory: keys and values of the other sequence, two for each block.
        """
        x = self._embed(tokens, cache[0].shape[2] if cache else 0)
        kept: list[Tensor] = []
        weights = []
        for i, block in enumerate(self.blocks):
            past, other = cache[2 * i : 2 * i + 2] or None, memory[2 * i : 2 * i + 2] or None
            x, seen, looked = block(x, mask, past, other, memory_mask, with_weights)
            kept += seen
            weights.append(looked)
        return Stacked(self.norm(x), tuple(kept), weights)

    def _embed(self, tokens: Int[Tensor, "batch target"], start: int) -> Float[Tensor, "batch target width"]:
        x = self.embedding(tokens) * self.embedding.embedding_dim**0.5  # (section 3.4)
        places = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        if self.positions == "sinusoidal":
            x = x + sinusoidal(places, x.shape[-1]).to(x.dtype)
        elif self.learned is not None:
            x = x + self.learned(places)
        return self.dropout(x)


class Transformer(nn.Module):
    """Encoder and decoder as one translation model, with the four methods of every such model of the course.

    The output layer shares its matrix with the target's embeddings (section 3.4).

    Args:
        source_size, target_size: the numbers of words in the two vocabularies.
        width, heads, inner, norm, positions, dropout: as in Stack.
        layers: how many blocks, in the encoder and in the decoder.
    """

    def __init__(
        self,
        source_size: int,
        target_size: int,
        *,
        width: int = 128,
        heads: int = 4,
        inner: int = 256,
        layers: int = 2,
        norm: Literal["pre", "post"] = "pre",
        positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal",
        dropout: float = 0.0,
    ):
        super().__init__()
        options = {
            "width": width, "heads": heads, "inner": inner, "layers": layers, "norm": norm,
            "positions": positions, "dropout": dropout,
        }  # fmt: skip
        self.encoder = Stack(source_size, **options)
        self.decoder = Stack(target_size, cross=True, **options)
        self.bias = nn.Parameter(torch.zeros(target_size))

    def encode(
        self, source: Int[Tensor, "batch source"], source_mask: Bool[Tensor, "batch source"]
    ) -> tuple[Tensor, ...]:
        """The mask, and the keys and values that each block of the decoder will look at."""
        states = self.encoder(source, source_mask[:, None, None]).states
        pairs = [block.cross.remember(states) for block in self.decoder.blocks]
        return source_mask, *(tensor for pair in pairs for tensor in pair)

    def start(self, memory: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The empty cache."""
        return tuple(tensor[:, :, :0] for tensor in memory[1:])

    def step(
        self, token: Int[Tensor, "batch"], state: tuple[Tensor, ...], memory: tuple[Tensor, ...]
    ) -> StepOutput:
        """Reads one word of each row, and looks at all words before it through the cache."""
        decoded = self._decode(token[:, None], None, memory, cache=state, with_weights=True)
        return StepOutput(self._logits(decoded)[:, 0], decoded.cache, _cross_weights(decoded)[:, 0])

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        target_in: Int[Tensor, "batch target"],
    ) -> Output:
        """The logits of every next word at once, and outside training the weights (see `weights`)."""
        mask = causal_mask(target_in.shape[1], target_in.device)
        decoded = self._decode(
            target_in, mask, self.encode(source, source_mask), with_weights=not self.training
        )
        return Output(self._logits(decoded), None if self.training else _cross_weights(decoded))

    def _decode(self, tokens, mask, memory, **options) -> Stacked:
        source_mask, *keys_values = memory
        return self.decoder(
            tokens, mask, memory=tuple(keys_values), memory_mask=source_mask[:, None, None], **options
        )

    def _logits(self, decoded: Stacked) -> Float[Tensor, "batch target vocabulary"]:
        return nn.functional.linear(decoded.states, self.decoder.embedding.weight, self.bias)


def _cross_weights(decoded: Stacked) -> Float[Tensor, "batch target source"]:
    """One matrix for all: the mean over the heads of the last block's attention to the source."""
    return decoded.weights[-1][1].mean(dim=1)
