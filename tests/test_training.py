"""The training loop: what it promises about budgets, interruptions, checkpoints and mishaps."""

import json
import math
import os
import re
import signal
import warnings
from typing import NamedTuple

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm.auto import tqdm

from course_utils import figures, training
from course_utils.corpus import Batches, Pair, Vocabulary
from course_utils.models.seq2seq import bahdanau, fixed_vector
from course_utils.training import History, TrainingDiverged, load, loss, mean_loss, rate_share, train

WORDS = ["a", "b", "c", "d", "e", "f", "g"]
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=on_gpu)]


class Output(NamedTuple):
    logits: Tensor
    weights: Tensor | None = None


class Tiny(nn.Module):
    """Guesses each word from the word before it and the mean of the source, with dropout."""

    def __init__(self, size: int, width: int = 12, dropout: float = 0.3):
        super().__init__()
        self.embedding = nn.Embedding(size, width)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, size)
        self.out.weight = self.embedding.weight  # tied, as larger models have it

    def forward(self, source, source_mask, target_in) -> Output:
        kept = source_mask[:, :, None]
        mean = (self.embedding(source) * kept).sum(1, keepdim=True) / kept.sum(1, keepdim=True)
        return Output(self.out(self.dropout(self.embedding(target_in) + mean)))


def pairs(count: int, seed: int = 0) -> list[Pair]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 7, (count,), generator=generator).tolist()
    words = [[WORDS[i] for i in torch.randint(len(WORDS), (n,), generator=generator)] for n in lengths]
    return [Pair(tuple(w), tuple(sorted(w))) for w in words]


VOCABULARY = Vocabulary.from_sentences([WORDS])
TRAIN = Batches(pairs(40), VOCABULARY, VOCABULARY, max_tokens=80, seed=1)
VALID = Batches(pairs(20, seed=1), VOCABULARY, VOCABULARY, max_tokens=80, shuffle=False)
SETTINGS = {"steps": 3 * len(TRAIN), "valid": VALID, "every": 5, "learning_rate": 0.02}


def fresh(**options) -> Tiny:
    torch.manual_seed(0)
    return Tiny(len(VOCABULARY), **options)


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one: nn.Module, other: nn.Module) -> bool:
    theirs = other.state_dict()
    return all(torch.equal(value, theirs[name]) for name, value in one.state_dict().items())


def trained(batches=TRAIN, **options) -> tuple[Tiny, History]:
    """A model and its history, from the same weights and random state at every call."""
    model = fresh()
    return model, train(model, batches, **options)


class Stopping:
    """The batches of `inner`, until a Ctrl-C before the batch of a certain step."""

    def __init__(self, inner: Batches, step: int, how=KeyboardInterrupt):
        self.inner, self.step, self.how = inner, step, how

    def __len__(self) -> int:
        return len(self.inner)

    def epoch(self, number: int):
        for position, batch in enumerate(self.inner.epoch(number)):
            if number * len(self) + position == self.step:
                raise self.how
            yield batch


# ---- the loss


@given(st.floats(0, 0.9), st.integers(0, 4), st.integers(0, 2**31))
def test_loss_is_torchs_and_padding_does_not_change_it(smoothing, padding, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 5, 7, generator=generator)
    expected = torch.randint(7, (3, 5), generator=generator)
    full = loss(logits, expected, torch.ones(3, 5, dtype=torch.bool), smoothing)
    assert full == F.cross_entropy(logits.reshape(-1, 7), expected.reshape(-1), label_smoothing=smoothing)
    wider = F.pad(logits, (0, 0, 0, padding), value=50.0)
    mask = F.pad(torch.ones(3, 5, dtype=torch.bool), (0, padding))
    padded = loss(wider, F.pad(expected, (0, padding), value=3), mask, smoothing)
    torch.testing.assert_close(padded, full)


def test_smoothed_loss_by_hand():
    """Share e of the probability is spread evenly over the V words, the rest stays on the right one."""
    logits = torch.tensor([[[2.0, 0.0, -1.0]]])
    expected, mask = torch.tensor([[0]]), torch.tensor([[True]])
    surprise = -logits.log_softmax(-1)[0, 0]
    by_hand = 0.7 * surprise[0] + 0.3 * surprise.mean()
    torch.testing.assert_close(loss(logits, expected, mask, 0.3), by_hand)


