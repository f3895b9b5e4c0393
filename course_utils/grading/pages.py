"""The pages of a graded class: one for each student, one for the teacher.

Each is one file without scripts and without anything to fetch. Whatever a student wrote (names, code, what it
printed) goes through `text`; nothing of the hidden inputs is in a Grade, so nothing of them gets here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from statistics import mean, median
from typing import Any

from course_utils import figures
from course_utils.checks.engine import PartVerdict
from course_utils.grading.grades import Grade, ItemGrade
from course_utils.grading.results import OUTCOMES, TROUBLED, Run, mistakes, reasons
from course_utils.grading.safe import printable, short

# What the bars of the class page tell apart.
GROUPS = {
    "all points": ("full",),
    "some": ("partial",),
    "none": ("wrong",),
    "no answer": ("unanswered", "missing", "unreadable"),
    "stopped or died": TROUBLED,
}
SHOWN_MISTAKES = 15

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 62rem;
       margin: 0 auto; padding: 1rem 1.5rem 3rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin-bottom: .3rem; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .5rem; }
.points { font-size: 1.3rem; font-weight: 600; margin: .3rem 0; }
.small { color: #555; font-size: .9rem; }
table { border-collapse: collapse; margin: .5rem 0; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { text-align: left; vertical-align: top; padding: .25rem .8rem .25rem 0;
         border-bottom: 1px solid #ddd; }
th[scope=row] { font-weight: normal; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
pre { background: #f4f4f4; padding: .6rem .8rem; overflow-x: auto; font-size: .9rem; line-height: 1.4; }
section.item { border-top: 2px solid #222; margin-top: 1.8rem; }
section.item h2 { margin-top: .6rem; }
ul.parts { list-style: none; padding: 0; } ul.parts > li { margin: .8rem 0; }
.said { white-space: pre-line; margin: .3rem 0 .3rem 1.6rem; } .parts pre { margin-left: 1.6rem; }
.mark { display: inline-block; width: 1.6rem; font-weight: 700; }
.warning { border: 3px solid #222; padding: .6rem 1rem; margin: 1rem 0; }
ul.why { margin: 0; padding-left: 1.1rem; }
.wide { overflow-x: auto; }
thead th { overflow-wrap: normal; white-space: nowrap; } tbody th { min-width: 8rem; }
a { color: #0058a3; }
@media print { body { max-width: none; padding: 0; } section.item { break-inside: avoid; } }
"""
# No script, no address outside: a browser holds it, even if something were to slip through.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def text(value: str) -> str:
    """Any text as HTML text or as the value of an attribute."""
    return escape(printable(value))


def _page(title: str, body: Iterable[str]) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{text(short(title))}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Any]], numbers: int = 0) -> str:
    """A table of HTML cells; the last `numbers` columns are numbers, the first names its row."""

    def kind(index: int) -> str:
        return ' class="number"' if index >= len(heads) - numbers else ""

    head = "".join(f'<th scope="col"{kind(i)}>{name}</th>' for i, name in enumerate(heads))
    lines = [
        f'<div class="wide"><table><caption>{caption}</caption>',
        f"<thead><tr>{head}</tr></thead>",
        "<tbody>",
    ]
    for first, *rest in rows:
        cells = "".join(f"<td{kind(i)}>{value}</td>" for i, value in enumerate(rest, 1))
        lines.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    return "\n".join([*lines, "</tbody></table></div>"])


def _list(items: Iterable[str], kind: str = "why") -> str:
    return f'<ul class="{kind}">' + "".join(f"<li>{text(item)}</li>" for item in items) + "</ul>"


# --- for a student ------------------------------------------------------------------------------------------


def feedback(grade: Grade, run: Run) -> str:
    """The page of one submission: points, and for what is missing the finding, the hint and an example."""
    title = f"Lesson {run.lesson}: {short(grade.student)}"
    rows = [
        (
            f'<a href="#{text(item.id)}">{text(item.id)} {text(item.title)}</a>',
            OUTCOMES[item.outcome],
            f"{item.points} of {item.out_of}",
        )
        for item in grade.items
    ]
    late = " Handed in late." if grade.late else ""
    body = [
        f"<header><h1>Feedback on lesson {text(run.lesson)}</h1>",
        f"<p>{text(short(grade.student))}</p>",
        f'<p class="points">{grade.points} of {run.out_of} points</p>',
        f'<p class="small">From the file {text(short(grade.file))}.{late}</p></header>',
        "<main>",
        _list(grade.notes) if grade.notes else "",
        _table("Your exercises", ["exercise", "outcome", "points"], rows, numbers=1),
        *(_item(item) for item in grade.items),
        "</main>",
        _next_steps(run),
    ]
    return _page(title, filter(None, body))


