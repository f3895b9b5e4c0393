"""The check engine: draw the inputs of an exercise, ask the answer, judge what came back.

The three steps share nothing but plain values (numpy arrays, numbers, lists of tuples), so that they can run
in one process (a notebook) or in two (grading: `ask` beside the student's code, `draw` and `judge` out of its
reach). `ask` knows no reference solution, and `judge` never calls the student's code.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import linecache
import textwrap
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from course_utils.checks.limit import TimeUp, within

Inputs = dict[str, Any]
Outputs = dict[str, Any]
Ask = Callable[[Callable, Inputs], Outputs]

# How far a right answer may be from the float64 reference, absolute and relative, by the dtype of its inputs.
# Double precision is not held to its last digits: right answers may add an epsilon, or compute in float32.
TOLERANCE = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-6}
GRADIENT_TOLERANCE = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-5}


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: what, where to look, and, where it is known, the named mistake behind it."""

    message: str
    look: str = ""
    mistake: str = ""
    output: str = ""  # the output that shows it


Property = Callable[[Inputs, Outputs, Outputs], Finding | None]  # (inputs, outputs, expected)


@dataclass(frozen=True)
class Mistake:
    """A mistake that people really make, as code with the signature of the answer."""

    name: str
    answer: Callable
    message: str
    look: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Variant:
    """Another right way to write the answer, which every check must accept."""

    name: str
    answer: Callable
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """A share of the points. `draw(seed)` gives its cases, the smallest first.

    All `outputs` must agree with the reference on all cases; `properties` run before that and say more
    exactly what is broken. `look` is the hint for an answer that no finding explains.
    """

    name: str
    points: int
    draw: Callable[[int], list[Inputs]]
    outputs: tuple[str, ...]
    look: str
    properties: tuple[Property, ...] = ()


@dataclass(frozen=True)
class Exercise:
    """Everything that one exercise consists of, except its text.

    `axes` names the axes of each output, for messages. `reference(inputs)` computes the right outputs in
    float64. `forbidden` lists the names whose use would answer the exercise without solving it; grading flags
    them. `seconds` is the time that an answer has for all cases together.
    """

    id: str
    title: str
    signature: str
    minutes: int
    difficulty: int  # 1 to 3
    ask: Ask
    reference: Callable[[Inputs], Outputs]
    axes: dict[str, str]
    parts: tuple[Part, ...]
    mistakes: tuple[Mistake, ...] = ()
    variants: tuple[Variant, ...] = ()
    forbidden: tuple[str, ...] = ()
    seconds: float = 10.0
    tolerance: dict[str, float] = field(default_factory=lambda: TOLERANCE)

    @property
    def function(self) -> str:
        return self.signature.partition("(")[0]

    @property
    def points(self) -> int:
        return sum(part.points for part in self.parts)


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


@dataclass(frozen=True)
class PartVerdict:
    name: str
    points: int
    out_of: int
    finding: Finding | None = None
    example: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    id: str
    title: str
    answered: bool
    parts: tuple[PartVerdict, ...]

    @property
    def points(self) -> int:
        return sum(part.points for part in self.parts)

    @property
    def out_of(self) -> int:
        return sum(part.out_of for part in self.parts)

    def text(self) -> str:
        """The verdict as a reader sees it; always the same words for a right answer."""
        head = f"{self.id} {self.title}"
        if not self.answered:
            return f"{head}: not answered yet (0 of {self.out_of} points)"
        lines = [f"{head}: {self.points} of {self.out_of} points"]
        told = None
        for part in self.parts:
            lines.append(f"  [{'x' if part.points else ' '}] {part.name} ({part.points} of {part.out_of})")
            if part.finding is None:
                continue
            if part.finding == told:
                lines.append("      The same as above.")
                continue
            told = part.finding
            said = part.finding.message.splitlines()
            if part.finding.look:
                said.append(f"Look at: {part.finding.look}")
            for line in said:
                lines += textwrap.wrap(line, 100, initial_indent=" " * 6, subsequent_indent=" " * 8)
            lines += [f"      {line}" for line in part.example]
        return "\n".join(lines)


# --- draw ---------------------------------------------------------------------------------------------------


def draw(exercise: Exercise, seed: int) -> list[list[Inputs]]:
    """The cases of every part of `exercise`: plain inputs, the same for the same seed on every machine."""
    return [part.draw(seed) for part in exercise.parts]


# --- ask ----------------------------------------------------------------------------------------------------


