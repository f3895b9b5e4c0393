"""Where a lesson runs: the device, the seeds, the scale, and the line that says so."""

import contextlib
import importlib.util
import os
import platform
import random
from contextlib import AbstractContextManager
from typing import Literal, TypeVar, get_args

import numpy as np
import torch

Scale = Literal["class", "full"]
Precision = Literal["bf16", "fp16"]
T = TypeVar("T")

_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


def device() -> torch.device:
    """The fastest device here: a CUDA GPU, else Apple's GPU (mps), else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def seed(value: int) -> torch.Generator:
    """Seeds Python, numpy and torch (all devices), and returns a CPU generator with the same seed.

    Draw samples from the returned generator, on the CPU, and move them: then a seed means the same
    numbers on every device.
    """
    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)
    return torch.Generator().manual_seed(value)


def scale() -> Scale:
    """The scale of this run, from the environment variable COURSE_SCALE: "class" (the default) or "full".

    Raises:
        ValueError: COURSE_SCALE is set to anything else.
    """
    value = os.environ.get("COURSE_SCALE") or "class"
    if value not in get_args(Scale):
        raise ValueError(
            f"COURSE_SCALE is {value!r}, but it must be 'class' (small, for two CPU cores) or 'full' "
            "(for one GPU). Set it to one of the two, or leave it out for 'class', and restart the kernel."
        )
    return value


def by_scale(*, class_: T, full: T) -> T:
    """`class_` at class scale and `full` at full scale, as in `steps = by_scale(class_=600, full=20_000)`."""
    return {"class": class_, "full": full}[scale()]


def on_colab() -> bool:
    """Whether this is a Google Colab runtime."""
    if "COLAB_RELEASE_TAG" in os.environ:
        return True
    try:
        return importlib.util.find_spec("google.colab") is not None
    except ModuleNotFoundError:  # no package named google at all
        return False


def under_test() -> bool:
    """Whether nobody watches: in continuous integration, under pytest or nbval, or with COURSE_QUIET=1.

    Progress bars are silent then, so that stored outputs stay the same from run to run.
    """
    quiet = os.environ.get("COURSE_QUIET", "") not in ("", "0")
    ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return quiet or ci or "PYTEST_CURRENT_TEST" in os.environ


def start(lesson: str, needs: str | None = None) -> torch.device:
    """Opens a lesson: prints one line with its device, scale and versions, and returns the device.

    On Colab it also enables custom widgets. Without a GPU a second line says what will take longer.

    On a CPU it sets torch to one thread, unless OMP_NUM_THREADS says otherwise: the models of the lessons are
    too small to gain from more, and threads that wait for one another on a busy machine lose a lot (two
    threads beside one other process on two cores trained 10 to 30 times slower than one).

    Args:
        lesson: the lesson's number, such as "04".
        needs: what a GPU would be wanted for, such as "training the two models"; None for a lesson in which
            nothing takes long.

    Raises:
        ValueError: COURSE_SCALE names no scale.
    """
    chosen, size = device(), scale()
    if on_colab():
        _enable_widgets()
    name = torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else chosen.type
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}"
    print(f"Lesson {lesson} | device: {name} | scale: {size} | {versions}")
    if chosen.type == "cpu":
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(1)
        if needs:
            longer = {
                "class": "a minute or two",
                "full": "hours; COURSE_SCALE=class is made for this machine",
            }
            print(f"No GPU here, which is fine: everything runs, only {needs} takes {longer[size]}.")
    return chosen


def _enable_widgets() -> None:
    from google.colab import output

    output.enable_custom_widget_manager()


def autocast(device: torch.device | str, precision: Precision | None) -> AbstractContextManager:
    """Mixed precision for training on CUDA; a context that does nothing for None and on other devices.

    float16 has a narrow range of exponents, so "fp16" wants a gradient scaler beside it; "bf16" does not.

    Raises:
        ValueError: `precision` is neither None nor "bf16" nor "fp16".
    """
    if precision is not None and precision not in _HALF:
        raise ValueError(f"precision is {precision!r}, but it must be None (float32), 'bf16' or 'fp16'.")
    if precision is None or torch.device(device).type != "cuda":
        return contextlib.nullcontext()
    return torch.autocast("cuda", dtype=_HALF[precision])
