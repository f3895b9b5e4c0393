"""Controls to play with: thin shells of ipywidgets around functions that need no browser."""

from course_utils.widgets.attention_explorer import attention_explorer
from course_utils.widgets.cache_explorer import cache_explorer
from course_utils.widgets.gate_viewer import gate_viewer
from course_utils.widgets.gradient_flow import gradient_explorer
from course_utils.widgets.head_viewer import head_viewer
from course_utils.widgets.mask_builder import mask_builder
from course_utils.widgets.position_explorer import position_explorer
from course_utils.widgets.score_explorer import score_explorer

__all__ = [
    "attention_explorer",
    "cache_explorer",
    "gate_viewer",
    "gradient_explorer",
    "head_viewer",
    "mask_builder",
    "position_explorer",
    "score_explorer",
]
