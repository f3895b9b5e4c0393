"""One training loop for every model of the course: it measures, stops in time, and loses no work.

A model is anything whose `forward(source, source_mask, target_in)` returns an object with `logits`
(batch, target, vocabulary). Nothing here knows what kind of network it is.
"""

import dataclasses
import json
import math
import os
import signal
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm.auto import tqdm

from course_utils import figures, runtime
from course_utils.corpus import Batch, Batches

Measure = Callable[[nn.Module], Mapping[str, float]]

_READ_EVERY = 20  # on CUDA, steps between two looks at the loss: each look waits for the GPU
_EXPLODED = 10  # a loss of so many times log(vocabulary), which even guessing reaches, is past saving


class TrainingDiverged(RuntimeError):
    """The loss became NaN, infinite or absurdly large; `history` holds what was measured until then."""

    def __init__(self, message: str, history: "History"):
        super().__init__(message)
        self.history = history


def train(
    model: nn.Module,
    batches: Batches,
    *,
    steps: int | None = None,
    seconds: float | None = None,
    valid: Batches | None = None,
    learning_rate: float = 2e-3,
    final_rate: float = 0.05,
    warmup: float = 0.02,
    label_smoothing: float = 0.0,
    clip: float | None = 1.0,
    weight_decay: float = 0.01,
    precision: runtime.Precision | None = None,
    every: int = 100,
    measure: Measure | None = None,
    checkpoint: Path | str | None = None,
    resume: bool = True,
    patience: int | None = None,
    progress: bool = True,
    label: str = "",
) -> "History":
    """Trains a model in place, on the device it is on, for a number of steps or seconds.

    AdamW (Loshchilov and Hutter 2019; weight decay on matrices only), the gradient clipped by its global
    norm, the learning rate rising linearly over the warm-up and falling linearly after it. With `valid`, the
    model ends with the weights that had the lowest validation loss, without it with the last ones, and in
    evaluation mode.

    Ctrl-C ends the training early and returns what there is. With a `checkpoint` the same call goes on where
    it was interrupted, and on the CPU with a step budget ends with the same weights, bit for bit, as if it
    had never stopped. Measuring draws from its own random state: it never changes what is learned.

    Args:
        model: gives `logits` for (source, source_mask, target_in).
        batches: the training data, as often as the budget asks for.
        steps, seconds: the budget; exactly one of them. Seconds count training alone, not measuring.
        valid: held-out data for the validation loss (plain cross-entropy in nats a token, without smoothing).
        learning_rate: at its peak.
        final_rate: the learning rate at the end, as a share of the peak.
        warmup: the share of the budget over which the rate rises.
        label_smoothing: the share of the probability spread over all words (Szegedy et al. 2016).
        clip: the largest global gradient norm; None does not clip.
        precision: "bf16" or "fp16" (with loss scaling) on CUDA; elsewhere training is in float32 anyway.
        every: steps between two validations, which are also the points at which the checkpoint is written.
        measure: further numbers to record at each validation, such as BLEU: it gets the model in evaluation
            mode and returns a dict of floats.
        checkpoint: a .safetensors file for the weights that the model would end with. The state to resume
            from lies beside it, in .state.safetensors. Both are replaced as a whole or not at all.
        resume: go on from that state where there is one; False starts anew and overwrites it.
        patience: stop when so many validations in a row brought no lower validation loss.
        progress: show a progress bar (never under test).
        label: names the run in the progress bar and in messages.

    Raises:
        ValueError: settings contradict each other, or a state of other settings, another model or other data
            lies at `checkpoint`.
        TrainingDiverged: the loss became NaN, infinite or absurdly large. The model is left with finite
            weights, its best ones where there was a validation.
    """
    settings = _Settings(
        steps, seconds, learning_rate, final_rate, warmup, label_smoothing, clip, weight_decay, precision,
        every, patience,
    )  # fmt: skip
    if patience is not None and valid is None:
        raise ValueError(f"patience={patience} needs a validation loss to watch; give valid as well")
    run = _Run(model, batches, valid, settings, measure, _Files(checkpoint), label)
    if resume and run.files.there():
        run.resume()
    bar = _bar(settings, run.history, disable=not progress or runtime.under_test(), label=label)
    with bar, run.interrupts:
        try:
            run.go(bar)
        except KeyboardInterrupt:
            run.history.stopped = "interrupted"
            run.save()
        except TrainingDiverged:
            raise  # and leave the last good state as it is
        except Exception:  # someone else's mistake, in measure() or in the data: keep what was learned
            run.save()
            raise
        finally:
            run.end()
    if run.history.stopped == "interrupted":
        print(run.farewell())
    return run.history


