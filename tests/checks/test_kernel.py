"""Checks where they are used: in the kernel of a notebook, which has handlers and threads of its own."""

import nbformat
import pytest
from nbclient import NotebookClient

SETUP = """
from course_utils import checks
from course_utils.checks import check, summary
object.__setattr__(checks.find("04.1").question, "seconds", 1.0)
"""
LOOP = """
def masked_softmax(scores, mask):
    while True:
        try:
            import time
            time.sleep(50)
        except:
            print("not me")

check("04.1", masked_softmax)
"""
RAISES = """
import torch
def masked_softmax(scores, mask):
    weights = scores.softmax(-1)
    return weights @ mask
check("04.1", masked_softmax)
"""
RIGHT = """
def masked_softmax(scores, mask):
    hidden = ~mask[:, None]
    return scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(hidden, 0)
check("04.1", masked_softmax)
"""
# With an await in it, IPython runs a cell in another way, with an interrupt handler that raises nothing.
AWAITED = "import asyncio\nawait asyncio.sleep(0)\n" + LOOP
LATER = "import time; time.sleep(0.3); print('still here')"


@pytest.fixture(scope="module")
def outputs():
    cells = [SETUP, LOOP, AWAITED, LATER, RAISES, RIGHT, "summary('04')"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, kernel_name="python3", timeout=60).execute()
    return ["".join(output.get("text", "") for output in cell.outputs) for cell in notebook.cells]


def test_an_endless_loop_ends(outputs):
    for text in outputs[1:3]:
        assert "Your code was stopped after 1 seconds. Does a loop never end?" in text
        assert "time.sleep(50)" in text or 'print("not me")' in text
    assert outputs[3] == "still here\n"


def test_an_exception_shows_its_line_in_the_cell(outputs):
    assert "Your code raised RuntimeError" in outputs[4]
    assert "line 4: return weights @ mask" in outputs[4]
    assert "Traceback" not in outputs[4] and "ipykernel" not in outputs[4]


def test_a_right_answer_and_the_summary(outputs):
    assert outputs[5].startswith("04.1 masked softmax: 2 of 2 points\n")
    assert outputs[6].endswith("Lesson 04: 2 of 10 points\n")
