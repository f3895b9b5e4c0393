"""Grade one submission: its cells run in a jailed process, and what they reply is judged here.

`grade` is a pure function of the submission, the exam and the seed, but for the zygote that runs the cells.
"""

from __future__ import annotations

import builtins
import hashlib
import re
import time
from collections.abc import Sequence
from dataclasses import replace

from course_utils import checks
from course_utils.checks.engine import (
    Exercise,
    Finding,
    Inputs,
    Key,
    PartVerdict,
    Reply,
    Verdict,
    draw,
    judge,
)
from course_utils.grading import CELL_SECONDS, HIDDEN
from course_utils.grading.collect import NOTHING, Submission
from course_utils.grading.grades import Grade, ItemGrade, Outcome
from course_utils.grading.run import Answers, Zygote, answers
from course_utils.grading.sheets import Sheet, Unreadable, lesson_of, read
from course_utils.grading.shortcuts import shortcuts
from course_utils.questions.asking import Trouble

ELSEWHERE = "Right on the inputs of the notebook, wrong on others."


class Exam:
    """A lesson's exercises with the cases that a class is asked: the notebook's, and hidden ones.

    The first of an exercise's `keys` is that of the visible cases. The hidden ones follow from `seed`, so
    that a grade can be made again. Right outputs are worked out once and kept.

    Raises:
        LookupError: there is no such lesson.
    """

    def __init__(self, lesson: str, seed: int, hidden: int = HIDDEN):
        self.lesson, self.seed = lesson, seed
        self.exercises = tuple(checks.exercises(lesson))
        self.questions = tuple(exercise.question for exercise in self.exercises)
        seeds = (checks.SEED, *(_derived(seed, number) for number in range(hidden)))
        self.keys = {
            exercise.id: tuple(Key(exercise, draw(exercise, each)) for each in seeds)
            for exercise in self.exercises
        }

    @property
    def asked(self) -> dict[str, list[Sequence[Sequence[Inputs]]]]:
        """What a submission is asked: by exercise, for each seed the cases of each part."""
        return {id: [key.cases for key in keys] for id, keys in self.keys.items()}


def _derived(seed: int, number: int) -> int:
    return int.from_bytes(hashlib.sha256(f"hidden {number} of {seed}".encode()).digest()[:4], "big")


def grade(
    submission: Submission,
    content: bytes | None,
    exam: Exam,
    zygote: Zygote,
    *,
    cell_seconds: float = CELL_SECONDS,
) -> Grade:
    """The grade of a submission with these bytes; it raises for nothing that a student can write."""
    begun = time.monotonic()
    try:
        if submission.problem or content is None:
            raise Unreadable(submission.problem or NOTHING)
        sheet = read(content, exam.questions)
    except Unreadable as error:
        outcome: Outcome = "missing" if submission.problem == NOTHING else "unreadable"
        items = tuple(without(exercise, outcome) for exercise in exam.exercises)
        return graded(submission, exam.lesson, items, (str(error),), begun)
    notes = list(sheet.notes)
    theirs = lesson_of(content, submission.file)
    if theirs not in ("", exam.lesson):
        notes.append(f"a notebook of lesson {theirs}; graded as lesson {exam.lesson}")
    if not sheet.cells:
        notes.append("there is no code in it")
        items = tuple(without(exercise, "missing", sheet) for exercise in exam.exercises)
        return graded(submission, exam.lesson, items, notes, begun)
    given = answers(zygote, sheet.cells, exam.asked, cell_seconds=cell_seconds)
    notes += given.notes
    items = tuple(_item(exercise, exam.keys[exercise.id], sheet, given) for exercise in exam.exercises)
    return graded(submission, exam.lesson, items, notes, begun)


def graded(
    submission: Submission,
    lesson: str,
    items: tuple[ItemGrade, ...],
    notes: Sequence[str],
    begun: float | None = None,
) -> Grade:
    """The grade of a submission, made since `begun`."""
    return Grade(
        submission.student,
        submission.file,
        lesson,
        items,
        (*submission.notes, *notes),
        submission.late,
        0.0 if begun is None else round(time.monotonic() - begun, 3),
        submission.account,
    )


def without(exercise: Exercise, outcome: Outcome, sheet: Sheet | None = None) -> ItemGrade:
    """An exercise that no answer was judged to."""
    notes = sheet.found.get(exercise.id, ()) if sheet else ()
    return ItemGrade(exercise.id, exercise.title, outcome, _no_points(exercise), notes)


