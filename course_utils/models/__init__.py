"""The models of the course and what they are made of."""

from course_utils.models.attention import (
    AdditiveScore,
    Attention,
    DotScore,
    GeneralScore,
    LocationScore,
    MultiHeadAttention,
    masked_softmax,
    scaled_dot_product,
)
from course_utils.models.luong import LocalAttention, LuongDecoder, luong
from course_utils.models.masks import causal_mask, padding_mask, prefix_mask, window_mask
from course_utils.models.positions import rotary, sinusoidal
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
from course_utils.models.transformer import Block, Stack, Transformer

__all__ = [
    "AdditiveScore",
    "Attention",
    "AttentionDecoder",
    "Block",
    "DotScore",
    "Encoder",
    "Gates",
    "GeneralScore",
    "LocalAttention",
    "LocationScore",
    "LuongDecoder",
    "MultiHeadAttention",
    "Output",
    "Recurrent",
    "Seq2Seq",
    "SplitGRUCell",
    "SplitLSTMCell",
    "Stack",
    "StepOutput",
    "Transformer",
    "VectorDecoder",
    "bahdanau",
    "causal_mask",
    "fixed_vector",
    "forget_bias_",
    "gates_of",
    "identity_",
    "long_memory_",
    "luong",
    "masked_softmax",
    "orthogonal_",
    "padding_mask",
    "prefix_mask",
    "rotary",
    "scaled_dot_product",
    "sinusoidal",
    "window_mask",
]