def _item(item: ItemGrade) -> str:
    lines = [
        f'<section class="item" id="{text(item.id)}"><h2>{text(item.id)} {text(item.title)}</h2>',
        f"<p><strong>{item.points} of {item.out_of} points</strong>: {OUTCOMES[item.outcome]}.</p>",
    ]
    if item.notes:
        lines.append(_list(item.notes))
    if item.outcome not in ("missing", "unreadable", "unanswered"):
        parts, told = [], None
        for part in item.parts:
            parts.append(_part(part, same=part.finding is not None and part.finding == told))
            told = part.finding or told
        lines.append('<ul class="parts">' + "".join(parts) + "</ul>")
    return "\n".join([*lines, "</section>"])


def _part(part: PartVerdict, same: bool) -> str:
    # The mark is read out as what it means, and is a word away from its colour.
    mark, meaning = ("✓", "earned") if part.points == part.out_of else ("✗", "not earned")
    lines = [
        f'<li><span class="mark" role="img" aria-label="{meaning}">{mark}</span>{text(part.name)} '
        f"({part.points} of {part.out_of})"
    ]
    if same:
        lines.append('<p class="said">The same as above.</p>')
    elif part.finding:
        lines.append(f'<p class="said">{text(part.finding.message)}</p>')
        if part.finding.look:
            lines.append(f'<p class="said"><strong>Look at:</strong> {text(part.finding.look)}</p>')
        if part.example:
            lines.append(f"<pre>{text(chr(10).join(part.example))}</pre>")
    return "".join(lines) + "</li>"


def _next_steps(run: Run) -> str:
    here = "the exercises of the lesson"
    if run.link.startswith("https://"):
        here = f'<a href="{text(run.link)}">{here}</a>'
    hidden = (
        " Each answer also ran on inputs drawn for this grading, which are not shown; the examples above are "
        "from the inputs that the check in your notebook uses too."
        if run.hidden
        else ""
    )
    return (
        f"<footer><h2>What next</h2><p>Open {here}, mend the first finding, and run the check below "
        f"your answer.{hidden} If you think a finding is wrong, ask your teacher, and name the "
        "exercise.</p></footer>"
    )


# --- for the teacher ----------------------------------------------------------------------------------------


def overview(grades: Sequence[Grade], run: Run, names: Sequence[str]) -> str:
    """The page of the class. `names` are the feedback pages of `grades`, relative to it."""
    body = [f"<header><h1>Lesson {text(run.lesson)}: the class</h1>"]
    if grades:
        points = [grade.points for grade in grades]
        body += [
            f'<p class="points">{_counted(len(grades), "submission")}</p>',
            f"<p>Points: mean {mean(points):.1f}, median {median(points):g}, from {min(points)} to "
            f"{max(points)}, of {run.out_of} possible.</p></header>",
        ]
    else:
        body.append('<p class="points">Nothing was handed in.</p></header>')
    body += ["<main>", _isolation(run)]
    if grades:
        body += [
            _to_look_at(grades, run, names),
            _difficulty(grades, run),
            _named_mistakes(grades),
            _distribution(grades, run),
            _times(grades, run),
            _everybody(grades, run, names),
        ]
    body += [_how(run), "</main>"]
    return _page(f"Lesson {run.lesson}: the class", filter(None, body))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _isolation(run: Run) -> str:
    if run.strong:
        return ""
    return (
        '<div class="warning"><p><strong>Isolation was weak.</strong> Code of students may have had more '
        "reach than the guide promises; read these grades with that in mind.</p>"
        + _list(run.isolation)
        + "</div>"
    )


def _link(grade: Grade, name: str) -> str:
    return f'<a href="{text(name)}">{text(short(grade.student))}</a>'


def _to_look_at(grades: Sequence[Grade], run: Run, names: Sequence[str]) -> str:
    listed = [
        (grade, name, why) for grade, name in zip(grades, names, strict=True) if (why := reasons(grade, run))
    ]
    listed.sort(key=lambda entry: (not _flagged(entry[0]), entry[0].points, entry[0].student))
    head = '<section id="look"><h2>Who to look at</h2>'
    if not listed:
        return f"{head}<p>Nobody stands out: no flag, nobody late or under half of the points.</p></section>"
    rows = [(_link(grade, name), _list(why), grade.points) for grade, name, why in listed]
    said = (
        "<p>Flags first, then the fewest points. A flag is the use of something that answers an exercise "
        "without solving it; it costs no points, and students do not see it. Look at the line, then "
        "decide.</p>"
    )
    caption = f"{len(listed)} of {_counted(len(grades), 'submission')}"
    return f"{head}{said}{_table(caption, ['student', 'why', 'points'], rows, numbers=1)}</section>"


def _flagged(grade: Grade) -> bool:
    return any(item.shortcuts for item in grade.items)


def _items(grades: Sequence[Grade], id: str) -> list[ItemGrade]:
    return [item for grade in grades for item in grade.items if item.id == id]