def test_mean_loss_weighs_tokens_not_batches():
    model = fresh().eval()
    one = Batches(pairs(20, seed=1), VOCABULARY, VOCABULARY, max_tokens=10**6)
    assert len(one) == 1 < len(VALID)
    assert mean_loss(model, VALID) == pytest.approx(mean_loss(model, one), rel=1e-5)


# ---- the learning rate


def test_the_rate_rises_then_falls_to_its_final_share():
    shares = [rate_share(p, warmup=0.2, final_rate=0.1) for p in (0, 0.1, 0.2, 0.6, 1)]
    assert shares == pytest.approx([0, 0.5, 1, 0.55, 0.1])


@given(st.floats(0, 1), st.floats(0, 0.9), st.floats(0, 1))
def test_the_rate_stays_between_0_and_its_peak(progress, warmup, final):
    share = rate_share(progress, warmup=warmup, final_rate=final)
    assert 0 <= share <= 1
    if progress >= warmup:
        assert share >= final - 1e-9


def test_the_rates_of_a_run(monkeypatch):
    """No step has rate 0; the peak is at the end of the warm-up, the last step at the final rate."""
    seen = []
    step = torch.optim.AdamW.step
    monkeypatch.setattr(
        torch.optim.AdamW, "step", lambda self, *a: (seen.append(self.param_groups[0]["lr"]), step(self, *a))
    )
    train(fresh(), TRAIN, steps=10, learning_rate=0.1, warmup=0.2, final_rate=0.5)
    assert seen == pytest.approx([0.05, *(0.1 * (1 - 0.5 * k / 8) for k in range(9))])


# ---- what a run gives back


@pytest.mark.parametrize("device", DEVICES)
def test_training_learns_and_tells(device):
    model = fresh(dropout=0.0).to(device)
    before = mean_loss(model, VALID)
    history = train(model, TRAIN, **SETTINGS, measure=lambda m: {"size": m.out.out_features})
    assert history.stopped == "budget"
    assert history.steps == list(range(1, SETTINGS["steps"] + 1)) and len(history.loss) == SETTINGS["steps"]
    assert mean_loss(model, VALID) < before - 0.1
    assert history.tokens == 3 * sum(len(p.target) + 1 for p in TRAIN.pairs)
    assert history.tokens_per_second == history.tokens / history.seconds > 0
    steps = [*range(5, SETTINGS["steps"], 5), SETTINGS["steps"]]
    assert [step for step, _ in history.valid] == steps
    assert history.measured("size") == (steps, [len(VOCABULARY)] * len(steps))
    assert not model.training and all(p.grad is None for p in model.parameters())


@on_gpu
@pytest.mark.parametrize("precision", [None, "bf16", "fp16"])
def test_precisions_on_a_gpu_learn_and_keep_weights_in_float32(precision):
    model = fresh(dropout=0.0).cuda()
    before = mean_loss(model, VALID)
    history = train(model, TRAIN, **SETTINGS | {"steps": 60}, precision=precision)
    assert len(history.loss) == 60
    assert mean_loss(model, VALID) < before - 0.1
    assert {p.dtype for p in model.parameters()} == {torch.float32}


@on_gpu
def test_a_step_on_a_gpu_does_not_wait_for_it():
    model = fresh(dropout=0.0).cuda()
    train(model, TRAIN, steps=3)  # starts CUDA's libraries
    run = training._Run(model, TRAIN, None, _settings(steps=10), None, training._Files(None), "")
    stream = iter(list(TRAIN.epoch(0)))
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(4):
            run._advance(stream)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert run.step == 4


def _settings(**changes) -> training._Settings:
    plain = {
        "steps": None, "seconds": None, "learning_rate": 0.01, "final_rate": 0.05, "warmup": 0.0,
        "label_smoothing": 0.0, "clip": 1.0, "weight_decay": 0.0, "precision": None, "every": 100,
        "patience": None,
    }  # fmt: skip
    return training._Settings(**plain | changes)


def test_a_budget_in_seconds_stops_in_time_and_ends_with_a_validation():
    history = train(fresh(), TRAIN, seconds=0.2, valid=VALID, every=10**6)
    assert history.stopped == "budget" and 0.2 <= history.seconds < 2
    assert [step for step, _ in history.valid] == [len(history.loss)]


