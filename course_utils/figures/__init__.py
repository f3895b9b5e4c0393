"""The pictures of the course: built from plain numbers, described in words, shown once.

Every public drawing function shows one output: the picture, with an alt text made from the same numbers. Its
`build` does the drawing alone and returns `(figure, alt)`: `figures.lines.build(...)`.
"""

from course_utils.figures.after import softmax_in_blocks, tasks_diagram, timeline
from course_utils.figures.attention import (
    END,
    MAX_WORDS,
    attention_diagram,
    attention_matrices,
    attention_matrix,
    word_weights,
)
from course_utils.figures.bars import bars, shares
from course_utils.figures.base import GOLD, PALETTE, contrast, image, png, readable_on, shade, show, style
from course_utils.figures.curves import curve, lines, quality_by_length
from course_utils.figures.gates import gru_diagram, lstm_diagram
from course_utils.figures.luong import feeding_diagram, order_diagram, windows_on_source
from course_utils.figures.recurrence import unrolled_diagram, windows_diagram
from course_utils.figures.self_attention import heads_by_reshape, mask_grids, self_attention_diagram
from course_utils.figures.seq2seq import beam_tree, bottleneck_diagram, forcing_diagram
from course_utils.figures.strips import heat_strips, strip_png, strips_alt, strips_key
from course_utils.figures.transformer import cache_diagram, norm_orders_diagram, transformer_diagram

__all__ = [
    "END",
    "GOLD",
    "MAX_WORDS",
    "PALETTE",
    "attention_diagram",
    "attention_matrices",
    "attention_matrix",
    "bars",
    "beam_tree",
    "bottleneck_diagram",
    "cache_diagram",
    "contrast",
    "curve",
    "feeding_diagram",
    "forcing_diagram",
    "gru_diagram",
    "heads_by_reshape",
    "heat_strips",
    "image",
    "lines",
    "lstm_diagram",
    "mask_grids",
    "norm_orders_diagram",
    "order_diagram",
    "png",
    "quality_by_length",
    "readable_on",
    "self_attention_diagram",
    "shade",
    "shares",
    "show",
    "softmax_in_blocks",
    "strip_png",
    "strips_alt",
    "strips_key",
    "style",
    "tasks_diagram",
    "timeline",
    "transformer_diagram",
    "unrolled_diagram",
    "windows_diagram",
    "windows_on_source",
    "word_weights",
]
