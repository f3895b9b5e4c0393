"""The check engine: draw the inputs of an exercise, ask the answer, judge what came back.

The three steps share nothing but plain values (numpy arrays, numbers, lists of tuples), so that they can run
in one process (a notebook) or in two (grading: `ask` beside the student's code, `draw` and `judge` out of its
reach). `ask` (course_utils.questions.asking) knows no reference solution, and `judge` never calls the
student's code.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from course_utils.questions.asking import (
    Ask,
    Inputs,
    Outputs,
    Question,
    Reply,
    ask_once,
    finite,
    same,
    working_dtype,
)
from course_utils.questions.asking import ask as ask  # the step between draw and judge

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
    """Everything that one exercise consists of, except its text: how it is asked, and how it is judged.

    `axes` names the axes of each output, for messages. `reference(inputs)` computes the right outputs in
    float64. `forbidden` lists the names whose use would answer the exercise without solving it; grading flags
    them.
    """

    question: Question
    title: str
    minutes: int
    difficulty: int  # 1 to 3
    reference: Callable[[Inputs], Outputs]
    axes: dict[str, str]
    parts: tuple[Part, ...]
    mistakes: tuple[Mistake, ...] = ()
    variants: tuple[Variant, ...] = ()
    forbidden: tuple[str, ...] = ()
    tolerance: dict[str, float] = field(default_factory=lambda: TOLERANCE)

    @property
    def id(self) -> str:
        return self.question.id

    @property
    def signature(self) -> str:
        return self.question.signature

    @property
    def function(self) -> str:
        return self.question.function

    @property
    def ask(self) -> Ask:
        return self.question.ask

    @property
    def seconds(self) -> float:
        return self.question.seconds

    @property
    def points(self) -> int:
        return sum(part.points for part in self.parts)


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


# --- judge --------------------------------------------------------------------------------------------------


class Key:
    """The answer key of the cases of an exercise: their right outputs, and what each named mistake replies.

    Everything is worked out when it is first needed and then kept, so that a whole class can be judged by one
    key. Places are (part, case), counted from 0.
    """

    def __init__(self, exercise: Exercise, cases: Sequence[Sequence[Inputs]]):
        self.exercise, self.cases = exercise, cases
        self._expected: dict[tuple[int, int], Outputs] = {}
        self._mistaken: dict[tuple[str, int, int], Reply] = {}

    def expected(self, part: int, case: int) -> Outputs:
        """The right outputs, in float64."""
        place = part, case
        if place not in self._expected:
            self._expected[place] = self.exercise.reference(self.cases[part][case])
        return self._expected[place]

    def mistaken(self, mistake: Mistake, part: int, case: int) -> Reply:
        """What an answer with this mistake in it replies."""
        place = mistake.name, part, case
        if place not in self._mistaken:
            self._mistaken[place] = ask_once(self.exercise.question, mistake.answer, self.cases[part][case])
        return self._mistaken[place]


def judge(
    exercise: Exercise,
    cases: Sequence[Sequence[Inputs]],
    replies: Sequence[Sequence[Reply]],
    key: Key | None = None,
) -> Verdict:
    """Points and findings for what an answer replied to the cases of `draw`.

    Whoever judges many answers to the same cases hands in their `key`, which otherwise is made anew.
    """
    key = key or Key(exercise, cases)
    if any(reply.trouble and reply.trouble.kind == "unanswered" for part in replies for reply in part):
        nothing = tuple(PartVerdict(part.name, 0, part.points) for part in exercise.parts)
        return Verdict(exercise.id, exercise.title, False, nothing)
    verdicts = []
    for i, (part, inputs_of, replies_of) in enumerate(zip(exercise.parts, cases, replies, strict=True)):
        if not inputs_of:
            raise ValueError(f"part {part.name!r} of {exercise.id} has no cases, so it would pass anything")
        verdict = PartVerdict(part.name, part.points, part.points)
        for j, (inputs, reply) in enumerate(zip(inputs_of, replies_of, strict=True)):
            expected = key.expected(i, j)
            finding = judge_once(exercise, part, inputs, reply, expected)
            if finding:
                finding = _diagnosed(key, replies, i, j, finding)
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
    if not finite(yours).all():
        kind = "NaN" if (yours != yours).any() else "infinity"
        return Finding(f"{name} holds {kind}.", output=name)
    return None


def _value(
    exercise: Exercise, part: Part, name: str, inputs: Inputs, outputs: Outputs, expected: Outputs
) -> Finding | None:
    yours, right = outputs[name], expected[name]
    if same(yours, right, _tolerance(exercise, name, inputs)):
        return None
    gap = float(abs(yours.astype(np.float64) - right).max())
    return Finding(f"{name} differs from what is expected by up to {gap:.3g}.", part.look, output=name)


def _tolerance(exercise: Exercise, name: str, inputs: Inputs) -> float:
    table = GRADIENT_TOLERANCE if name.startswith("gradient") else exercise.tolerance
    return table[working_dtype(inputs)]


def _diagnosed(
    key: Key, replies: Sequence[Sequence[Reply]], part: int, case: int, finding: Finding
) -> Finding:
    """`finding` with the named mistake that does the same on this case, or as it is where there is none.

    Where several do the same, it is the one that agrees with the answer on most of all cases.
    """
    reply = replies[part][case]
    if reply.trouble and reply.trouble.kind != "raised":
        return finding
    suspects = [m for m in key.exercise.mistakes if _does_the_same(key, m, part, case, reply)]
    if not suspects:
        return finding
    if len(suspects) > 1:
        places = [(i, j, other) for i, row in enumerate(replies) for j, other in enumerate(row)]
        suspects.sort(key=lambda mistake: -sum(_does_the_same(key, mistake, *place) for place in places))
    found = suspects[0]
    message = f"{finding.message}\n{found.message}" if reply.trouble else found.message
    return Finding(message, found.look, found.name, finding.output)


def _does_the_same(key: Key, mistake: Mistake, part: int, case: int, reply: Reply) -> bool:
    other = key.mistaken(mistake, part, case)
    if reply.trouble or other.trouble:
        return (reply.trouble and reply.trouble.message) == (other.trouble and other.trouble.message)
    inputs = key.cases[part][case]
    return reply.outputs.keys() == other.outputs.keys() and all(
        getattr(value, "dtype", None) == getattr(other.outputs[name], "dtype", None)
        and same(value, other.outputs[name], _tolerance(key.exercise, name, inputs))
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
    gap[~finite(gap)] = np.inf
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
