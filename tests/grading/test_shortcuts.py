"""Shortcuts: what is found of them in the text of the cells, and what is let alone."""

from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace

import jupytext
import pytest

from course_utils import checks
from course_utils.grading.grades import Shortcut
from course_utils.grading.shortcuts import LONG, shortcuts

ROOT = Path(__file__).parents[2]
DOT = "torch.nn.functional.scaled_dot_product_attention"
BPTT = "bptt(x, h0, states, W_h, d_states)"
RNN = "rnn_forward(x, h0, W_x, W_h, b)"
IMPORTS = """
    import importlib
    import sys
    import torch
    import torch.nn.functional as F
    from torch import nn
    from course_utils import models
"""


def found(id, *sources):
    cells = [SimpleNamespace(source=dedent(source)) for source in sources]
    return shortcuts(cells, checks.find(id))


def names(id, *sources):
    return [shortcut.name for shortcut in found(id, *sources)]


def answer(body, head="attention(query, key, value, mask)"):
    return f"def {head}:\n    " + "\n    ".join(body.splitlines())


def test_a_shortcut_has_its_line_and_the_text_of_it():
    cell = answer("# by hand\nreturn F.scaled_dot_product_attention(query, key, value), None")
    assert found("06.1", IMPORTS, cell) == (
        Shortcut(DOT, 3, "return F.scaled_dot_product_attention(query, key, value), None"),
    )


@pytest.mark.parametrize(
    "body",
    [
        "return torch.nn.functional.scaled_dot_product_attention(query, key, value)",
        "return nn.functional.scaled_dot_product_attention(query, key, value)",
        "from torch.nn.functional import scaled_dot_product_attention as mine\nreturn mine(query)",
        "import torch.nn.functional\nreturn torch.nn.functional.scaled_dot_product_attention(query)",
        "f = F\ng = f.scaled_dot_product_attention\nreturn g(query, key, value)",
        "f, g = F, torch\nreturn f.scaled_dot_product_attention(query)",
        "return getattr(F, 'scaled_dot_product_attention')(query, key, value)",
        "return getattr(torch.nn, 'functional').scaled_dot_product_attention(query)",
        "return importlib.import_module('torch.nn.functional').scaled_dot_product_attention(query)",
        "return __import__('torch').nn.functional.scaled_dot_product_attention(query)",
        "return sys.modules['torch.nn.functional'].scaled_dot_product_attention(query)",
        "return F.__dict__['scaled_dot_product_attention'](query)",
        "return vars(F)['scaled_dot_product_attention'](query)",
        "return (F if query is None else F).scaled_dot_product_attention(query)",
        "return (f := F).scaled_dot_product_attention(query)",
        "return [f(query) for f in [F.scaled_dot_product_attention]]",
        "def inner():\n    return F.scaled_dot_product_attention(query)\nreturn inner()",
        "return (lambda: F.scaled_dot_product_attention(query))()",
        "for f in (F.scaled_dot_product_attention,):\n    return f(query)",
    ],
)
def test_by_whatever_way_the_function_is_named(body):
    assert DOT in names("06.1", IMPORTS, answer(body))


@pytest.mark.parametrize("place", ["torch._C._nn", "torch.ops.aten"])
def test_a_thing_of_torch_counts_wherever_torch_keeps_it(place):
    body = f"return {place}.scaled_dot_product_attention(query, key, value)"
    assert names("06.1", IMPORTS, answer(body)) == [f"{place}.scaled_dot_product_attention"]


@pytest.mark.parametrize(
    "cells",
    [
        (
            "def helper(q):\n    return F.scaled_dot_product_attention(q, q, q)",
            answer("return helper(query)"),
        ),
        (answer("return helper(query)"), "helper = lambda q: F.scaled_dot_product_attention(q, q, q)"),
        ("mine = F.scaled_dot_product_attention", answer("return mine(query)")),
        (
            "def helper(q):\n    return other(q)",
            "other = F.scaled_dot_product_attention",
            answer("helper(query)"),
        ),
        (
            "class Mine(nn.Module):\n    def forward(self, q):\n        F.scaled_dot_product_attention(q)",
            "mine = Mine()",
            answer("return mine(query)"),
        ),
        ("table = {}\ntable['f'] = F.scaled_dot_product_attention", answer("return table['f'](query)")),
        ("mine = F.scaled_dot_product_attention", "attention = mine"),
        (answer("return query"), "attention = lambda q, k, v, m: F.scaled_dot_product_attention(q)"),
        ("if True:\n    " + answer("return F.scaled_dot_product_attention(query)").replace("\n", "\n    "),),
        ("%matplotlib inline\n!ls\nx?\nmine = F.scaled_dot_product_attention", answer("return mine(query)")),
        ("from torch.nn.functional import *", answer("return scaled_dot_product_attention(query)")),
        ("%%time\nmine = F.scaled_dot_product_attention", answer("return mine(query)")),
    ],
)
def test_through_other_cells(cells):
    assert DOT in names("06.1", IMPORTS, *cells)


def test_an_alias_for_the_whole_answer_is_found():
    """The function itself is the forbidden one, so that there is no code to look into."""
    (shortcut,) = found("06.1", IMPORTS, "attention = F.scaled_dot_product_attention")
    assert shortcut == Shortcut(DOT, 1, "attention = F.scaled_dot_product_attention")