def _difficulty(grades: Sequence[Grade], run: Run) -> str:
    rows, drawn = [], {}
    for asked in run.exercises:
        items = _items(grades, asked.id)
        counts = {name: sum(i.outcome in group for i in items) for name, group in GROUPS.items()}
        drawn[f"{asked.id} {asked.title}"] = counts
        share = mean(item.points for item in items) / max(1, asked.points)
        name = f"{text(asked.id)} {text(asked.title)}"
        rows.append((name, asked.points, f"{share:.0%}", *counts.values()))
    chart = figures.shares.build(
        drawn, xlabel="submissions", ylabel="", title="What became of the answers, by exercise"
    )
    table = _table(
        "Exercises by outcome (submissions)",
        ["exercise", "out of", "mean", *GROUPS],
        rows,
        numbers=len(GROUPS) + 2,
    )
    hardest = min(rows, key=lambda row: float(row[2].rstrip("%")))
    return (
        f'<section id="difficulty"><h2>How hard the exercises were</h2><p>Hardest: {hardest[0]}, with '
        f"{hardest[2]} of its points earned on average.</p>{figures.image(*chart)}{table}</section>"
    )


def _named_mistakes(grades: Sequence[Grade]) -> str:
    head = '<section id="mistakes"><h2>Named mistakes</h2>'
    made = mistakes(grades)
    if not made:
        return f"{head}<p>No answer behaved like a mistake that has a name.</p></section>"
    rows = [
        (text(name), text(id), f'<span style="white-space:pre-line">{text(what)}</span>', count)
        for id, name, what, count in made
    ]
    chart = figures.bars.build(
        {f"{id} {name}": count for id, name, _, count in made[:SHOWN_MISTAKES]},
        xlabel="submissions",
        ylabel="",
        title="The most frequent mistakes",
    )
    table = _table(
        "Mistakes by how many submissions made them",
        ["mistake", "exercise", "what it is", "submissions"],
        rows,
        numbers=1,
    )
    said = "<p>What to take up in class: an answer that behaves exactly like a known mistake counts here.</p>"
    return f"{head}{said}{figures.image(*chart)}{table}</section>"


def _distribution(grades: Sequence[Grade], run: Run) -> str:
    counts = Counter(grade.points for grade in grades)
    every = {points: counts[points] for points in range(run.out_of + 1)}
    chart = figures.bars.build(
        {str(points): count for points, count in every.items()},
        xlabel=f"points (of {run.out_of})",
        ylabel="submissions",
        title="How many earned how many points",
        upright=True,
    )
    table = _table("Submissions by points", ["points", "submissions"], every.items(), numbers=1)
    return (
        f'<section id="points"><h2>Distribution of points</h2>{figures.image(*chart)}'
        f"<details><summary>The same as a table</summary>{table}</details></section>"
    )


def _times(grades: Sequence[Grade], run: Run) -> str:
    rows = []
    for asked in run.exercises:
        items = _items(grades, asked.id)
        taken = [item.seconds for item in items]
        stopped, died = (sum(item.outcome == outcome for item in items) for outcome in TROUBLED)
        name = f"{text(asked.id)} {text(asked.title)}"
        rows.append((name, stopped, died, f"{median(taken):.2f}", f"{max(taken):.2f}"))
    heads = ["exercise", "stopped", "died", "median seconds", "longest"]
    table = _table("Answers that ran out of time or ended their process", heads, rows, numbers=4)
    return f'<section id="times"><h2>Time-outs and deaths</h2>{table}</section>'


def _everybody(grades: Sequence[Grade], run: Run, names: Sequence[str]) -> str:
    ids = [text(asked.id) for asked in run.exercises]
    rows = [
        (
            _link(grade, name),
            "late" if grade.late else "",
            *(item.points for item in grade.items),
            grade.points,
        )
        for grade, name in sorted(
            zip(grades, names, strict=True), key=lambda pair: pair[0].student.casefold()
        )
    ]
    table = _table(
        f"Points of {_counted(len(grades), 'submission')}",
        ["student", "late", *ids, "total"],
        rows,
        numbers=len(ids) + 1,
    )
    return f'<section id="all"><h2>Everybody</h2>{table}</section>'


def _how(run: Run) -> str:
    held = _list(run.isolation) if run.strong and run.isolation else ""
    version = f" attention-course {text(run.version)}." if run.version else ""
    return (
        '<section id="how"><h2>How this was graded</h2><p>On the inputs of the notebook and on '
        f"{_counted(run.hidden, 'set')} of hidden ones, drawn from the seed {run.seed}: the same files with "
        f"<code>--seed {run.seed}</code> get the same grades. It took {run.seconds:.1f} seconds.{version}</p>"
        f"{held}<p>This page names students and the seed: it is not for them. Their own pages in "
        "<code>feedback/</code> name neither others nor the seed.</p></section>"
    )