def loss(
    logits: Float[Tensor, "batch target vocabulary"],
    target_out: Int64[Tensor, "batch target"],
    target_mask: Bool[Tensor, "batch target"],
    label_smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Mean cross-entropy in nats over the real target tokens: what stands in the padding does not matter."""
    ignored = -100
    expected = target_out.masked_fill(~target_mask, ignored)
    flat = logits.float().flatten(0, 1)  # (batch x target, vocabulary)
    return F.cross_entropy(flat, expected.flatten(), ignore_index=ignored, label_smoothing=label_smoothing)


@torch.no_grad()
def mean_loss(model: nn.Module, batches: Batches, precision: runtime.Precision | None = None) -> float:
    """The cross-entropy of a model in nats a token over all of `batches`, in the mode the model is in."""
    device = next(model.parameters()).device
    parts, tokens = [], []
    for batch in batches.epoch(0):
        tokens.append(batch.target_tokens)
        batch = batch.to(device)
        parts.append(loss(_logits(model, batch, precision), batch.target_out, batch.target_mask))
    weighted = zip(torch.stack(parts).tolist(), tokens, strict=True)  # one wait for the device, at the end
    return math.fsum(part * count for part, count in weighted) / sum(tokens)


def rate_share(progress: float, *, warmup: float, final_rate: float) -> float:
    """The learning rate as a share of its peak when `progress` (0 to 1) of the budget is used up.

    It rises linearly from 0 to 1 over the first `warmup` of the budget, then falls linearly to `final_rate`.
    """
    if progress < warmup:
        return progress / warmup
    return 1 - (1 - final_rate) * (progress - warmup) / (1 - warmup)


def load(model: nn.Module, checkpoint: Path | str) -> None:
    """Loads the weights that `train` stored at `checkpoint` into a model of the same shape."""
    model.load_state_dict(safetensors.torch.load_file(checkpoint))


@dataclass
class History:
    """What a training run measured.

    Attributes:
        loss: the training loss of each step (nats a token, with label smoothing if there is any).
        tokens: target tokens trained on, padding not counted.
        seconds: time spent on training, measuring not counted.
        valid: (step, numbers) of each validation: "seconds" until then, "loss" where there is a validation
            set, and whatever `measure` returned.
        stopped: why the run ended: "budget", "patience" or "interrupted".
    """

    loss: list[float] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0
    valid: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    stopped: str = ""

    @property
    def steps(self) -> list[int]:
        """The steps taken, counted from 1: the x values of `loss`."""
        return list(range(1, len(self.loss) + 1))

    @property
    def tokens_per_second(self) -> float:
        """Target tokens trained on in a second, padding and measuring not counted."""
        return self.tokens / self.seconds if self.seconds else math.nan

    @property
    def best(self) -> tuple[int, dict[str, float]] | None:
        """The (step, numbers) with the lowest validation loss, the first of equals; None without one."""
        rows = [row for row in self.valid if math.isfinite(row[1].get("loss", math.nan))]
        return min(rows, key=lambda row: row[1]["loss"], default=None)

    def measured(self, name: str) -> tuple[list[int], list[float]]:
        """The steps at which a number was measured, and its values: `measured("loss")`."""
        rows = [(step, numbers[name]) for step, numbers in self.valid if name in numbers]
        return [step for step, _ in rows], [value for _, value in rows]

    def table(self) -> str:
        """The validations as a table of plain text: print it."""
        names = list(dict.fromkeys(name for _, numbers in self.valid for name in numbers))
        names.sort(key=lambda name: name not in _OWN)  # our own first, then the measured ones in their order
        rows, since = [["step", "training loss", *(_OWN.get(name, name) for name in names)]], 0
        for step, numbers in self.valid:
            part = self.loss[since:step]
            cells = [math.fsum(part) / len(part) if part else math.nan]
            cells += [numbers.get(name, math.nan) for name in names]
            rows.append([str(step), *(f"{cell:.4g}" for cell in cells)])
            since = step
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.rjust, row, widths)) for row in rows]
        return "\n".join(lines)

    def plot(self, *, title: str = "") -> None:
        """Shows the losses in one picture and each measured number in one of its own."""
        if not self.loss:
            raise ValueError("nothing was trained yet, so there is nothing to plot")
        series = {"training": self._smoothed()}
        if self.best:
            series["validation"] = self.measured("loss")
        figures.lines(series, xlabel="step", ylabel="cross-entropy (nats a token)", title=title)
        for name in dict.fromkeys(name for _, numbers in self.valid for name in numbers if name not in _OWN):
            figures.lines({name: self.measured(name)}, xlabel="step", ylabel=name, title=title)

    def _smoothed(self, points: int = 50) -> tuple[list[float], list[float]]:
        """The training loss as means over stretches of steps, each at the middle of its stretch."""
        size = math.ceil(len(self.loss) / points)
        stretches = [self.loss[i : i + size] for i in range(0, len(self.loss), size)]
        middles = [1 + i * size + (len(part) - 1) / 2 for i, part in enumerate(stretches)]
        return middles, [math.fsum(part) / len(part) for part in stretches]


_OWN = {"seconds": "seconds", "loss": "validation loss"}  # recorded by the loop itself, with their headings


@dataclass(frozen=True)
class _Settings:
    """What decides the course of a run; a state can only be resumed under the same."""

    steps: int | None
    seconds: float | None
    learning_rate: float
    final_rate: float
    warmup: float
    label_smoothing: float
    clip: float | None
    weight_decay: float
    precision: runtime.Precision | None
    every: int
    patience: int | None

    def __post_init__(self):
        if (self.steps is None) == (self.seconds is None):
            raise ValueError(
                f"steps={self.steps} and seconds={self.seconds}: give exactly one of them as the budget"
            )
        runtime.autocast("cpu", self.precision)  # raises for a precision that does not exist
        positive = {"steps", "seconds", "learning_rate", "clip", "every", "patience"}
        for name, value in dataclasses.asdict(self).items():
            if name in positive and value is not None and not value > 0:
                raise ValueError(f"{name}={value} must be greater than 0")
        for name in ("final_rate", "warmup", "label_smoothing"):
            value = getattr(self, name)
            if not 0 <= value <= 1 or (value == 1 and name != "final_rate"):
                raise ValueError(f"{name}={value} is a share: it must lie between 0 and 1, such as 0.05")

    def used(self, steps: int, seconds: float) -> float:
        """The share of the budget that so many steps, or seconds, use up."""
        return steps / self.steps if self.steps else seconds / self.seconds


class _Run:
    """A training run: the model, the optimiser and all that has to be stored to go on with them."""

    def __init__(self, model, batches, valid, settings: _Settings, measure, files: "_Files", label: str):
        self.model, self.batches, self.valid = model, batches, valid
        self.settings, self.measure, self.files, self.label = settings, measure, files, label
        self.device = next(model.parameters()).device
        self.optimizer = _optimizer(model, settings)
        cuda = self.device.type == "cuda"
        half = settings.precision == "fp16"
        # On CUDA the scaler also leaves out a step with a NaN or infinite gradient, without waiting for the
        # GPU; outside fp16 that is all it is for, and its scale stays 1.
        self.scaler = torch.amp.GradScaler(
            "cuda",
            enabled=cuda,
            init_scale=2.0**16 if half else 1.0,
            growth_interval=2000 if half else 2**31 - 1,
        )
        # Elsewhere every step is read before it is taken, so that no bad gradient reaches the weights.
        self.read_every = _READ_EVERY if cuda else 1
        self.unread: list[tuple[Tensor, Tensor, float]] = []  # (loss, gradient norm, learning rate)
        self.interrupts = _Interrupts()
        self.history = History()
        self.step = 0  # steps taken
        self.checked = 0  # the step of the last validation
        self.best: dict[str, Tensor] | None = None  # the weights with the lowest validation loss
        self.guessing = math.inf  # the loss of guessing evenly, once the vocabulary is seen
        self.generators = _generator_states(self.device)  # as they were after the last step taken

    def go(self, bar: tqdm) -> None:
        """Trains until the budget or the patience is used up."""
        stream = self._stream()
        self.model.train()
        while True:
            if self._due():
                self._validate()
            self.history.stopped = self._reason_to_stop()
            if self.history.stopped:
                break
            self._advance(stream)
            _show(bar, self.settings, self.history, self.step)

    def _reason_to_stop(self) -> str:
        if self.settings.used(self.step, self.history.seconds) >= 1:
            return "budget"
        best = self.history.best
        if best and self.settings.patience:
            fruitless = sum(step > best[0] for step, _ in self.history.valid)
            return "patience" if fruitless >= self.settings.patience else ""
        return ""

    def _due(self) -> bool:
        """Whether to validate now: at most once between two steps, also after an interrupted validation."""
        due = self.step % self.settings.every == 0 or self._reason_to_stop()
        return self.step > self.checked and bool(due)

    def _stream(self) -> Iterator[Batch]:
        """The batches from the current step on, without end."""
        if not len(self.batches):
            raise ValueError("there are no batches to train on; give at least one pair of sentences")
        epoch, position = divmod(self.step, len(self.batches))
        while True:
            yield from islice(self.batches.epoch(epoch), position, None)
            epoch, position = epoch + 1, 0

    def _advance(self, stream: Iterator[Batch]) -> None:
        """One step. Up to the block that holds Ctrl-C off, nothing that is stored has changed."""
        start = time.perf_counter()
        batch = next(stream)
        rate = self._rate()
        value, norm = self._gradient(batch.to(self.device))
        with self.interrupts.held():
            self.unread.append((value, norm, rate))
            if len(self.unread) >= self.read_every:
                self._read()
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.step += 1
            self.generators = _generator_states(self.device)
            self.history.tokens += batch.target_tokens
            self.history.seconds += time.perf_counter() - start

    def _rate(self) -> float:
        """The learning rate of the coming step."""
        used = min(1.0, self.settings.used(self.step + 1, self.history.seconds))
        share = rate_share(used, warmup=self.settings.warmup, final_rate=self.settings.final_rate)
        return self.settings.learning_rate * share

    def _gradient(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss, and the gradient's norm before it was clipped, both on the device."""
        settings = self.settings
        self.optimizer.zero_grad(set_to_none=True)
        logits = _logits(self.model, batch, settings.precision)
        self.guessing = max(1.0, math.log(logits.shape[-1]))
        value = loss(logits, batch.target_out, batch.target_mask, settings.label_smoothing)
        self.scaler.scale(value).backward()
        self.scaler.unscale_(self.optimizer)
        limit = math.inf if settings.clip is None else settings.clip
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        return value.detach(), norm

    def _read(self) -> None:
        """Moves the losses of the last steps into the history, and stops a run that has gone astray."""
        if not self.unread:
            return
        losses, norms, rates = zip(*self.unread, strict=True)
        self.unread = []
        numbers = torch.stack([torch.stack(losses), torch.stack(norms)]).tolist()
        for value, norm, rate in zip(*numbers, rates, strict=True):
            self.history.loss.append(value)
            self._check(value, norm, rate)

    def _check(self, value: float, norm: float, rate: float) -> None:
        scaled = self.scaler.is_enabled() and self.settings.precision == "fp16"
        if scaled and not math.isfinite(norm):  # the scaler left this step out and tries a smaller scale
            healthy = math.isfinite(value) and self.scaler.get_scale() >= 1
        else:
            healthy = math.isfinite(value) and math.isfinite(norm)
        if not healthy or value > _EXPLODED * self.guessing:
            raise TrainingDiverged(self._diagnosis(value, norm, rate), self.history)

    def _diagnosis(self, value: float, norm: float, rate: float) -> str:
        step = len(self.history.loss)
        advice = [f"a lower learning_rate, such as {self.settings.learning_rate / 3:.1g}", "a longer warmup"]
        if self.settings.clip is None or self.settings.clip > 1:
            advice.append("clip=1.0")
        if self.settings.precision == "fp16":
            advice.append("precision='bf16'")
        if step == 1:
            advice = ["whether the data, a mask or the weights hold NaN (a softmax over nothing gives it)"]
        kept = f"its best weights, of step {self.history.best[0]}" if self.best else "its last finite weights"
        return (
            f"{self._name()} went astray at step {step}: loss {value:.4g} (guessing gives about "
            f"{self.guessing:.2g}), learning rate {rate:.3g}, gradient norm {norm:.3g}. "
            f"The model keeps {kept}. {'Check' if step == 1 else 'Try'} {', or '.join(advice)}."
        )

    def _validate(self) -> None:
        """Records the validation loss and what `measure` says, keeps the best weights, and saves."""
        self._read()
        before = _generator_states(self.device)
        numbers = {"seconds": self.history.seconds}
        self.model.eval()
        try:
            if self.valid is not None:
                numbers["loss"] = mean_loss(self.model, self.valid, self.settings.precision)
            if self.measure is not None:
                numbers |= _measured(self.measure(self.model))
        finally:
            self.model.train()
            _set_generators(before, self.device)
        with self.interrupts.held():
            if self.valid is not None or self.measure is not None:
                self.history.valid.append((self.step, numbers))
            if self.history.best and self.history.best[0] == self.step:
                self.best = _copy(self.model)
            self.checked = self.step
        self.save()

    def end(self) -> None:
        """Leaves the model ready for use, with the weights that the run promises."""
        if self.best is not None:
            self.model.load_state_dict(self.best)
        self.model.zero_grad(set_to_none=True)
        self.model.eval()

    def farewell(self) -> str:
        """What to tell someone who pressed Ctrl-C."""
        held = f"the weights of step {self.step}"
        if self.history.best:
            step, numbers = self.history.best
            held = f"its best weights, of step {step} (validation loss {numbers['loss']:.4g})"
        then = "Without a checkpoint, training anew starts from these weights with a fresh optimiser."
        if self.files.there():
            then = f"The same call goes on from step {self.step}: its state is in {self.files.state}."
        return f"{self._name()} was interrupted after step {self.step}; the model holds {held}. {then}"

    def _name(self) -> str:
        return f"Training of {self.label}" if self.label else "Training"

    def save(self) -> None:
        """Stores the weights and all it takes to go on from here, where a checkpoint was asked for."""
        self._read()
        if self.files.weights is None:
            return
        tensors = {f"model/{name}": value for name, value in _copy(self.model).items()}
        tensors |= {f"best/{name}": value for name, value in (self.best or {}).items()}
        tensors |= {f"generator/{name}": value for name, value in self.generators.items()}
        for index, slots in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{index}/{name}": value.contiguous() for name, value in slots.items()}
        rest = {
            "settings": self.fingerprint,
            "step": self.step,
            "checked": self.checked,
            "scaler": self.scaler.state_dict(),
            "history": dataclasses.asdict(self.history),
        }
        with self.interrupts.held():
            self.files.write(self.best or _copy(self.model), tensors, rest)

    def resume(self) -> None:
        """Takes up the stored state, so that the coming step is the one that would have come."""
        tensors, rest = self.files.read()
        self._check_fingerprint(rest["settings"])
        parts = _by_first_part(tensors)
        self.model.load_state_dict(parts["model"])
        self.best = parts.get("best")
        slots = {int(i): values for i, values in _by_first_part(parts.get("optimizer", {})).items()}
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": slots, "param_groups": groups})
        self.scaler.load_state_dict(rest["scaler"])
        self.generators = parts["generator"]
        _set_generators(self.generators, self.device)
        self.step, self.checked = rest["step"], rest["checked"]
        self.history = History(**rest["history"])
        self.history.valid = [(step, numbers) for step, numbers in self.history.valid]
        if self._reason_to_stop():
            news = f"had ended at step {self.step}; resume=False would train anew. Read"
        else:
            news = f"goes on from step {self.step}, read"
        print(f"{self._name()} {news} from {self.files.state}.")

    @cached_property
    def fingerprint(self) -> dict[str, object]:
        shapes = {name: list(value.shape) for name, value in self.model.state_dict().items()}
        return dataclasses.asdict(self.settings) | {
            "model": f"{len(shapes)} tensors, {zlib.crc32(json.dumps(shapes).encode()):08x}",
            "batches": _described(self.batches),
            "valid": _described(self.valid) if self.valid is not None else None,
        }

    def _check_fingerprint(self, stored: dict[str, object]) -> None:
        now = self.fingerprint
        changed = [f"{name} was {stored.get(name)!r} and is {now[name]!r}" for name in now
                   if stored.get(name) != now[name]]  # fmt: skip
        if changed:
            raise ValueError(
                f"{self.files.state} belongs to another run: {'; '.join(changed)}. Give resume=False to "
                "start anew and overwrite it, or another checkpoint to keep both."
            )


class _Files:
    """The two files of a checkpoint: the weights to use, and the state to go on from."""

    def __init__(self, checkpoint: Path | str | None):
        self.weights = self.state = None
        if checkpoint is None:
            return
        self.weights = Path(checkpoint)
        if self.weights.suffix != ".safetensors":
            raise ValueError(f"checkpoint={str(checkpoint)!r} must be a file name that ends in .safetensors")
        self.state = self.weights.with_suffix(".state.safetensors")
        self.weights.parent.mkdir(parents=True, exist_ok=True)

    def there(self) -> bool:
        return self.state is not None and self.state.exists()

    def write(self, weights: dict[str, Tensor], tensors: dict[str, Tensor], rest: dict) -> None:
        """Replaces both files. A full disk is a warning: it must not end a run of hours."""
        try:
            _replace(self.weights, safetensors.torch.save(weights))
            _replace(
                self.state, safetensors.torch.save(tensors, metadata={"run": json.dumps(rest, default=float)})
            )
        except OSError as error:
            warnings.warn(f"could not write {self.weights} ({error}); training goes on", stacklevel=2)

    def read(self) -> tuple[dict[str, Tensor], dict]:
        try:
            with safetensors.safe_open(self.state, "pt") as file:
                # Copies: what safetensors gives maps the file, and Windows replaces no file that is mapped.
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
                return tensors, json.loads(file.metadata()["run"])
        except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self.state} cannot be read as the state of a training run ({error}). Give resume=False to "
                "start anew and overwrite it."
            ) from error


