"""What `check` and `summary` say: findings, a student's exceptions, attempts to fool them."""

import dataclasses
import pickle
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from course_utils import checks
from course_utils.checks import check, engine, lesson04, summary
from course_utils.questions.asking import same

RIGHT = {exercise.id: exercise.variants[-1].answer for exercise in checks.exercises("04")}
SOFTMAX = checks.find("04.1")


def right(scores, mask):
    return lesson04._masked_softmax(scores, mask)


@pytest.fixture(autouse=True)
def nothing_checked_yet(monkeypatch):
    monkeypatch.setattr(checks, "_latest", {})


def verdict(exercise, answer, seed=checks.SEED):
    cases = engine.draw(exercise, seed)
    return engine.judge(exercise, cases, engine.ask(exercise, answer, cases))


def said(capsys, id, answer):
    assert check(id, answer) is None
    return capsys.readouterr().out


# --- what is printed ----------------------------------------------------------------------------------------


def test_a_right_answer_always_reads_the_same(capsys):
    expected = (
        "04.1 masked softmax: 2 of 2 points\n"
        "  [x] the real words share the weight, whatever the scores (1 of 1)\n"
        "  [x] empty sentences, gradients and half precision (1 of 1)\n"
    )
    assert [said(capsys, "04.1", right) for _ in range(2)] == [expected] * 2


def test_a_wrong_answer_shows_the_smallest_failing_case(capsys):
    text = said(capsys, "04.1", lambda scores, mask: torch.softmax(scores * mask[:, None], -1))
    assert "0 of 2 points" in text and "You multiply the scores by the mask" in text
    assert "scores (1, 1, 3)" in text and "mask (1, 3) [[True, True, False]]" in text
    assert "your weights (1, 1, 3)" in text and "expected (1, 1, 3)" in text


def test_an_unknown_mistake_states_the_difference(capsys):
    text = said(capsys, "04.2", lambda *given: lesson04._additive_scores(*given) + 0.25)
    assert "scores differs from what is expected by up to 0.25" in text
    assert "Look at" in text


def test_properties_say_what_is_broken(capsys):
    def by_position(*given):
        scores = lesson04._additive_scores(*given)
        return scores + torch.arange(scores.shape[-1]) * (scores.shape[0] > 1)

    assert "The same words in the reverse order" in said(capsys, "04.2", by_position)

    inputs = engine.draw(SOFTMAX, 0)[0][3]  # one sentence twice, with other scores behind the mask
    weights = lesson04._softmax(inputs["scores"], inputs["mask"])
    assert lesson04._padding_moves_nothing(inputs, {"weights": weights}, {}) is None
    weights[1] = np.roll(weights[1], 1, axis=-1)
    assert "padding alone" in lesson04._padding_moves_nothing(inputs, {"weights": weights}, {}).message


def test_parts_that_pass_keep_their_points(capsys):
    text = said(capsys, "04.1", lambda scores, mask: torch.softmax(lesson04._filled(scores, mask), -1))
    assert "1 of 2 points" in text and "[x] the real words" in text and "[ ] empty sentences" in text


def test_nbgrader_gets_the_points_and_a_notebook_nothing(monkeypatch):
    def partly(scores, mask):
        return torch.softmax(lesson04._filled(scores, mask), -1)

    assert check("04.1", partly) is None
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    assert check("04.1", partly) == 1 and check("04.1", None) == 0


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("return [[[0.5, 0.5, 0.0]]]", "weights is of type list; a torch.Tensor is wanted"),
        ("return scores.detach().numpy()", "weights is of type ndarray; a torch.Tensor is wanted"),
        ("weights = scores", "weights is None. Is a return missing?"),
        (
            "return torch.softmax(scores, -1)[0]",
            "has the shape (1, 3), expected is (1, 1, 3): (batch, target, source)",
        ),
        ("return right(scores, mask).double()", "weights is float64, expected is float32"),
        ("return right(scores, mask) > 0.5", "weights is bool, expected is float32"),
        ("return scores / 0", "weights holds infinity"),
        ("return scores.to_sparse()", "cannot be read"),
    ],
)
def test_results_of_the_wrong_form(source, expected, written, capsys):
    answer = written(f"def answer(scores, mask):\n    {source}\n", torch=torch, right=right)
    assert expected in said(capsys, "04.1", answer)