def test_measuring_does_not_change_what_is_learned():
    options = {"steps": 12, "learning_rate": 0.02}
    quiet, _ = trained(**options)
    watched, history = trained(**options, every=1, measure=lambda m: {"noise": torch.rand(1).item()})
    assert same(quiet, watched) and len(history.valid) == 12


def test_measure_may_take_gradients_and_sees_the_model_in_evaluation_mode():
    def measure(model):
        assert not model.training
        model.out.weight.square().sum().backward()
        return {"norm": model.out.weight.grad.norm()}

    plain, _ = trained(steps=6)
    probed, history = trained(steps=6, every=2, measure=measure)
    assert same(plain, probed)
    assert all(isinstance(value, float) for value in history.measured("norm")[1])


def test_gradients_are_clipped_by_their_global_norm(monkeypatch):
    norms = []
    step = torch.optim.AdamW.step

    def watched(self, *a):
        every = [p.grad.norm() for group in self.param_groups for p in group["params"]]
        norms.append(torch.stack(every).norm().item())
        return step(self, *a)

    monkeypatch.setattr(torch.optim.AdamW, "step", watched)
    train(fresh(), TRAIN, steps=3, clip=0.01)
    assert norms == pytest.approx([0.01] * 3, rel=1e-3)
    norms.clear()
    train(fresh(), TRAIN, steps=3, clip=None)
    assert min(norms) > 0.05


def test_vectors_do_not_decay():
    """Without data to learn from (rate alone acts through decay), matrices shrink and biases stay."""
    model = fresh()
    nn.init.ones_(model.out.bias)
    groups = training._optimizer(model, _settings(steps=1, weight_decay=0.5)).param_groups
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    assert decay[id(model.out.weight)] == 0.5 and decay[id(model.out.bias)] == 0


def test_frozen_parameters_stay():
    model = fresh()
    model.out.bias.requires_grad_(False)
    before = weights(model)
    train(model, TRAIN, steps=5, learning_rate=0.05)
    assert torch.equal(model.out.bias, before["out.bias"])
    assert not torch.equal(model.out.weight, before["out.weight"])