def _replace(path: Path, content: bytes) -> None:
    """Writes a file so that at any moment either the old or the new one is there, whole."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


class _Interrupts:
    """Within it, Ctrl-C raises KeyboardInterrupt, but never in a `held` block: there it waits for the end."""

    def __init__(self):
        self.holding = self.waiting = False

    def __enter__(self) -> None:
        self.previous = signal.getsignal(signal.SIGINT)
        here = threading.current_thread() is threading.main_thread()  # Python delivers signals nowhere else
        self.installed = here and callable(self.previous)  # not where Ctrl-C is ignored on purpose
        if self.installed:
            signal.signal(signal.SIGINT, self._arrived)

    def __exit__(self, *_) -> None:
        if self.installed:
            signal.signal(signal.SIGINT, self.previous)

    def _arrived(self, *_) -> None:
        if not self.holding:
            raise KeyboardInterrupt
        self.waiting = True

    @contextmanager
    def held(self) -> Iterator[None]:
        self.holding = True
        try:
            yield
        finally:
            self.holding = False
        if self.waiting:
            self.waiting = False
            raise KeyboardInterrupt


def _optimizer(model: nn.Module, settings: _Settings) -> torch.optim.AdamW:
    """AdamW, fused where the device has it; biases and other vectors do not decay."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    try:
        return torch.optim.AdamW(groups, lr=settings.learning_rate, fused=True)
    except RuntimeError:
        return torch.optim.AdamW(groups, lr=settings.learning_rate)