class WrongSignature(Exception):
    """The answer does not take the arguments of the exercise."""


class WrongResult(Exception):
    """The answer gave something that is not what the exercise asks for."""


def ask(exercise: Exercise, answer: Callable, cases: Sequence[Sequence[Inputs]]) -> list[list[Reply]]:
    """Run `answer` on all cases. It never raises for what the answer does; only a real Ctrl-C gets through.

    All cases together have `exercise.seconds`. An answer that was stopped, or that is not written yet, is
    asked no further: the remaining cases get the same reply.
    """
    deadline = time.monotonic() + exercise.seconds
    replies: list[list[Reply]] = []
    last = None
    for part in cases:
        replies.append([])
        for inputs in part:
            if last is None or last.trouble is None or last.trouble.kind not in ("stopped", "unanswered"):
                last = ask_once(exercise, answer, inputs, max(0.05, deadline - time.monotonic()))
            replies[-1].append(last)
    return replies


def ask_once(exercise: Exercise, answer: Callable, inputs: Inputs, seconds: float | None = None) -> Reply:
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
                outputs = exercise.ask(answer, inputs)
            else:
                outputs = within(seconds, lambda: exercise.ask(answer, inputs), file)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: nothing that an answer does may end the notebook
            trouble = _trouble(exercise, answer, error, file)
    return Reply(outputs, trouble, printed.getvalue()[:2000])


def _trouble(exercise: Exercise, answer: Callable, error: BaseException, file: str) -> Trouble:
    line = error.line if isinstance(error, TimeUp) else _line(error, file)
    source = linecache.getline(file, line).strip() if line else ""
    if isinstance(error, WrongSignature):
        return Trouble("signature", f"It is called as {exercise.signature}, {error}.")
    if isinstance(error, WrongResult):
        return Trouble("result", str(error))
    if isinstance(error, TimeUp):
        return Trouble(
            "stopped",
            f"Your code was stopped after {exercise.seconds:g} seconds. Does a loop never end?",
            line,
            source,
        )
    message = _first_lines(error)
    if isinstance(error, NotImplementedError) and (not message or message.startswith(exercise.id)):
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
    """answer(*arguments), after a check that it takes that many arguments."""
    try:
        signature = inspect.signature(answer)
    except (TypeError, ValueError):  # some callables have none to show
        signature = None
    if signature is not None:
        try:
            signature.bind(*arguments)
        except TypeError:
            raise WrongSignature(f"but yours takes {signature}") from None
    return answer(*arguments)


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
    """The names of the inputs that the answer wrote into."""
    return [name for name, value in tensors.items() if not _same(array(value, name), inputs[name], 0.0)]


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


# --- judge --------------------------------------------------------------------------------------------------


def judge(
    exercise: Exercise, cases: Sequence[Sequence[Inputs]], replies: Sequence[Sequence[Reply]]
) -> Verdict:
    """Points and findings for what an answer replied to the cases of `draw`."""
    if any(reply.trouble and reply.trouble.kind == "unanswered" for part in replies for reply in part):
        nothing = tuple(PartVerdict(part.name, 0, part.points) for part in exercise.parts)
        return Verdict(exercise.id, exercise.title, False, nothing)
    pairs = [pair for part in zip(cases, replies, strict=True) for pair in zip(*part, strict=True)]
    verdicts = []
    for part, inputs_of, replies_of in zip(exercise.parts, cases, replies, strict=True):
        if not inputs_of:
            raise ValueError(f"part {part.name!r} of {exercise.id} has no cases, so it would pass anything")
        verdict = PartVerdict(part.name, part.points, part.points)
        for inputs, reply in zip(inputs_of, replies_of, strict=True):
            expected = exercise.reference(inputs)
            finding = judge_once(exercise, part, inputs, reply, expected)
            if finding:
                finding = _diagnosed(exercise, inputs, reply, pairs, finding)
                example = tuple(_example(inputs, reply, expected, finding))
                verdict = PartVerdict(part.name, 0, part.points, finding, example)
                break
        verdicts.append(verdict)
    return Verdict(exercise.id, exercise.title, True, tuple(verdicts))


