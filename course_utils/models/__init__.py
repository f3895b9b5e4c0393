"""The models of the course and what they are made of."""

from course_utils.models.attention import AdditiveScore, Attention, masked_softmax
from course_utils.models.masks import padding_mask
from course_utils.models.recurrent import (
    Gates,
    Recurrent,
    SplitGRUCell,
    SplitLSTMCell,
    forget_bias_,
    gates_of,
    identity_,
    long_memory_,
    orthogonal_,
)
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
    "Gates",
    "Output",
    "Recurrent",
    "Seq2Seq",
    "SplitGRUCell",
    "SplitLSTMCell",
    "StepOutput",
    "VectorDecoder",
    "bahdanau",
    "fixed_vector",
    "forget_bias_",
    "gates_of",
    "identity_",
    "long_memory_",
    "masked_softmax",
    "orthogonal_",
    "padding_mask",
]