def _logits(model: nn.Module, batch: Batch, precision: runtime.Precision | None) -> Tensor:
    with runtime.autocast(batch.source.device, precision):
        return model(batch.source, batch.source_mask, batch.target_in).logits


def _measured(numbers: Mapping[str, float]) -> dict[str, float]:
    if not isinstance(numbers, Mapping):
        raise TypeError(f"measure returned {type(numbers).__name__}; let it return a dict of named numbers")
    taken = numbers.keys() & _OWN.keys()
    if taken:
        raise ValueError(f"measure returned {sorted(taken)}, which training records itself; use other names")
    return {name: float(value) for name, value in numbers.items()}


def _copy(model: nn.Module) -> dict[str, Tensor]:
    """The weights as they are now, each in memory of its own (tied ones too, as safetensors wants it)."""
    return {
        name: value.detach().clone(memory_format=torch.contiguous_format)
        for name, value in model.state_dict().items()
    }


def _by_first_part(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """{"a/b/c": x} as {"a": {"b/c": x}}."""
    parts: dict[str, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        first, rest = name.split("/", 1)
        parts.setdefault(first, {})[rest] = value
    return parts


def _generator_states(device: torch.device) -> dict[str, Tensor]:
    """The random states that dropout draws from. Asking for them does not wait for a GPU."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def _set_generators(states: Mapping[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    elif device.type == "mps" and "mps" in states:
        torch.mps.set_rng_state(states["mps"])


def _described(batches: Batches) -> str:
    """Enough of the data to notice that it is other data: how many batches, and what is in the first."""
    checksum = 0
    for batch in islice(batches.epoch(0), 1):
        for tensor in (batch.source, batch.target_out):
            checksum = zlib.crc32(tensor.numpy().tobytes(), checksum)
    return f"{len(batches)} an epoch, {checksum:08x}"


def _bar(settings: _Settings, history: History, *, disable: bool, label: str) -> tqdm:
    """Progress in steps or seconds, whichever the budget is in."""
    if settings.steps:
        return tqdm(total=settings.steps, initial=len(history.loss), desc=label, unit="step", disable=disable)
    form = "{desc}: {percentage:3.0f}%|{bar}| {n:.0f}/{total:.0f} s{postfix}"
    return tqdm(total=settings.seconds, initial=history.seconds, desc=label, bar_format=form, disable=disable)


def _show(bar: tqdm, settings: _Settings, history: History, step: int) -> None:
    if not bar.disable:
        if history.loss:
            speed = f"{history.tokens_per_second:,.0f} tokens/s"
            bar.set_postfix_str(f"loss {history.loss[-1]:.3f}, {speed}", refresh=False)
        bar.update((step if settings.steps else min(history.seconds, settings.seconds)) - bar.n)
