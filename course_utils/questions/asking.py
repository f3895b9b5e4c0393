"""Ask an answer: run a function that somebody wrote on the inputs of an exercise, and take down what it does.

This is all that the process with the answer in it has to know, and it knows no right outputs: the inputs come
from `draw`, and what is taken down goes to `judge`, both in course_utils.checks. In between are plain values
(numpy arrays, numbers, texts, lists, dicts), so that the two sides may be two processes.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import linecache
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from course_utils.questions.limit import TimeUp, within

Inputs = dict[str, Any]
Outputs = dict[str, Any]
Ask = Callable[[Callable, Inputs], Outputs]


@dataclass(frozen=True)
class Question:
    """What has to be known of an exercise to ask an answer to it.

    `ask(answer, inputs)` runs the answer on one case. `seconds` is the time for all cases together.
    """

    id: str
    signature: str
    ask: Ask
    seconds: float = 10.0

    @property
    def function(self) -> str:
        return self.signature.partition("(")[0]


@dataclass(frozen=True)
class Trouble:
    """Why an answer gave no outputs. `kind` is unanswered, raised, stopped, signature or result."""

    kind: str
    message: str
    line: int = 0
    source: str = ""


@dataclass(frozen=True)
class Reply:
    """What an answer gave for one case: outputs or trouble, and what it printed."""

    outputs: Outputs | None = None
    trouble: Trouble | None = None
    printed: str = ""


class WrongSignature(Exception):
    """The answer does not take the arguments of the question."""


class WrongResult(Exception):
    """The answer gave something that is not what the exercise asks for."""


def ask(question: Question, answer: Callable, cases: Sequence[Sequence[Inputs]]) -> list[list[Reply]]:
    """Run `answer` on all cases. It never raises for what the answer does; only a real Ctrl-C gets through.

    All cases together have `question.seconds`. An answer that was stopped, or that is not written yet, is
    asked no further: the remaining cases get the same reply.
    """
    deadline = time.monotonic() + question.seconds
    replies: list[list[Reply]] = []
    last = None
    for part in cases:
        replies.append([])
        for inputs in part:
            if last is None or last.trouble is None or last.trouble.kind not in ("stopped", "unanswered"):
                last = ask_once(question, answer, inputs, max(0.05, deadline - time.monotonic()))
            replies[-1].append(last)
    return replies


def ask_once(question: Question, answer: Callable, inputs: Inputs, seconds: float | None = None) -> Reply:
    """Run `answer` on one case, for at most `seconds`, and turn whatever happens into a plain reply."""
    file = _file_of(answer)
    printed = io.StringIO()
    outputs = trouble = None
    quiet = (
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
        warnings.catch_warnings(),
    )
    with contextlib.ExitStack() as stack:
        for context in (*quiet, torch.enable_grad()):
            stack.enter_context(context)
        warnings.simplefilter("ignore")
        try:
            if seconds is None:
                outputs = question.ask(answer, inputs)
            else:
                outputs = within(seconds, lambda: question.ask(answer, inputs), file)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: nothing that an answer does may end the notebook
            trouble = _trouble(question, answer, error, file)
    return Reply(outputs, trouble, printed.getvalue()[:2000])


def _trouble(question: Question, answer: Callable, error: BaseException, file: str) -> Trouble:
    line = error.line if isinstance(error, TimeUp) else _line(error, file)
    source = linecache.getline(file, line).strip() if line else ""
    if isinstance(error, WrongSignature):
        return Trouble("signature", f"It is called as {question.signature}, {error}.")
    if isinstance(error, WrongResult):
        return Trouble("result", str(error))
    if isinstance(error, TimeUp):
        return Trouble(
            "stopped",
            f"Your code was stopped after {question.seconds:g} seconds. Does a loop never end?",
            line,
            source,
        )
    message = _first_lines(error)
    if isinstance(error, NotImplementedError) and (not message or message.startswith(question.id)):
        return Trouble("unanswered", "not answered yet")
    if isinstance(error, SystemExit):
        return Trouble("raised", f"Your code ended the program (SystemExit: {message}).", line, source)
    said = f"Your code raised {type(error).__name__}: {message}"
    if isinstance(error, NameError) and error.name:
        said += f"\nHas the cell that defines {error.name} been run?"
    return Trouble("raised", said, line, source)


def _first_lines(error: BaseException, lines: int = 3, width: int = 300) -> str:
    try:
        text = str(error)
    except Exception:
        text = "(its message cannot be shown)"
    return "\n".join(text.strip().splitlines()[:lines])[:width]


def _file_of(answer: Any) -> str:
    """The file (for a notebook, the cell) that the answer was written in, or ''."""
    for find in (lambda: answer, lambda: type(answer).forward, lambda: type(answer).__call__):
        with contextlib.suppress(Exception):
            return inspect.unwrap(find()).__code__.co_filename
    return ""


def _line(error: BaseException, file: str) -> int:
    """The last line in the answer's own cell that led to `error`."""
    line = 0
    for frame, number in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename == file:
            line = number
    return line


def call(answer: Callable, *arguments: Any) -> Any:
    """answer(*arguments). Raises WrongSignature if it does not take that many arguments."""
    try:
        return answer(*arguments)
    except TypeError:
        _check_signature(answer, arguments)
        raise


