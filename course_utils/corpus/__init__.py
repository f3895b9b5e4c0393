"""Sentence pairs to learn from: made by a grammar with gold alignments, or real text."""

from course_utils.corpus import grammar
from course_utils.corpus.batches import Batch, Batches, make_batch
from course_utils.corpus.pairs import Corpus, Pair, split
from course_utils.corpus.real import emoji_names, from_file, multi30k, tatoeba
from course_utils.corpus.text import BOS, EOS, PAD, UNK, Vocabulary, detokenise, tokenise

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "Batch",
    "Batches",
    "Corpus",
    "Pair",
    "Vocabulary",
    "detokenise",
    "emoji_names",
    "from_file",
    "grammar",
    "make_batch",
    "multi30k",
    "split",
    "tatoeba",
    "tokenise",
]
