"""How the exercises of lesson 02 are asked: gated memory (LSTM and GRU)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from course_utils.questions.asking import (
    Ask,
    Inputs,
    Outputs,
    Question,
    array,
    ask_tensors,
    call,
    changed,
    gradients,
    number,
    several,
    tensor,
)

WEIGHTS = ("W_ih", "W_hh", "b_ih", "b_hh")


# --- 02.1 and 02.2: what the steps share --------------------------------------------------------------------


def _ask_steps(state: Sequence[str]) -> Ask:
    """An `ask` that takes as many steps as there are inputs, each from the state that the last one returned.

    `state` names the tensors of the state. Where a case holds an `upstream` array, the gradients of
    sum(last h * upstream) for the first state and the recurrent weights are asked for as well.
    """

    def ask(answer: Callable, inputs: Inputs) -> Outputs:
        tensors = {name: tensor(inputs[name]) for name in (*state, *WEIGHTS)}
        leaves = {}
        if "upstream" in inputs:
            leaves = {name: tensors[name].requires_grad_() for name in (*state, "W_hh")}
            tensors |= {name: leaf.clone() for name, leaf in leaves.items()}
        weights = [tensors[name] for name in WEIGHTS]
        current = [tensors[name] for name in state]
        outputs: Outputs = {}
        written: list[str] = []
        for t, x in enumerate(inputs["xs"], start=1):
            given = [tensor(x), *current]
            before = [array(value, name) for value, name in zip(given, ("x", *state), strict=True)]
            returned = call(answer, *given, *weights)
            names = [f"new_{name}" for name in state]
            results = (returned,) if len(state) == 1 else several(returned, names)
            for name, value in zip(names, results, strict=True):
                outputs[f"{name} at step {t}"] = array(value, name)
            for name, value, was in zip(("x", *state), given, before, strict=True):
                if name not in written and not np.array_equal(array(value, name), was, equal_nan=True):
                    written.append(name)
            if any(new.shape != old.shape for new, old in zip(results, current, strict=True)):
                return outputs  # no further step is possible; judge says why
            current = list(results)
        if leaves:
            outputs |= gradients(current[0], inputs["upstream"], leaves)
        later = changed({name: inputs[name] for name in WEIGHTS}, {n: tensors[n] for n in WEIGHTS})
        outputs["changed"] = written + later
        return outputs

    return ask


# --- 02.1 one step of an LSTM -------------------------------------------------------------------------------

LSTM_STEP = Question("02.1", "lstm_step(x, h, c, W_ih, W_hh, b_ih, b_hh)", _ask_steps(("h", "c")))


# --- 02.2 one step of a GRU ---------------------------------------------------------------------------------

GRU_STEP = Question("02.2", "gru_step(x, h, W_ih, W_hh, b_ih, b_hh)", _ask_steps(("h",)))


# --- 02.3 biases for a wished memory ------------------------------------------------------------------------

MEMORY_BIASES = Question("02.3", "memory_biases(half_lives)", ask_tensors(["half_lives"], ["biases"]))


# --- 02.4 the gradient along the cell path ------------------------------------------------------------------

PATH = ("i", "f", "g", "o", "c_0", "grad_h")

CELL_PATH = Question(
    "02.4", "cell_path_gradient(i, f, g, o, c_0, grad_h)", ask_tensors(PATH, ["grad_c", "grad_f"])
)


# --- 02.5 the bits of a document against those of a state ---------------------------------------------------

SIZES = ("tokens", "vocabulary", "hidden", "bits", "cell")
FIGURES = ("document", "state", "longest")


def _ask_bits(answer: Callable, inputs: Inputs) -> Outputs:
    returned = several(call(answer, *(inputs[name] for name in SIZES)), FIGURES)
    return {name: number(value, name) for name, value in zip(FIGURES, returned, strict=True)}


DOCUMENT_AND_STATE = Question("02.5", "document_and_state(tokens, vocabulary, hidden, bits, cell)", _ask_bits)


QUESTIONS = (LSTM_STEP, GRU_STEP, MEMORY_BIASES, CELL_PATH, DOCUMENT_AND_STATE)
