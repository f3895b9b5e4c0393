"""Padded batches of sentence pairs, bucketed by length."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from course_utils.corpus.pairs import Pair
from course_utils.corpus.text import BOS, EOS, PAD, Vocabulary, shortened


@dataclass(frozen=True)
class Batch:
    """Sentence pairs as rows of word numbers, filled up with PAD on the right.

    A source row is its words and EOS. A target of words w1..wn is fed to the decoder as
    `target_in` = BOS w1..wn and expected from it as `target_out` = w1..wn EOS; both share
    `target_mask`. Masks are True on real tokens. `pairs` are the same sentences as words.
    """

    source: Int64[Tensor, "batch source"]
    source_mask: Bool[Tensor, "batch source"]
    target_in: Int64[Tensor, "batch target"]
    target_out: Int64[Tensor, "batch target"]
    target_mask: Bool[Tensor, "batch target"]
    pairs: list[Pair]

    @property
    def target_tokens(self) -> int:
        """Real tokens that the decoder has to predict, EOS included (counted without asking the device)."""
        return sum(len(pair.target) + 1 for pair in self.pairs)

    def to(self, device: torch.device | str) -> "Batch":
        """The batch on `device`; from pinned memory the copy to a GPU runs beside the computation."""
        # Only towards CUDA: a non-blocking copy to the CPU may be read before it has arrived.
        non_blocking = torch.device(device).type == "cuda"
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Batch":
        """The batch in page-locked memory where there is CUDA, else the batch itself."""
        return self._map(Tensor.pin_memory) if torch.cuda.is_available() else self

    def _map(self, function) -> "Batch":
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **{name: function(tensor) for name, tensor in tensors.items()})


class _Encoded:
    """Sentences as word numbers in one flat tensor: encoded once, padded by indexing ever after."""

    def __init__(self, sentences: list[list[int]]):
        lengths = [len(sentence) for sentence in sentences]
        self.lengths = torch.tensor(lengths)
        self.starts = self.lengths.cumsum(0) - self.lengths
        self.ids = torch.from_numpy(np.fromiter(chain.from_iterable(sentences), np.int64))

    def rows(
        self, index: Int64[Tensor, " batch"]
    ) -> tuple[Int64[Tensor, "batch length"], Bool[Tensor, "batch length"]]:
        """The sentences of these indices, as long as the longest of them, and the mask of real tokens."""
        lengths = self.lengths[index][:, None]  # (batch, 1)
        place = torch.arange(int(lengths.max()))  # (length,)
        ids = self.ids[(self.starts[index][:, None] + place).clamp_(max=len(self.ids) - 1)]
        mask = place < lengths  # (batch, length)
        return ids.masked_fill_(~mask, PAD), mask


def _encode(
    pairs: Sequence[Pair], source_vocabulary: Vocabulary, target_vocabulary: Vocabulary
) -> tuple[_Encoded, _Encoded]:
    if not pairs:
        raise ValueError("no pairs to make a batch of; give at least one")
    source = _Encoded([[*source_vocabulary.encode(pair.source), EOS] for pair in pairs])
    target = _Encoded([[BOS, *target_vocabulary.encode(pair.target), EOS] for pair in pairs])
    return source, target


def _assemble(source: _Encoded, target: _Encoded, index: Tensor, pairs: list[Pair]) -> Batch:
    source_ids, source_mask = source.rows(index)
    target_ids, target_mask = target.rows(index)
    target_mask = target_mask[:, 1:].contiguous()
    return Batch(
        source=source_ids,
        source_mask=source_mask,
        target_in=target_ids[:, :-1].masked_fill(~target_mask, PAD),  # takes EOS off the shorter rows
        target_out=target_ids[:, 1:].contiguous(),
        target_mask=target_mask,
        pairs=pairs,
    )


def make_batch(pairs: Sequence[Pair], source_vocabulary: Vocabulary, target_vocabulary: Vocabulary) -> Batch:
    """One batch of all `pairs`, in their order, on the CPU. Raises ValueError where there is none."""
    source, target = _encode(pairs, source_vocabulary, target_vocabulary)
    return _assemble(source, target, torch.arange(len(pairs)), list(pairs))


class Batches:
    """All pairs, once an epoch, in batches of like lengths.

    A batch has at most `max_tokens` tokens, padding and EOS included: rows x (source width + target
    width). Pairs are sorted by their lengths, in random order within equal lengths, and cut into batches,
    which come in random order. Since the sorted lengths are the same in each epoch, so is the number of
    batches, `len(batches)`. The order depends on `seed` and the epoch alone, not on the device or on
    what was drawn before. `shuffle=False` keeps one order for all epochs, from short to long.

    `epoch(k)` iterates over epoch k; plain iteration is epoch 0. Where there is CUDA, batches come in pinned
    memory. Raises ValueError for a pair longer than `max_tokens`, naming it.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        source_vocabulary: Vocabulary,
        target_vocabulary: Vocabulary,
        *,
        max_tokens: int,
        seed: int = 0,
        shuffle: bool = True,
    ):
        self.pairs, self.max_tokens, self.seed, self.shuffle = list(pairs), max_tokens, seed, shuffle
        self._source, self._target = _encode(self.pairs, source_vocabulary, target_vocabulary)
        # Widths in a batch: the words and EOS on either side (a target holds BOS too, which no row keeps).
        self._widths = torch.stack([self._source.lengths, self._target.lengths - 1], dim=1)  # (pairs, 2)
        self._check_lengths()
        self._sizes = self._cut(self._widths[self._sorted(torch.arange(len(self.pairs)))].tolist())

    def _check_lengths(self) -> None:
        tokens, worst = self._widths.sum(1).max(0)
        if tokens > self.max_tokens:
            too_long = int((self._widths.sum(1) > self.max_tokens).sum())
            source, target = (" ".join(words) for words in self.pairs[worst][:2])
            raise ValueError(
                f"pair {int(worst)} has {int(tokens)} tokens (both sides, an EOS each), more than max_tokens="
                f"{self.max_tokens}: {shortened(source)!r} / {shortened(target)!r}; {too_long} of "
                f"{len(self.pairs)} pairs are too long. Raise max_tokens to {int(tokens)} or leave them out."
            )

    def _sorted(self, order: Int64[Tensor, " pairs"]) -> Int64[Tensor, " pairs"]:
        """`order` sorted by source length, then target length; equal lengths keep their order."""
        source, target = self._widths[order].unbind(1)
        return order[torch.argsort(source * (int(target.max()) + 1) + target, stable=True)]

    def _cut(self, widths: list[list[int]]) -> list[int]:
        """Rows of each batch, so that rows x (widest source + widest target) stays within max_tokens."""
        sizes, rows, widest = [], 0, (0, 0)
        for source, target in widths:
            wider = max(widest[0], source), max(widest[1], target)
            if rows and (rows + 1) * sum(wider) > self.max_tokens:
                sizes.append(rows)
                rows, wider = 0, (source, target)
            rows, widest = rows + 1, wider
        return [*sizes, rows]

    def __len__(self) -> int:
        """Batches an epoch."""
        return len(self._sizes)

    def __iter__(self) -> Iterator[Batch]:
        return self.epoch(0)

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch (0, 1, ...), the same at every call."""
        order = torch.arange(len(self.pairs))
        turn = torch.arange(len(self))
        if self.shuffle:
            generator = self._generator(number)
            order = torch.randperm(len(order), generator=generator)
            turn = torch.randperm(len(turn), generator=generator)
        groups = self._sorted(order).split(self._sizes)
        for batch in turn.tolist():
            index = groups[batch]
            pairs = [self.pairs[i] for i in index.tolist()]
            yield _assemble(self._source, self._target, index, pairs).pin_memory()

    def _generator(self, epoch: int) -> torch.Generator:
        """A generator on the CPU whose stream belongs to (seed, epoch): neighbours have unrelated streams."""
        state = np.random.SeedSequence((self.seed, epoch)).generate_state(1, np.uint64)[0]
        return torch.Generator().manual_seed(int(state) >> 1)