def test_where_fused_adamw_is_missing_the_plain_one_steps_in(monkeypatch):
    original = torch.optim.AdamW

    def without_fused(groups, lr, fused=False):
        if fused:
            raise RuntimeError("`fused=True` is not supported here")
        return original(groups, lr=lr)

    usual, _ = trained(steps=6)
    monkeypatch.setattr(torch.optim, "AdamW", without_fused)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model, _ = trained(steps=6)
    for one, other in zip(usual.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_progress_is_silent_under_test_and_shown_otherwise(monkeypatch, capsys):
    train(fresh(), TRAIN, steps=4, valid=VALID)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("course_utils.runtime.under_test", lambda: False)
    train(fresh(), TRAIN, steps=4, label="a tiny model")
    assert "a tiny model" in capsys.readouterr().err
    train(fresh(), TRAIN, seconds=0.05)
    assert " s, loss " in capsys.readouterr().err
    train(fresh(), TRAIN, steps=4, progress=False)
    assert capsys.readouterr() == ("", "")


# ---- the best weights, and stopping early


def test_the_model_ends_with_its_best_weights():
    """At this rate the validation loss of a model that learns by heart falls, then rises."""
    few = Batches(pairs(6), VOCABULARY, VOCABULARY, max_tokens=200)
    model, seen = fresh(dropout=0.0), {}

    def measure(m):
        seen[len(seen)] = weights(m)
        return {}

    history = train(model, few, steps=60, valid=VALID, every=5, learning_rate=0.1, measure=measure)
    losses = history.measured("loss")[1]
    best = losses.index(min(losses))
    assert 0 < best < len(losses) - 1
    assert history.best == history.valid[best]
    assert mean_loss(model, VALID) == losses[best]
    assert all(torch.equal(seen[best][name], value) for name, value in model.state_dict().items())


def test_patience_stops_after_fruitless_validations(tmp_path):
    few = Batches(pairs(6), VOCABULARY, VOCABULARY, max_tokens=200)
    budget = {"steps": 500, "valid": VALID, "every": 2, "learning_rate": 0.1, "patience": 3}
    file = tmp_path / "weights.safetensors"
    model = fresh(dropout=0.0)
    history = train(model, few, **budget, checkpoint=file)
    assert history.stopped == "patience" and len(history.loss) < 500
    steps, losses = history.measured("loss")
    assert history.best[0] == steps[-4] and min(losses[-3:]) >= losses[-4]
    again = train(fresh(dropout=0.0), few, **budget, checkpoint=file)
    assert again == history


def test_a_resumed_run_remembers_the_best_weights_of_before(tmp_path):
    few = Batches(pairs(6), VOCABULARY, VOCABULARY, max_tokens=200)
    options = {"steps": 60, "valid": VALID, "every": 5, "learning_rate": 0.1}
    whole, expected = trained(few, **options)
    assert expected.best[0] < 50
    file = tmp_path / "weights.safetensors"
    trained(Stopping(few, 50), **options, checkpoint=file)
    model, history = trained(few, **options, checkpoint=file)
    assert same(whole, model) and history.best[0] == expected.best[0]
    assert mean_loss(model, VALID) == history.best[1]["loss"]


def test_without_validation_the_last_weights_stay_and_are_stored(tmp_path):
    file = tmp_path / "deep" / "weights.safetensors"
    model = fresh()
    history = train(model, TRAIN, steps=7, checkpoint=file)
    assert history.valid == [] and history.best is None
    other = fresh()
    load(other, file)
    assert same(model, other)


# ---- interruption


def resumed_like_never_stopped(tmp_path, interrupted_data, **options) -> None:
    """Train in one go; train with an interruption and resume: both must agree in every bit."""
    whole, expected = trained(**options)
    file = tmp_path / "weights.safetensors"
    _, first = trained(interrupted_data, **options, checkpoint=file)
    assert first.stopped == "interrupted" and len(first.loss) < len(expected.loss)
    torch.manual_seed(99)  # another process, another random state and other weights
    other = Tiny(len(VOCABULARY))
    history = train(other, TRAIN, **options, checkpoint=file)
    assert same(other, whole)
    assert history.loss == expected.loss and history.tokens == expected.tokens
    assert [n["loss"] for _, n in history.valid] == [n["loss"] for _, n in expected.valid]
    assert history.stopped == "budget"
    stored = fresh()
    load(stored, file)
    assert same(stored, whole)


@pytest.mark.parametrize("step", [1, 5, 6, len(TRAIN) - 1, len(TRAIN), len(TRAIN) + 1, 2 * len(TRAIN) + 3])
def test_an_interrupted_run_resumes_to_the_same_bits(tmp_path, step):
    resumed_like_never_stopped(tmp_path, Stopping(TRAIN, step), **SETTINGS)


@pytest.mark.parametrize("build", [bahdanau, fixed_vector])
def test_translation_models_learn_and_resume_to_the_same_bits(tmp_path, build):
    options = {"steps": 2 * len(TRAIN), "valid": VALID, "every": 4, "learning_rate": 0.01}
    file = tmp_path / "weights.safetensors"

    def run(data=TRAIN, **more):
        torch.manual_seed(0)
        model = build(len(VOCABULARY), len(VOCABULARY), embedding=16, hidden=16, dropout=0.2)
        return model, train(model, data, **options, **more)

    whole, expected = run()
    run(Stopping(TRAIN, len(TRAIN) + 2), checkpoint=file)
    model, history = run(checkpoint=file)
    assert same(whole, model) and history.loss == expected.loss
    losses = history.measured("loss")[1]
    assert losses[-1] < losses[0]


def test_a_run_interrupted_by_a_real_signal_resumes_to_the_same_bits(tmp_path):
    class Signalled(Stopping):
        def epoch(self, number):
            for position, batch in enumerate(self.inner.epoch(number)):
                if number * len(self) + position == self.step:
                    os.kill(os.getpid(), signal.SIGINT)
                yield batch

    before = signal.getsignal(signal.SIGINT)
    resumed_like_never_stopped(tmp_path, Signalled(TRAIN, 8), **SETTINGS)
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_within_a_step_waits_until_the_weights_are_whole(tmp_path, monkeypatch):
    step = torch.optim.AdamW.step
    calls = []

    def pressed(self, *a):
        step(self, *a)
        calls.append(1)
        if len(calls) == 4:  # the weights have moved, the count of steps has not
            os.kill(os.getpid(), signal.SIGINT)

    file = tmp_path / "weights.safetensors"
    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", pressed)
        history = train(fresh(), TRAIN, **SETTINGS, checkpoint=file)
    assert len(history.loss) == 4 == len(calls) and history.stopped == "interrupted"
    whole, _ = trained(**SETTINGS)
    model, _ = trained(**SETTINGS, checkpoint=file)
    assert same(whole, model)


def test_ctrl_c_while_measuring_loses_no_validation(tmp_path):
    def impatient(model):
        impatient.calls += 1
        if impatient.calls == 2:
            raise KeyboardInterrupt
        return {"one": 1.0}

    impatient.calls = 0
    file = tmp_path / "weights.safetensors"
    _, first = trained(**SETTINGS, measure=impatient, checkpoint=file)
    assert [step for step, _ in first.valid] == [5] and len(first.loss) == 10
    whole, expected = trained(**SETTINGS, measure=lambda m: {"one": 1.0})
    model, history = trained(**SETTINGS, measure=impatient, checkpoint=file)
    assert same(whole, model)
    assert history.measured("loss") == expected.measured("loss")
    assert history.measured("one") == expected.measured("one")


def test_interrupted_without_a_checkpoint_the_model_is_usable_and_the_message_is_clear(capsys):
    model = fresh()
    history = train(model, Stopping(TRAIN, 7), **SETTINGS, label="a tiny model")
    assert history.stopped == "interrupted" and len(history.loss) == 7
    assert not model.training and mean_loss(model, VALID) == history.best[1]["loss"]
    said = capsys.readouterr().out
    assert "a tiny model was interrupted after step 7" in said and "best weights, of step 5" in said
    assert "Without a checkpoint" in said


def test_an_error_in_the_data_keeps_what_was_learned(tmp_path):
    file = tmp_path / "weights.safetensors"
    with pytest.raises(ZeroDivisionError):
        train(fresh(), Stopping(TRAIN, 8, ZeroDivisionError), **SETTINGS, checkpoint=file)
    whole, _ = trained(**SETTINGS)
    model, _ = trained(**SETTINGS, checkpoint=file)
    assert same(whole, model)


def test_a_finished_run_is_not_trained_again_unless_asked(tmp_path, capsys):
    file = tmp_path / "weights.safetensors"
    model, history = trained(**SETTINGS, checkpoint=file)
    other = Tiny(len(VOCABULARY))
    assert train(other, Stopping(TRAIN, 1), **SETTINGS, checkpoint=file) == history
    assert same(model, other)
    assert "had ended" in capsys.readouterr().out
    _, anew = trained(**SETTINGS, checkpoint=file, resume=False)
    assert anew.loss == history.loss and anew.seconds != history.seconds


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 0.5}, "learning_rate was 0.02 and is 0.5"),
        ({"steps": 99}, "steps was .* and is 99"),
        ({"valid": None}, "valid was"),
        ({"batches": VALID}, "batches was"),
        ({"model": Tiny(len(VOCABULARY), width=5)}, "model was"),
    ],
)
def test_a_state_of_another_run_is_refused_and_kept(tmp_path, change, message):
    file = tmp_path / "weights.safetensors"
    arguments = {"model": fresh(), "batches": TRAIN, **SETTINGS, "checkpoint": file}
    train(**arguments | {"batches": Stopping(TRAIN, 6)})
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=message):
        train(**arguments | change)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept


