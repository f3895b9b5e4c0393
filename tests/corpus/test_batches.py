from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_utils.corpus.batches import Batch, Batches, make_batch
from course_utils.corpus.pairs import Pair
from course_utils.corpus.text import BOS, EOS, PAD, UNK, Vocabulary

SOURCE = Vocabulary(["a", "b", "c"])
TARGET = Vocabulary(["v", "w", "x", "y", "z"])

pairs_strategy = st.lists(
    st.builds(
        Pair,
        st.lists(st.sampled_from("abc?"), max_size=9).map(tuple),
        st.lists(st.sampled_from("vwxyz"), max_size=9).map(tuple),
    ),
    min_size=1,
    max_size=30,
)


def fixed_pairs(count: int = 200) -> list[Pair]:
    """Pairs of lengths 1 to 9, no two alike."""
    generator = torch.Generator().manual_seed(5)
    pairs = set()
    while len(pairs) < count:
        lengths = torch.randint(1, 10, (2,), generator=generator).tolist()
        source, target = (
            "".join("abcvw"[i] for i in torch.randint(3, (n,), generator=generator)) for n in lengths
        )
        pairs.add(Pair(tuple(source), tuple(target.translate(str.maketrans("abc", "vwx")))))
    return sorted(pairs)


def test_one_batch_by_hand():
    batch = make_batch([Pair(("a", "?"), ("w",)), Pair(("c",), ("x", "y", "z"))], SOURCE, TARGET)
    assert batch.source.tolist() == [[4, UNK, EOS], [6, EOS, PAD]]
    assert batch.source_mask.tolist() == [[True, True, True], [True, True, False]]
    assert batch.target_in.tolist() == [[BOS, 5, PAD, PAD], [BOS, 6, 7, 8]]
    assert batch.target_out.tolist() == [[5, EOS, PAD, PAD], [6, 7, 8, EOS]]
    assert batch.target_mask.tolist() == [[True, True, False, False], [True, True, True, True]]
    assert batch.target_tokens == 6


def check_batch(batch: Batch) -> None:
    """A batch says on its own, row by row, what its pairs say."""
    for row, pair in enumerate(batch.pairs):
        source = batch.source[row][batch.source_mask[row]].tolist()
        assert source == [*SOURCE.encode(pair.source), EOS]
        mask = batch.target_mask[row]
        assert batch.target_in[row][mask].tolist() == [BOS, *TARGET.encode(pair.target)]
        assert batch.target_out[row][mask].tolist() == [*TARGET.encode(pair.target), EOS]
    for ids, mask in (
        (batch.source, batch.source_mask),
        (batch.target_in, batch.target_mask),
        (batch.target_out, batch.target_mask),
    ):
        assert ids.dtype == torch.int64 and mask.dtype == torch.bool
        assert ids.shape == mask.shape
        assert (ids[~mask] == PAD).all()
        assert mask.any(0).all(), "no column is all padding"
        assert (mask.int().diff(dim=1) <= 0).all(), "padding is on the right only"
    assert batch.target_tokens == int(batch.target_mask.sum())


@given(pairs=pairs_strategy, max_tokens=st.integers(20, 200), seed=st.integers(0, 5), epoch=st.integers(0, 3))
def test_every_pair_once_an_epoch_within_the_bound(pairs, max_tokens, seed, epoch):
    batches = Batches(pairs, SOURCE, TARGET, max_tokens=max_tokens, seed=seed)
    epoch_batches = list(batches.epoch(epoch))
    assert len(epoch_batches) == len(batches)
    assert Counter(pair for batch in epoch_batches for pair in batch.pairs) == Counter(pairs)
    for batch in epoch_batches:
        assert batch.source.numel() + batch.target_in.numel() <= max_tokens
        check_batch(batch)


def order(batches: Batches, epoch: int) -> list[list[Pair]]:
    return [batch.pairs for batch in batches.epoch(epoch)]


