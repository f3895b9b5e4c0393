"""The models of the course and what they are made of."""

from course_utils.models.attention import AdditiveScore, Attention, masked_softmax
from course_utils.models.masks import padding_mask
from course_utils.models.recurrent import SplitGRUCell, SplitLSTMCell
from course_utils.models.seq2seq import (
    AttentionDecoder,
    Encoder,
    Output,
    Seq2Seq,
    StepOutput,
    VectorDecoder,
    bahdanau,
    fixed_vector,
)

__all__ = [
    "AdditiveScore",
    "Attention",
    "AttentionDecoder",
    "Encoder",
    "Output",
    "Seq2Seq",
    "SplitGRUCell",
    "SplitLSTMCell",
    "StepOutput",
    "VectorDecoder",
    "bahdanau",
    "fixed_vector",
    "masked_softmax",
    "padding_mask",
]