def test_a_broken_state_file_is_named(tmp_path):
    file = tmp_path / "weights.safetensors"
    state = tmp_path / "weights.state.safetensors"
    state.write_bytes(b"not a state")
    with pytest.raises(ValueError, match=r"weights\.state\.safetensors cannot be read.*resume=False"):
        train(fresh(), TRAIN, **SETTINGS, checkpoint=file)
    safetensors.torch.save_file({"x": torch.zeros(1)}, state)
    with pytest.raises(ValueError, match="cannot be read"):
        train(fresh(), TRAIN, **SETTINGS, checkpoint=file)
    train(fresh(), TRAIN, **SETTINGS, checkpoint=file, resume=False)


def test_files_are_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "weights.safetensors"
    train(fresh(), TRAIN, steps=5, checkpoint=file)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(before) == {"weights.safetensors", "weights.state.safetensors"}

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(UserWarning, match="No space left.*training goes on"):
        history = train(fresh(), TRAIN, steps=6, checkpoint=file, resume=False)
    assert len(history.loss) == 6
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_state_holds_no_code(tmp_path):
    """Tensors and JSON alone: loading a stranger's file can run nothing."""
    file = tmp_path / "weights.safetensors"
    train(fresh(), TRAIN, **SETTINGS, checkpoint=file)
    with safetensors.safe_open(tmp_path / "weights.state.safetensors", "pt") as state:
        assert json.loads(state.metadata()["run"])["step"] == SETTINGS["steps"]
        assert any(name.startswith("optimizer/") for name in state.keys())  # noqa: SIM118