def test_several_results(capsys):
    assert "return (context, weights), but it returns one Tensor" in said(
        capsys, "04.3", lambda s, f, b, m: s
    )
    assert "but it returns 3 things" in said(capsys, "04.3", lambda s, f, b, m: (s, s, s))
    assert "but it returns None" in said(capsys, "04.3", lambda s, f, b, m: None)
    assert "context is None" in said(capsys, "04.3", lambda s, f, b, m: (None, s))


def test_a_state_of_the_wrong_shape_is_said_before_the_next_step_fails(capsys):
    def answer(*given):
        state, context, weights = lesson04._right_step(*given)
        return torch.cat([state, state], -1), context, weights

    text = said(capsys, "04.4", answer)
    assert "2 of 3 points" in text and "new_state at step 1 has the shape (1, 4), expected is (1, 2)" in text


@pytest.mark.parametrize("id", ["04.1", "04.5"])
def test_inputs_written_into(id, written, capsys):
    sources = {
        "04.1": "def answer(scores, mask):\n    result = right(scores, mask)\n    mask[:] = True\n",
        "04.5": "def answer(a, s, p):\n    result = right(a, s, p)\n    a[0].clear()\n",
    }
    source = sources[id] + "    return result\n"
    text = said(capsys, id, written(source, right={"04.1": right, "04.5": lesson04._rate}[id]))
    assert "It changes its input " in text and "0 of 2 points" in text


def test_prints_and_warnings_do_no_harm(capsys):
    def loud(scores, mask):
        import warnings

        print("shape", tuple(scores.shape))
        print("progress", file=sys.stderr)
        warnings.warn("old", stacklevel=1)
        return right(scores, mask)

    assert check("04.1", loud) is None
    text, errors = capsys.readouterr()
    assert "2 of 2 points" in text and "shape" not in text and errors == ""

    def loud_and_wrong(scores, mask):
        print("shape", tuple(scores.shape))
        return scores

    assert "your code printed shape (1, 1, 3)" in said(capsys, "04.1", loud_and_wrong)


def test_a_disabled_gradient_in_the_notebook_does_no_harm():
    with torch.no_grad():
        assert verdict(SOFTMAX, right).points == 2


def test_a_readers_seed_stays_as_it_is():
    torch.manual_seed(1)
    np.random.seed(1)
    expected = torch.rand(1), np.random.rand()
    torch.manual_seed(1)
    np.random.seed(1)
    for exercise in checks.exercises("04"):
        verdict(exercise, exercise.variants[0].answer if exercise.id != "04.2" else lesson04._additive_scores)
    assert (torch.rand(1), np.random.rand()) == expected


# --- exceptions ---------------------------------------------------------------------------------------------


def test_an_exception_is_shown_with_its_line_only(written, capsys):
    answer = written(
        "def helper(x):\n    return x['no such key']\n\n\ndef answer(scores, mask):\n    return helper({})\n"
    )
    text = said(capsys, "04.1", answer)
    assert "Your code raised KeyError: 'no such key'" in text
    assert "line 2: return x['no such key']" in text
    assert "asking.py" not in text and "engine.py" not in text and "Traceback" not in text


def test_an_exception_inside_torch_points_at_the_readers_line(written, capsys):
    answer = written("def answer(scores, mask):\n\n    return torch.matmul(scores, mask)\n", torch=torch)
    text = said(capsys, "04.1", answer)
    assert "Your code raised RuntimeError" in text and "line 3: return torch.matmul(scores, mask)" in text