def _no_points(exercise: Exercise) -> tuple[PartVerdict, ...]:
    return tuple(PartVerdict(part.name, 0, part.points) for part in exercise.parts)


def _item(exercise: Exercise, keys: Sequence[Key], sheet: Sheet, given: Answers) -> ItemGrade:
    became = given.outcome.get(exercise.id, "missing")
    if became == "missing":
        return without(exercise, "missing", sheet)
    verdicts: list[Verdict] = []
    for key, replies in zip(keys, given.replies[exercise.id], strict=True):
        # What no case of the notebook passes need not be looked at again, which keeps wrong answers cheap.
        if verdicts and not verdicts[0].points:
            break
        verdicts.append(_judged(exercise, key, replies, became, hidden=bool(verdicts)))
    parts = tuple(_combined(verdicts, place) for place in range(len(exercise.parts)))
    points = sum(part.points for part in parts)
    outcome: Outcome
    if became in ("stopped", "died"):
        outcome = became
    elif not verdicts[0].answered:
        outcome = "unanswered"
    else:
        outcome = "full" if points == exercise.points else "partial" if points else "wrong"
    return ItemGrade(
        exercise.id,
        exercise.title,
        outcome,
        parts,
        sheet.found.get(exercise.id, ()),
        shortcuts(sheet.cells, exercise),
        round(given.seconds.get(exercise.id, 0.0), 3),
    )


def _combined(verdicts: Sequence[Verdict], place: int) -> PartVerdict:
    """A part has its points where the visible and all hidden cases give them."""
    for number, verdict in enumerate(verdicts):
        part = verdict.parts[place]
        if part.points == part.out_of:
            continue
        if not number:
            return part
        found = part.finding or Finding("It raises NotImplementedError.")
        return replace(part, finding=replace(found, message=f"{ELSEWHERE} {found.message}"), example=())
    return verdicts[0].parts[place]


def _judged(
    exercise: Exercise, key: Key, replies: Sequence[Sequence[Reply | None]], became: str, *, hidden: bool
) -> Verdict:
    """The verdict on the replies to one set of cases, which may be forged."""
    safe = [
        [_guarded(reply, inputs, exercise, became, hidden) for inputs, reply in zip(*part, strict=True)]
        for part in zip(key.cases, replies, strict=True)
    ]
    try:
        return judge(exercise, key.cases, safe, key)
    except Exception as error:  # judge may rely on what `ask` makes of an answer; a forged reply need not
        found = Finding(
            f"What came back is not what an answer can give, and cannot be judged ({type(error).__name__})."
        )
        nothing = tuple(replace(part, finding=found) for part in _no_points(exercise))
        return Verdict(exercise.id, exercise.title, True, nothing)


LOST = {
    "died": "The process that ran your code ended before it answered. Does it call exit, or take all memory?",
    "stopped": "Your code was stopped: it did not answer in time. Does a loop never end?",
}


def _guarded(reply: Reply | None, inputs: Inputs, exercise: Exercise, became: str, hidden: bool) -> Reply:
    """A reply as judge may see it.

    A student's code can put any text into an exception, also the inputs that it was given; of hidden cases
    nothing of that may reach the feedback.
    """
    if reply is None:
        return Reply(trouble=Trouble("stopped", LOST.get(became, LOST["stopped"])))
    if reply.trouble:
        return replace(reply, trouble=_told(reply.trouble, exercise), printed="") if hidden else reply
    outputs = reply.outputs if isinstance(reply.outputs, dict) else {}
    named = outputs.get("changed", [])
    changed = [name for name in named if type(name) is str and name in inputs] if type(named) is list else []
    if not changed and not (type(named) is list and not named):  # forged
        changed = [next(iter(inputs))]
    return replace(reply, outputs=outputs | {"changed": changed}, printed="" if hidden else reply.printed)


def _told(trouble: Trouble, exercise: Exercise) -> Trouble:
    """What may be said of trouble with hidden inputs: its kind, and the name of a built-in exception."""
    if trouble.kind == "raised":
        named = re.match(r"Your code raised (\w+):", trouble.message)
        error = getattr(builtins, named[1], None) if named else None
        known = isinstance(error, type) and issubclass(error, BaseException)
        return Trouble("raised", f"Your code raised {named[1] if known else 'an exception'} there.")
    said = {
        "unanswered": "not answered yet",
        "signature": f"It is called as {exercise.signature}, and yours takes other arguments.",
        "result": "It returns something of another kind than the exercise asks for.",
    }
    return Trouble(trouble.kind, said.get(trouble.kind, LOST["stopped"]))