# ---- mishaps


class Poisoned(Tiny):
    """Its loss turns into `value` at one step of training."""

    def __init__(self, at: int, value: float):
        torch.manual_seed(0)
        super().__init__(len(VOCABULARY))
        self.at, self.value, self.calls = at, value, 0

    def forward(self, *inputs):
        logits = super().forward(*inputs).logits
        if self.training:
            self.calls += 1
            if self.calls == self.at:
                logits = logits * self.value
        return Output(logits)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e4])
def test_a_run_that_goes_astray_says_where_and_keeps_its_best_weights(device, value):
    model = Poisoned(at=8, value=value).to(device)
    with pytest.raises(TrainingDiverged, match=r"at step 8: loss .* rate .* gradient norm") as caught:
        train(model, TRAIN, **SETTINGS)
    assert "Try a lower learning_rate, such as 0.007" in str(caught.value)
    history = caught.value.history
    assert len(history.loss) == 8 and [step for step, _ in history.valid] == [5]
    assert mean_loss(model, VALID) == pytest.approx(history.best[1]["loss"])


def test_without_validation_the_weights_before_the_bad_step_stay():
    model = Poisoned(at=8, value=math.nan)
    with pytest.raises(TrainingDiverged, match="keeps its last finite weights"):
        train(model, TRAIN, steps=20, warmup=0, final_rate=1)
    good = Poisoned(at=0, value=1)
    train(good, TRAIN, steps=7, warmup=0, final_rate=1)
    assert same(model, good)


@pytest.mark.parametrize("device", DEVICES)
def test_a_gradient_that_is_nan_never_reaches_the_weights(device):
    """The loss is finite, its gradient is not: the square root at 0."""

    class Rooted(Tiny):
        def forward(self, *inputs):
            logits = super().forward(*inputs).logits
            return Output(logits + (logits * 0).sqrt().sum())

    torch.manual_seed(0)
    model = Rooted(len(VOCABULARY)).to(device)
    before = weights(model)
    with pytest.raises(TrainingDiverged, match=r"gradient norm nan.*Check whether the data"):
        train(model, TRAIN, steps=5)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def as_on_cuda(model: nn.Module, checkpoint=None, *, steps: int) -> training._Run:
    """A run that does on the CPU what CUDA runs do: losses are read late, the scaler leaves bad steps out."""
    files = training._Files(checkpoint)
    run = training._Run(model, TRAIN, VALID, _settings(steps=steps, every=5), None, files, "")
    run.read_every = 20
    run.scaler = torch.amp.GradScaler("cpu", init_scale=1.0, growth_interval=2**31 - 1)
    if files.there():
        run.resume()
    return run


def test_reading_losses_late_changes_nothing_in_a_good_run():
    options = {"steps": 12, "every": 5, "warmup": 0, "learning_rate": 0.01, "weight_decay": 0}
    plain, expected = trained(**options, valid=VALID)
    model = fresh()
    run = as_on_cuda(model, steps=12)
    run.go(tqdm(disable=True))
    run.end()
    assert run.history.loss == pytest.approx(expected.loss, rel=1e-4)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, plain.state_dict()[name], rtol=1e-3, atol=1e-5)


def test_reading_losses_late_still_names_the_step_and_spares_the_weights():
    model = Poisoned(at=8, value=math.nan)
    run = as_on_cuda(model, steps=20)
    with pytest.raises(TrainingDiverged, match="at step 8: loss nan"):
        run.go(tqdm(disable=True))
    assert run.step == 10 and all(value.isfinite().all() for value in model.state_dict().values())
    run.end()
    assert mean_loss(model, VALID) == run.history.best[1]["loss"]