def judge_once(
    exercise: Exercise, part: Part, inputs: Inputs, reply: Reply, expected: Outputs
) -> Finding | None:
    """The first thing that is wrong with `reply`, or None."""
    if reply.trouble is not None:
        return Finding(reply.trouble.message)
    outputs = reply.outputs
    names = [name for name in expected if name.partition(" at ")[0] in part.outputs]
    if not names:
        raise ValueError(f"part {part.name!r} of {exercise.id} judges no output, so it would pass anything")
    rules: list[Callable[[], Finding | None]] = [
        *(partial(_form, exercise, name, inputs, outputs, expected) for name in names),
        *(partial(holds, inputs, outputs, expected) for holds in part.properties),
        *(partial(_value, exercise, part, name, inputs, outputs, expected) for name in names),
        partial(_unchanged, outputs),
    ]
    return next(filter(None, (rule() for rule in rules)), None)


def working_dtype(inputs: Inputs) -> str:
    """The floating-point dtype of a case: that of its first such array, "float64" where there is none."""
    arrays = (value for value in inputs.values() if type(value) is np.ndarray)
    return next((array.dtype.name for array in arrays if array.dtype.kind == "f"), "float64")


def _unchanged(outputs: Outputs) -> Finding | None:
    names = outputs.get("changed")
    if not names:
        return None
    return Finding(
        f"It changes its input {', '.join(map(str, names))}, which the caller still needs.",
        "operations that end in an underscore, `+=`, `|=` and assignments to a slice.",
    )


def _form(
    exercise: Exercise, name: str, inputs: Inputs, outputs: Outputs, expected: Outputs
) -> Finding | None:
    """Is output `name` there, and of the right type, shape and dtype, and without NaN?"""
    yours, right = outputs.get(name), expected[name]
    if name.startswith("gradient"):
        if yours is None:
            return Finding(
                f"No {name} comes back: the way from the result to it is cut.",
                ".detach(), .data, .item(), .numpy(), torch.tensor(...) and torch.no_grad() all cut it.",
                output=name,
            )
    elif yours is None:
        return Finding(f"{name} is missing.", output=name)
    if type(yours) is not np.ndarray:
        return Finding(f"{name} is of type {type(yours).__name__}, not an array.", output=name)
    if yours.shape != right.shape:
        axes = exercise.axes.get(name.partition(" at ")[0], "")
        said = f"{name} has the shape {yours.shape}, expected is {right.shape}"
        return Finding(f"{said}{f': ({axes})' if axes and right.ndim else ''}.", output=name)
    dtype = working_dtype(inputs)
    accepted = {"float16": ("float16", "float32")}.get(dtype, (dtype,))
    if yours.dtype.name not in accepted:
        return Finding(f"{name} is {yours.dtype.name}, expected is {dtype}, as the inputs are.", output=name)
    if not _finite(yours).all():
        kind = "NaN" if (yours != yours).any() else "infinity"
        return Finding(f"{name} holds {kind}.", output=name)
    return None


def _value(
    exercise: Exercise, part: Part, name: str, inputs: Inputs, outputs: Outputs, expected: Outputs
) -> Finding | None:
    yours, right = outputs[name], expected[name]
    if _same(yours, right, _tolerance(exercise, name, inputs)):
        return None
    gap = float(abs(yours.astype(np.float64) - right).max())
    return Finding(f"{name} differs from what is expected by up to {gap:.3g}.", part.look, output=name)


def _tolerance(exercise: Exercise, name: str, inputs: Inputs) -> float:
    table = GRADIENT_TOLERANCE if name.startswith("gradient") else exercise.tolerance
    return table[working_dtype(inputs)]


