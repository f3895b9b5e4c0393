"""The measurements that the lessons make, as plain numbers: on attention, on memory, on time."""

from course_utils.probes.attention import (
    Looks,
    crossed,
    effective_words,
    entropy,
    looks,
    offsets,
    share_on,
)
from course_utils.probes.memory import (
    GradientFlow,
    Learned,
    Recaller,
    fitted_slope,
    gradient_flow,
    gradient_norms,
    learn_recall,
    memory_horizon,
    predicted_slope,
    recall_accuracy,
    recall_batch,
    scale_to_radius_,
    spectral_radius,
)
from course_utils.probes.timing import compare, seconds

__all__ = [
    "GradientFlow",
    "Learned",
    "Looks",
    "Recaller",
    "compare",
    "crossed",
    "effective_words",
    "entropy",
    "fitted_slope",
    "gradient_flow",
    "gradient_norms",
    "learn_recall",
    "looks",
    "memory_horizon",
    "offsets",
    "predicted_slope",
    "recall_accuracy",
    "recall_batch",
    "scale_to_radius_",
    "seconds",
    "share_on",
    "spectral_radius",
]