def test_the_scaler_is_part_of_the_state(tmp_path):
    file = tmp_path / "weights.safetensors"
    run = as_on_cuda(fresh(), file, steps=20)
    run.scaler.scale(torch.ones(1))  # makes its tensors
    run.scaler.update(0.25)
    stream = run._stream()
    for _ in range(7):
        run._advance(stream)
    run.save()
    assert len(run.history.loss) == 7  # saving reads what was not read yet
    resumed = as_on_cuda(fresh(), file, steps=20)
    assert resumed.step == 7 and resumed.scaler.state_dict() == run.scaler.state_dict()


def test_an_absurd_learning_rate_is_noticed():
    with pytest.raises(TrainingDiverged, match="learning rate"):
        train(fresh(), TRAIN, steps=300, learning_rate=30.0, warmup=0)


def test_a_mishap_leaves_the_last_good_state_on_disk(tmp_path):
    file = tmp_path / "weights.safetensors"
    with pytest.raises(TrainingDiverged):
        train(Poisoned(at=8, value=math.nan), TRAIN, **SETTINGS, checkpoint=file)
    whole, _ = trained(**SETTINGS)
    model, history = trained(**SETTINGS, checkpoint=file)
    assert len(history.loss) == SETTINGS["steps"]
    assert same(whole, model)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "steps=None and seconds=None: give exactly one"),
        ({"steps": 5, "seconds": 5.0}, "give exactly one"),
        ({"steps": 0}, "steps=0 must be greater than 0"),
        ({"seconds": -1.0}, "seconds=-1.0 must be"),
        ({"steps": 5, "every": 0}, "every=0"),
        ({"steps": 5, "learning_rate": math.nan}, "learning_rate=nan"),
        ({"steps": 5, "warmup": 200}, "warmup=200 is a share"),
        ({"steps": 5, "label_smoothing": 1.0}, "label_smoothing=1.0 is a share"),
        ({"steps": 5, "precision": "fp8"}, "precision is 'fp8'"),
        ({"steps": 5, "patience": 3}, "patience=3 needs a validation loss"),
        ({"steps": 5, "checkpoint": "weights.pt"}, "must be a file name that ends in .safetensors"),
    ],
)
def test_bad_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        train(fresh(), TRAIN, **options)


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [(0.5, TypeError, "returned float"), ({"loss": 1.0}, ValueError, "training records itself")],
)
def test_what_measure_returns_is_checked(answer, error, message):
    with pytest.raises(error, match=message):
        train(fresh(), TRAIN, steps=2, measure=lambda model: answer)


# ---- the history


def test_the_table_lines_up_and_holds_every_number():
    history = History(
        loss=[4.0, 2.0, 1.0],
        valid=[
            (2, {"seconds": 1.5, "loss": 2.5, "bleu": 10.0}),
            (3, {"seconds": 2.0, "loss": 2.25, "bleu": 50.0}),
        ],
    )
    heading, *rows = history.table().splitlines()
    assert re.split(" {2,}", heading) == ["step", "training loss", "seconds", "validation loss", "bleu"]
    assert [row.split() for row in rows] == [["2", "3", "1.5", "2.5", "10"], ["3", "1", "2", "2.25", "50"]]
    assert {len(row) for row in rows} == {len(heading)}


def test_the_plot_shows_losses_and_each_measured_number(monkeypatch):
    shown = []
    monkeypatch.setattr(figures.base, "show", lambda figure, alt: shown.append(alt))
    history = History(
        loss=[4.0 - k / 100 for k in range(200)],
        valid=[
            (100, {"seconds": 1.0, "loss": 2.5, "bleu": 10.0}),
            (200, {"seconds": 2.0, "loss": 2.0, "bleu": 40.0}),
        ],
    )
    history.plot(title="A run")
    assert len(shown) == 2
    assert "training: from 3.99" in shown[0] and "validation: 2.5 at 100, 2 at 200" in shown[0]
    assert "bleu: 10 at 100, 40 at 200" in shown[1]


def test_an_empty_history_says_so():
    with pytest.raises(ValueError, match="nothing was trained yet"):
        History().plot()


@settings(max_examples=30)
@given(st.integers(1, 400), st.integers(1, 60))
def test_smoothing_keeps_the_mean_and_the_range_of_steps(steps, points):
    history = History(loss=[float(k) for k in range(1, steps + 1)])
    x, y = history._smoothed(points)
    assert len(x) <= points and x == pytest.approx(y)  # the loss of step k is k
    assert 1 <= x[0] <= x[-1] <= steps