def test_the_order_depends_on_seed_and_epoch_alone():
    first = Batches(fixed_pairs(), SOURCE, TARGET, max_tokens=100, seed=1)
    second = Batches(fixed_pairs(), SOURCE, TARGET, max_tokens=100, seed=1)
    torch.manual_seed(0)
    third_epoch = order(first, 3)
    torch.manual_seed(99)
    assert order(second, 0) == order(first, 0)
    assert order(second, 3) == third_epoch
    assert [batch.pairs for batch in second] == order(first, 0), "plain iteration is epoch 0"
    assert order(first, 0) != order(first, 1)
    other = Batches(fixed_pairs(), SOURCE, TARGET, max_tokens=100, seed=2)
    assert order(other, 0) != order(first, 0)
    # (seed 1, epoch 2) must not be (seed 2, epoch 1), as sums of the two would have it.
    assert order(other, 1) != order(first, 2)


def test_the_global_generator_is_left_alone():
    batches = Batches(fixed_pairs(), SOURCE, TARGET, max_tokens=100)
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    list(batches.epoch(7))
    assert torch.equal(torch.rand(4), expected)


def test_epochs_mix_batches_and_their_order():
    batches = Batches(fixed_pairs(), SOURCE, TARGET, max_tokens=60)
    first, second = ({frozenset(pairs) for pairs in order(batches, epoch)} for epoch in (0, 1))
    assert first != second, "some batches have other members"
    widths = [batch.source.shape[1] for batch in batches]
    assert widths != sorted(widths), "lengths come in random order"


def test_without_shuffling_from_short_to_long():
    batches = Batches(fixed_pairs(), SOURCE, TARGET, max_tokens=100, shuffle=False)
    lengths = [len(pair.source) for batch in batches for pair in batch.pairs]
    assert lengths == sorted(lengths)
    assert order(batches, 0) == order(batches, 1)


def test_little_is_padding():
    """Like lengths share a batch: less padding by far than in batches of chance."""
    pairs = fixed_pairs(600)
    bucketed = list(Batches(pairs, SOURCE, TARGET, max_tokens=200))
    size = -(-len(pairs) // len(bucketed))
    chance = [make_batch(pairs[i : i + size], SOURCE, TARGET) for i in range(0, len(pairs), size)]

    def padding(batches):
        return sum(int((~b.source_mask).sum() + (~b.target_mask).sum()) for b in batches)

    assert padding(bucketed) < padding(chance) / 2


def test_a_pair_beyond_the_bound_is_named():
    pairs = [Pair(("a",), ("v",)), Pair(("b",) * 9, ("w",) * 8), Pair(("b",) * 8, ("w",) * 8)]
    with pytest.raises(ValueError) as error:
        Batches(pairs, SOURCE, TARGET, max_tokens=17)
    message = str(error.value)
    for part in ("pair 1", "19 tokens", "max_tokens=17", "b b b", "2 of 3 pairs", "Raise max_tokens to 19"):
        assert part in message
    assert len(Batches(pairs, SOURCE, TARGET, max_tokens=19)) == 3


def test_no_pairs_is_an_error():
    with pytest.raises(ValueError, match="no pairs"):
        make_batch([], SOURCE, TARGET)
    with pytest.raises(ValueError, match="no pairs"):
        Batches([], SOURCE, TARGET, max_tokens=10)


def test_moving_a_batch_keeps_its_pairs():
    batch = make_batch(fixed_pairs(4), SOURCE, TARGET)
    moved = batch.to("meta")
    assert moved.pairs == batch.pairs
    assert moved.target_tokens == batch.target_tokens
    for name in ("source", "source_mask", "target_in", "target_out", "target_mask"):
        assert getattr(moved, name).device.type == "meta"
        assert getattr(moved, name).shape == getattr(batch, name).shape


def test_memory_is_pinned_where_there_is_cuda_only():
    batch = next(iter(Batches(fixed_pairs(4), SOURCE, TARGET, max_tokens=100)))
    tensors = (batch.source, batch.source_mask, batch.target_in, batch.target_out, batch.target_mask)
    assert all(tensor.is_pinned() == torch.cuda.is_available() for tensor in tensors)


def test_pairs_are_encoded_once(monkeypatch):
    batches = Batches(fixed_pairs(), SOURCE, TARGET, max_tokens=100)

    def encode(self, tokens):
        raise AssertionError("encoded again")

    monkeypatch.setattr(Vocabulary, "encode", encode)
    assert sum(len(batch.pairs) for batch in batches.epoch(1)) == 200