def test_a_name_that_is_not_there_yet(written, capsys):
    answer = written("def answer(s, f, b, m):\n    return masked_softmax(s, m)\n")
    text = said(capsys, "04.3", answer)
    assert "NameError" in text and "Has the cell that defines masked_softmax been run?" in text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("raise SystemExit(3)", "ended the program (SystemExit: 3)"),
        ("exit_now()", "ended the program (SystemExit: )"),
        ("raise BaseException('odd')", "raised BaseException: odd"),
        ("raise Mute()", "raised Mute: (its message cannot be shown)"),
        ("raise RuntimeError('x' * 5000)", "raised RuntimeError: xxx"),
        ("raise NotImplementedError('no complex numbers')", "raised NotImplementedError: no complex numbers"),
        ("return answer(scores, mask)", "raised RecursionError"),
    ],
)
def test_whatever_an_answer_raises_ends_in_a_sentence(line, expected, written, capsys):
    class Mute(Exception):
        def __str__(self):
            raise ValueError

    answer = written(f"def answer(scores, mask):\n    {line}\n", Mute=Mute, exit_now=sys.exit)
    text = said(capsys, "04.1", answer)
    assert expected in text and f"line 2: {line}" in text
    assert len(text) < 1500


def test_a_real_interrupt_gets_through(written):
    import signal

    answer = written("def answer(scores, mask):\n    interrupt()\n", interrupt=lambda: signal.raise_signal(2))
    with pytest.raises(KeyboardInterrupt):
        check("04.1", answer)


def test_an_endless_loop_is_stopped_and_asked_no_further(written):
    hurried = dataclasses.replace(SOFTMAX, question=dataclasses.replace(SOFTMAX.question, seconds=0.2))
    answer = written("def answer(scores, mask):\n    n = 0\n    while n >= 0:\n        n += 1\n")
    text = verdict(hurried, answer).text()
    assert "Your code was stopped after 0.2 seconds. Does a loop never end?" in text
    assert "0 of 2 points" in text and "The same as above." in text
    assert "line 3: while n >= 0:" in text or "line 4: n += 1" in text


def test_missing_arguments(capsys):
    text = said(capsys, "04.1", lambda scores: scores)
    assert "called as masked_softmax(scores, mask), but yours takes (scores)" in " ".join(text.split())


def test_modules_and_methods_may_answer(capsys):
    class Answer(torch.nn.Module):
        def forward(self, scores, mask):
            return right(scores, mask)

        def broken(self, scores, mask):
            return 1 / 0

    assert "2 of 2 points" in said(capsys, "04.1", Answer())
    assert "ZeroDivisionError" in said(capsys, "04.1", Answer().broken)


# --- calls that make no sense, and the summary --------------------------------------------------------------


def test_calls_that_make_no_sense(capsys):
    assert "There is no exercise" in said(capsys, "04.9", right)
    assert '"4"' in said(capsys, "4.1", right)
    assert 'check("04.1", your_function)' in said(capsys, right, "04.1")
    assert "without brackets after the name" in said(
        capsys, "04.1", right(torch.zeros(1, 1, 2), torch.ones(1, 2) > 0)
    )

    def masked_softmax(scores, mask):
        return scores

    assert "masked_softmax is the answer to 04.1" in said(capsys, "04.2", masked_softmax)
    assert checks._latest == {}


def test_summary(capsys):
    summary("04")
    assert capsys.readouterr().out.endswith("Lesson 04: 0 of 10 points\n")
    for id, answer in RIGHT.items():
        check(id, answer)
    capsys.readouterr()
    summary("04")
    assert capsys.readouterr().out == (
        "04.1  masked softmax                      2 of 2\n"
        "04.2  additive scores                     2 of 2\n"
        "04.3  context of a bidirectional encoder  1 of 1\n"
        "04.4  one Bahdanau decoder step           3 of 3\n"
        "04.5  alignment error rate                2 of 2\n"
        "Lesson 04: 10 of 10 points\n"
    )


def test_summary_counts_the_latest_check(capsys):
    def stub(scores, mask):
        raise NotImplementedError("04.1: write this")

    check("04.1", right)
    check("04.1", stub)
    check("04.2", lambda *given: None)
    capsys.readouterr()
    summary("04")
    text = capsys.readouterr().out
    assert "masked softmax                      not answered yet (0 of 2)" in text
    assert "additive scores                     0 of 2" in text
    assert "not checked yet (0 of 3)" in text
    summary("77")
    assert 'no lesson "77"' in capsys.readouterr().out


# --- attempts to fool the checks ----------------------------------------------------------------------------