@pytest.mark.parametrize(
    ("id", "cells", "expected"),
    [
        ("06.1", [answer("models.scaled_dot_product(query)")], "course_utils.models.scaled_dot_product"),
        ("06.1", ["from course_utils.models import *", answer("return masked_softmax(query, mask)")],
         "course_utils.models.masked_softmax"),
        ("01.2", [answer("loss = (states * d_states).sum()\nloss.backward()", BPTT)],
         "torch.Tensor.backward"),
        ("01.2", [answer("getattr(x, 'backward')()", BPTT)], "torch.Tensor.backward"),
        ("01.2", [answer("torch.autograd.grad(x, h0)", BPTT)], "torch.autograd.grad"),
        ("01.1", [answer("torch.nn.modules.rnn.RNN(2, 3)", RNN)],
         "torch.nn.modules.rnn.RNN"),
        ("01.1", ["class Mine(nn.RNNCell):\n    pass", answer("Mine(2, 3)", RNN)],
         "torch.nn.RNNCell"),
        ("03.6", [answer("import sacrebleu\nreturn sacrebleu.corpus_bleu([], [])", "bleu_factors(c, r, n)")],
         "sacrebleu.corpus_bleu"),
    ],
)  # fmt: skip
def test_what_other_exercises_forbid(id, cells, expected):
    assert expected in names(id, IMPORTS, *cells)


def test_a_thing_of_the_course_counts_where_another_module_hands_it_on():
    body = "from course_utils.probes.memory import Recurrent\nreturn Recurrent('rnn')"
    assert names("01.1", answer(body, RNN)) == ["course_utils.probes.memory.Recurrent"]


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("import course_utils.questions.lesson06 as q\nreturn q.masked_softmax(query)",
         "course_utils.questions.lesson06.masked_softmax"),
        ("from course_utils.checks import find\nreturn find('06.1').variants[0].answer(query)",
         "course_utils.checks.find"),
        ("return eval('F.scaled_' + 'dot_product_attention')(query)", "eval"),
        ("import gc\nreturn gc.get_objects()", "gc.get_objects"),
        ("import sys\nreturn sys._getframe(1).f_locals", "sys._getframe"),
        ("import inspect\nreturn inspect.stack()", "inspect.stack"),
    ],
)  # fmt: skip
def test_what_no_answer_needs(body, name):
    assert name in names("06.1", answer(body))


@pytest.mark.parametrize(
    "cell",
    [
        "import course_utils.questions.asking as asking\nasking.changed = lambda *given: []",
        "from course_utils.questions import asking\nsetattr(asking, 'changed', lambda *given: [])",
    ],
)
def test_a_patched_course(cell):
    assert names("06.1", cell, answer("return query")) == ["course_utils.questions.asking.changed = ..."]


@pytest.mark.parametrize(
    "cells",
    [
        # Imported, and never used.
        ("from torch.nn.functional import scaled_dot_product_attention", answer("return query")),
        # Used beside the answer, to compare with.
        (answer("return query"), "print(F.scaled_dot_product_attention(q, k, v))"),
        ("def compare(q):\n    return F.scaled_dot_product_attention(q, q, q)", answer("return query")),
        # In words.
        (
            answer(
                "'''Not F.scaled_dot_product_attention.'''\n# F.scaled_dot_product_attention\nreturn query"
            ),
        ),
        # In a type.
        (answer("x: models.MultiHeadAttention = None\nreturn query"),),
        (answer("return query", "attention(query: models.Stack, key, value, mask) -> models.Stack"),),
        # Another thing of that name.
        (answer("return F.relu(query)", "attention(query, key, value, F)"),),
        (answer("F = Mine()\nreturn F.scaled_dot_product_attention(query)"),),
        (answer("return [F.scaled_dot_product_attention for F in mine]"),),
        # A cell that is no Python, and does not run.
        ("def attention(query:\n F.scaled_dot_product_attention", answer("return query")),
        (answer("with torch.no_grad():\n    return torch.softmax(query @ key.mT, -1) @ value"),),
    ],
)
def test_what_is_no_shortcut(cells):
    assert names("06.1", IMPORTS, *cells) == []


@pytest.mark.parametrize("text", sorted((ROOT / "solutions").glob("*.py")), ids=lambda path: path.stem[:2])
def test_no_solution_of_the_course_takes_one(text):
    notebook = jupytext.reads(text.read_text(encoding="utf-8"), fmt="py:percent")
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert {exercise.id: shortcuts(cells, exercise) for exercise in checks.exercises(text.stem[:2])} == {
        exercise.id: () for exercise in checks.exercises(text.stem[:2])
    }


@pytest.mark.parametrize(
    "source",
    [
        "x = " + "-" * 9000 + "1",
        "x = a" + ".a" * 9000,
        "x = f" + "()" * 9000,
        "x = 1" + "+1" * 9000,
        "x = " + "(" * 9000,
        "\t" * 90_000 + "=",
        "x = " * 9000 + "1",
        "\n".join(f"a{i + 1} = a{i}.x if c else a{i}.y" for i in range(500)),
        "a = b\nb = a",
        "\0",
        "x = '\ud800'",
    ],
    ids=range(11),
)
def test_texts_that_are_made_to_break_it(source):
    """Nothing is raised, and where it gives up it says so."""
    cells = IMPORTS, source, answer("return F.scaled_dot_product_attention(x, a500, a)")
    (shortcut,) = found("06.1", *cells)
    assert shortcut.name == DOT or "nested too deeply" in shortcut.name


def test_more_code_than_anybody_writes():
    (shortcut,) = found("06.1", "x = 1\n" * LONG)
    assert "not searched" in shortcut.name