def _finite(a: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return a - a == 0


def _same(a: Any, b: Any, tolerance: float) -> bool:
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
        near = _finite(b) & (abs(a - b) <= tolerance + tolerance * abs(b))
    return bool((near | (a == b) | ((a != a) & (b != b))).all())


def _diagnosed(
    exercise: Exercise,
    inputs: Inputs,
    reply: Reply,
    pairs: Sequence[tuple[Inputs, Reply]],
    finding: Finding,
) -> Finding:
    """`finding` with the named mistake that does the same on this case, or as it is where there is none.

    Where several do the same, it is the one that agrees with the answer on most of all cases (`pairs`).
    """
    if reply.trouble and reply.trouble.kind != "raised":
        return finding
    suspects = [mistake for mistake in exercise.mistakes if _does_the_same(exercise, mistake, inputs, reply)]
    if not suspects:
        return finding
    if len(suspects) > 1:
        suspects.sort(key=lambda mistake: -sum(_does_the_same(exercise, mistake, *pair) for pair in pairs))
    found = suspects[0]
    message = f"{finding.message}\n{found.message}" if reply.trouble else found.message
    return Finding(message, found.look, found.name, finding.output)


def _does_the_same(exercise: Exercise, mistake: Mistake, inputs: Inputs, reply: Reply) -> bool:
    other = ask_once(exercise, mistake.answer, inputs)
    if reply.trouble or other.trouble:
        return (reply.trouble and reply.trouble.message) == (other.trouble and other.trouble.message)
    return reply.outputs.keys() == other.outputs.keys() and all(
        getattr(value, "dtype", None) == getattr(other.outputs[name], "dtype", None)
        and _same(value, other.outputs[name], _tolerance(exercise, name, inputs))
        for name, value in reply.outputs.items()
    )


# --- the example that is shown ------------------------------------------------------------------------------


def _example(inputs: Inputs, reply: Reply, expected: Outputs, finding: Finding) -> list[str]:
    """The failing case: its inputs, what the answer gave and what is expected, in at most about ten lines."""
    lines = []
    trouble = reply.trouble
    if trouble and trouble.line:
        lines.append(f"line {trouble.line}: {trouble.source}" if trouble.source else f"line {trouble.line}")
    if trouble and trouble.kind in ("signature", "stopped"):
        return lines
    lines.append("The smallest case that shows it:")
    yours = right = None
    if reply.outputs and finding.output:
        yours, right = reply.outputs.get(finding.output), expected[finding.output]
    lines += _inputs(inputs)
    if right is not None:
        where = _where(yours, right)
        at = f"[{', '.join(map(str, where))}]" if where else ""
        lines.append(f"  your {finding.output}{at} {_show(yours, where)}")
        lines.append(f"  expected{at} {_show(right, where)}")
    if reply.printed.strip():
        lines.append("  your code printed " + " / ".join(reply.printed.strip().splitlines()[:3])[:120])
    return lines


FORMATS: Any = {"float_kind": lambda x: f"{x:.4g}", "bool": str}
SMALL = 12  # numbers that are shown in full
SHOWN = 5  # inputs that are shown with their numbers


def _inputs(inputs: Inputs) -> list[str]:
    """The inputs of a case: small ones with their numbers, a line each; of the others, the shapes."""
    given = {name: value for name, value in inputs.items() if name != "upstream"}
    small = [name for name, value in given.items() if type(value) is not np.ndarray or value.size <= SMALL]
    lines = [f"  {name} {_show(given[name])}" for name in small[:SHOWN]]
    others = ", ".join(
        f"{name} {value.shape if type(value) is np.ndarray else _show(value)}"
        for name, value in given.items()
        if name not in small[:SHOWN]
    )
    return lines + ([f"  {others}"] if others else [])


def _where(yours: Any, right: np.ndarray) -> tuple[int, ...]:
    """For arrays too large to show: the row (along the last axis) with the largest difference."""
    if type(yours) is not np.ndarray or yours.shape != right.shape or right.size <= SMALL or right.ndim < 2:
        return ()
    gap = abs(yours.astype(np.float64) - right)
    gap[~_finite(gap)] = np.inf
    return tuple(int(i) for i in np.unravel_index(gap.argmax(), gap.shape)[:-1])


def _show(value: Any, where: tuple[int, ...] = ()) -> str:
    if type(value) is not np.ndarray:
        text = str(value)
        return text if len(text) <= 100 else f"{text[:97]}..."
    shown = value[where] if where else value
    kind = "" if where else str(value.shape)
    if shown.size > SMALL or shown.dtype.kind not in "fiub":
        return f"{kind} {value.dtype.name}"
    if shown.ndim == 0:
        return f"{shown.item():.6g}"
    written = np.array2string(shown, separator=", ", max_line_width=10_000, formatter=FORMATS)
    return f"{kind} {' '.join(written.split())}".strip()


# --- helpers for references and cases -----------------------------------------------------------------------


def numeric_gradient(
    function: Callable[[Inputs], np.ndarray], inputs: Inputs, name: str, step: float = 1e-5
) -> np.ndarray:
    """d sum(function(inputs) * inputs["upstream"]) / d inputs[name] by central differences, in float64."""
    base = inputs[name].astype(np.float64)
    gradient = np.empty_like(base)
    for index in np.ndindex(base.shape):
        totals = []
        for sign in (1, -1):
            moved = base.copy()
            moved[index] += sign * step
            totals.append((function(inputs | {name: moved}) * inputs["upstream"]).sum())
        gradient[index] = (totals[0] - totals[1]) / (2 * step)
    return gradient