class EqualsEverything:
    shape, dtype = (1, 1, 3), torch.float32

    def __eq__(self, other):
        return True

    def __getattr__(self, name):
        return lambda *arguments, **named: self


class EqualArray(np.ndarray):
    def __eq__(self, other):
        return np.ones(self.shape, bool)

    def __sub__(self, other):
        return np.zeros(self.shape)


class EqualTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), named=None):
        return torch.zeros(1)


class EqualFloat(float):
    def __eq__(self, other):
        return True

    def __float__(self):
        return 0.2857142857142857


def _tensor_with_own_methods(scores, mask):
    fake = torch.zeros_like(scores)
    for name in ("detach", "cpu", "numpy"):
        setattr(fake, name, lambda: right(scores, mask))
    return fake


@pytest.mark.parametrize(
    "answer",
    [
        lambda scores, mask: EqualsEverything(),
        lambda scores, mask: np.zeros(scores.shape, "float32").view(EqualArray),
        lambda scores, mask: torch.zeros_like(scores).as_subclass(EqualTensor),
        _tensor_with_own_methods,
    ],
)
def test_no_object_decides_what_it_equals(answer):
    assert verdict(SOFTMAX, answer).points == 0


def test_no_number_decides_what_it_equals():
    exercise = checks.find("04.5")
    assert verdict(exercise, lambda *sets: EqualFloat(0)).points == 0
    assert verdict(exercise, lambda *sets: True).points == 0
    assert verdict(exercise, lambda *sets: float("nan")).points == 0


def test_replaced_comparisons_give_no_points(monkeypatch):
    for module in (torch, np):
        for name in ("allclose", "isclose", "array_equal", "equal", "isfinite", "isnan", "all", "any"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, lambda *arguments, **named: True)
    monkeypatch.setattr(np.testing, "assert_allclose", lambda *arguments, **named: None)
    wrong = verdict(SOFTMAX, lambda scores, mask: torch.full_like(scores, 0.3))
    nan = verdict(SOFTMAX, lambda scores, mask: torch.full_like(scores, torch.nan))
    monkeypatch.undo()
    assert wrong.points == nan.points == 0


def test_judge_trusts_nothing_that_comes_from_the_other_process():
    cases = engine.draw(SOFTMAX, 0)
    for forged in ({}, {"weights": None}, {"weights": EqualsEverything()}, {"weights": np.array("a")}):
        replies = [[engine.Reply(forged) for _ in part] for part in cases]
        assert engine.judge(SOFTMAX, cases, replies).points == 0


def test_a_part_without_cases_or_outputs_is_an_error():
    part = dataclasses.replace(SOFTMAX.parts[0], draw=lambda seed: [])
    with pytest.raises(ValueError, match="no cases"):
        verdict(dataclasses.replace(SOFTMAX, parts=(part,)), right)
    part = dataclasses.replace(SOFTMAX.parts[0], outputs=("nothing",))
    with pytest.raises(ValueError, match="judges no output"):
        verdict(dataclasses.replace(SOFTMAX, parts=(part,)), right)


# --- draw, ask and judge are apart --------------------------------------------------------------------------


def plain(value):
    if isinstance(value, dict):
        return all(type(key) is str and plain(item) for key, item in value.items())
    if type(value) in (list, tuple):
        return all(map(plain, value))
    return value is None or type(value) in (np.ndarray, bool, int, float, str)


@pytest.mark.parametrize("exercise", checks.exercises("04"), ids=lambda e: e.id)
def test_what_passes_between_the_steps_is_plain(exercise):
    """Through pickle and back, as between two processes, the verdict is the same."""
    cases = engine.draw(exercise, 3)
    for answer in (exercise.variants[0].answer, exercise.mistakes[0].answer):
        replies = engine.ask(exercise, answer, pickle.loads(pickle.dumps(cases)))
        assert all(plain(inputs) for part in cases for inputs in part)
        assert all(plain(reply.outputs) for part in replies for reply in part if reply.outputs is not None)
        sent = pickle.loads(pickle.dumps(replies))
        assert engine.judge(exercise, cases, sent) == engine.judge(exercise, cases, replies)