def _check_signature(answer: Callable, arguments: tuple) -> None:
    try:
        signature = inspect.signature(answer)
    except (TypeError, ValueError):  # some callables have none to show
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        raise WrongSignature(f"but yours takes {signature}") from None


def tensor(array: np.ndarray) -> torch.Tensor:
    """A fresh CPU tensor with the values of `array`: an answer that writes into it harms nobody."""
    return torch.tensor(array, device="cpu")


def array(value: Any, name: str) -> np.ndarray:
    """A base numpy array with the values of the tensor `value`; anything but a plain tensor is refused.

    Nothing here calls a method that the object could bring along.
    """
    if value is None:
        raise WrongResult(f"{name} is None. Is a return missing?")
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        raise WrongResult(f"{name} is of type {type(value).__name__}; a torch.Tensor is wanted.")
    try:
        value = torch.Tensor.cpu(torch.Tensor.detach(value))
        return np.array(torch.Tensor.numpy(value.float() if value.dtype == torch.bfloat16 else value))
    except (TypeError, RuntimeError, NotImplementedError):
        raise WrongResult(f"{name} is a tensor whose values cannot be read ({value.layout}).") from None


NUMBERS = (int, float, np.float64, np.float32, np.int64)


def number(value: Any, name: str) -> np.ndarray:
    """A base numpy array without axes that holds the number `value`."""
    if type(value) is torch.Tensor and value.ndim == 0:
        value = float(array(value, name))
    elif type(value) is np.ndarray and value.ndim == 0 and value.dtype.kind in "if":
        value = float(value)
    if value is None:
        raise WrongResult(f"{name} is None. Is a return missing?")
    if type(value) not in NUMBERS:
        raise WrongResult(f"{name} is of type {type(value).__name__}; a number is wanted.")
    return np.array(float(value))


def several(returned: Any, names: Sequence[str]) -> tuple:
    """The results `names` of an answer that returns several."""
    wanted = "(" + ", ".join(names) + ")"
    if not isinstance(returned, (tuple, list)):
        what = "None. Is a return missing?" if returned is None else f"one {type(returned).__name__}."
        raise WrongResult(f"It should return {wanted}, but it returns {what}")
    if len(returned) != len(names):
        raise WrongResult(f"It should return {wanted}, but it returns {len(returned)} things.")
    return tuple(returned)


def changed(inputs: Inputs, tensors: dict[str, torch.Tensor]) -> list[str]:
    """The names of the inputs that the answer wrote into, told by their bytes."""
    return [name for name, value in tensors.items() if array(value, name).tobytes() != inputs[name].tobytes()]


def ask_tensors(arguments: Sequence[str], results: Sequence[str], wrt: Sequence[str] = ()) -> Ask:
    """An `ask` for a function from tensors to tensors.

    Where a case holds an `upstream` array, the gradients of sum(first result * upstream) with respect to the
    arguments `wrt` are asked for as well; one that does not exist is None.
    """

    def ask(answer: Callable, inputs: Inputs) -> Outputs:
        tensors = {name: tensor(inputs[name]) for name in arguments}
        leaves = {name: tensors[name].requires_grad_() for name in wrt if "upstream" in inputs}
        tensors |= {name: leaf.clone() for name, leaf in leaves.items()}  # a leaf could not be written into
        returned = call(answer, *tensors.values())
        values = (returned,) if len(results) == 1 else several(returned, results)
        outputs: Outputs = {name: array(value, name) for name, value in zip(results, values, strict=True)}
        if leaves:
            outputs |= gradients(values[0], inputs["upstream"], leaves)
        outputs["changed"] = changed(inputs, tensors)
        return outputs

    return ask


def gradients(result: torch.Tensor, upstream: np.ndarray, leaves: dict[str, torch.Tensor]) -> Outputs:
    """{"gradient of NAME": d sum(result * upstream) / d NAME}, None where no gradient arrives."""
    names = [f"gradient of {name}" for name in leaves]
    if not result.requires_grad or result.shape != upstream.shape:
        return dict.fromkeys(names)
    total = (result * tensor(upstream)).sum()
    found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    return {name: None if g is None else array(g, name) for name, g in zip(names, found, strict=True)}


def working_dtype(inputs: Inputs) -> str:
    """The floating-point dtype of a case: that of its first such array, "float64" where there is none."""
    arrays = (value for value in inputs.values() if type(value) is np.ndarray)
    return next((array.dtype.name for array in arrays if array.dtype.kind == "f"), "float64")


def finite(a: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return a - a == 0


def same(a: Any, b: Any, tolerance: float) -> bool:
    """Equal in shape, and in value up to `tolerance` (absolute + relative); NaN equals NaN, infinity itself.

    Only base arrays reach the arithmetic, so no object can decide for itself what it equals, and no function
    that a notebook may have replaced (allclose, isfinite) has a say.
    """
    if type(a) is not np.ndarray or type(b) is not np.ndarray:
        return type(a) is type(b) and a == b
    if a.shape != b.shape:
        return False
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = finite(b) & (abs(a - b) <= tolerance + tolerance * abs(b))
    return bool((near | (a == b) | ((a != a) & (b != b))).all())