@pytest.mark.parametrize("exercise", checks.exercises("04"), ids=lambda e: e.id)
def test_draw_depends_on_its_seed_only(exercise):
    first, again, other = (pickle.dumps(engine.draw(exercise, seed)) for seed in (5, 5, 6))
    assert first == again != other


# --- the references, against torch and against the package --------------------------------------------------


@given(
    hnp.arrays("float64", (2, 3, 4), elements=st.floats(-700, 700)),
    hnp.arrays(bool, (2, 4)),
)
def test_reference_softmax(scores, mask):
    weights = lesson04._softmax(scores, mask)
    assert (weights >= 0).all() and (weights[:, :, ~mask.any(0)] == 0).all()
    np.testing.assert_allclose(weights.sum(-1), np.broadcast_to(mask.any(-1)[:, None], (2, 3)), atol=1e-12)
    from course_utils.models import masked_softmax

    ours = masked_softmax(torch.tensor(scores), torch.tensor(mask)[:, None])
    np.testing.assert_allclose(weights, ours.numpy(), atol=1e-12)


@pytest.mark.parametrize("id", ["04.1", "04.2", "04.4"])
def test_numeric_gradients_are_those_of_autograd(id):
    exercise = checks.find(id)
    for part in engine.draw(exercise, 8):
        for inputs in part:
            if "upstream" not in inputs:
                continue
            double = {
                name: value.astype("float64") if value.dtype.kind == "f" else value
                for name, value in inputs.items()
            }
            found = engine.ask_once(exercise, exercise.variants[-1].answer, double).outputs
            expected = exercise.reference(double)
            for name in (name for name in expected if name.startswith("gradient")):
                np.testing.assert_allclose(found[name], expected[name], atol=1e-7)


@given(st.integers(0, 10_000))
def test_reference_error_rate_is_the_packages(seed):
    from course_utils.metrics import alignment_error_rate

    for inputs in lesson04._draw_corpus(seed)[:3]:
        sets = [[set(sentence) for sentence in inputs[name]] for name in lesson04.LINKS]
        assert lesson04._rate_reference(inputs)["rate"] == pytest.approx(alignment_error_rate(*sets))


@given(hnp.arrays("float64", (3, 2), elements=st.floats(allow_nan=True, allow_infinity=True, width=32)))
def test_same(a):
    assert same(a, a.copy(), 0.0)
    moved = a.copy()
    moved[1, 1] = 0.0 if a[1, 1] != 0 else 1.0
    assert not same(a, moved, min(1e-6, abs(a[1, 1]) / 2 or 1e-6) if a[1, 1] == a[1, 1] else 1e-6)
    assert not same(a, a[:2], 1.0)
    assert not same(a, a.tolist(), 1.0)


# --- the answer key of a class ------------------------------------------------------------------------------


def test_one_key_judges_a_class_as_fresh_keys_do():
    cases = engine.draw(SOFTMAX, 5)
    key = engine.Key(SOFTMAX, cases)
    answers = [mistake.answer for mistake in SOFTMAX.mistakes] + [right, lambda scores, mask: scores]
    for answer in answers * 2:
        replies = engine.ask(SOFTMAX.question, answer, cases)
        assert engine.judge(SOFTMAX, cases, replies, key) == engine.judge(SOFTMAX, cases, replies)


def test_a_key_works_everything_out_once():
    asked = []

    def counted(reply):
        def count(*given):
            asked.append(reply)
            return reply(*given)

        return count

    mistakes = tuple(
        dataclasses.replace(mistake, answer=counted(mistake.answer)) for mistake in SOFTMAX.mistakes
    )
    exercise = dataclasses.replace(SOFTMAX, mistakes=mistakes, reference=counted(SOFTMAX.reference))
    cases = engine.draw(exercise, 5)
    replies = engine.ask(exercise.question, SOFTMAX.mistakes[0].answer, cases)
    key = engine.Key(exercise, cases)
    engine.judge(exercise, cases, replies, key)
    before = len(asked)
    for _ in range(3):
        engine.judge(exercise, cases, replies, key)
    assert before and len(asked) == before
