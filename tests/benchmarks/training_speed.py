"""Training speed and peak memory of the translation models, beside plain nn.GRU without attention.

    python tests/benchmarks/training_speed.py [--hidden 256] [--rounds 8]

The models take turns, so that a busy machine slows all of them; the figures are medians over the rounds, and
the ratios compare within one run. One step is forward, backward and AdamW, on one batch of random words. Peak
memory: on the CPU by how much a fresh process grows from before its model is built, on CUDA the allocator's
own peak. On a machine shared with others set OMP_NUM_THREADS=1: two threads that have to wait for each other
measure the neighbours.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from course_utils import runtime
from course_utils.models import bahdanau, fixed_vector, padding_mask

VOCABULARY, BATCH, LENGTH, EMBEDDING, ATTENTION = 400, 64, 20, 128, 96


class Plain(nn.Module):
    """What the speed of attention is measured against: PyTorch's own GRUs and nothing between them."""

    def __init__(self, hidden: int):
        super().__init__()
        self.source = nn.Embedding(VOCABULARY, EMBEDDING)
        self.target = nn.Embedding(VOCABULARY, EMBEDDING)
        self.encoder = nn.GRU(EMBEDDING, 128, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(128, hidden)
        self.decoder = nn.GRU(EMBEDDING, hidden, batch_first=True)
        self.out = nn.Linear(hidden, VOCABULARY)

    def forward(self, source, source_mask, target_in):
        _, last = self.encoder(self.source(source))
        states, _ = self.decoder(self.target(target_in), torch.tanh(self.bridge(last[-1:])))
        return (self.out(states),)


def builders(hidden: int) -> dict[str, Callable[[], nn.Module]]:
    sizes = {"embedding": EMBEDDING, "hidden": hidden}
    return {
        "plain nn.GRU": partial(Plain, hidden),
        "bahdanau": partial(bahdanau, VOCABULARY, VOCABULARY, attention=ATTENTION, **sizes),
        "bahdanau, LSTM": partial(
            bahdanau, VOCABULARY, VOCABULARY, attention=ATTENTION, cell="lstm", **sizes
        ),
        "fixed_vector": partial(fixed_vector, VOCABULARY, VOCABULARY, **sizes),
    }


class Trainer:
    """One model with its optimiser and its batch: lengths from three quarters of LENGTH to all of it."""

    def __init__(self, build: Callable[[], nn.Module], device: torch.device):
        generator = runtime.seed(0)

        def words():
            return torch.randint(4, VOCABULARY, (BATCH, LENGTH), generator=generator).to(device)

        self.model = build().to(device)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        self.source, self.target_in, self.target_out = words(), words(), words()
        lengths = torch.randint(LENGTH * 3 // 4, LENGTH + 1, (BATCH,), generator=generator)
        self.source_mask = padding_mask(lengths, LENGTH).to(device)

    def step(self) -> None:
        logits = self.model(self.source, self.source_mask, self.target_in)[0]
        self.optimiser.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), self.target_out.flatten()).backward()
        self.optimiser.step()


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def seconds(trainer: Trainer, steps: int, device: torch.device) -> float:
    synchronise(device)
    began = time.perf_counter()
    for _ in range(steps):
        trainer.step()
    synchronise(device)
    return (time.perf_counter() - began) / steps


def speeds(hidden: int, rounds: int, steps: int, device: torch.device) -> dict[str, float]:
    """Median target tokens a second by model, the models taking turns."""
    trainers = {name: Trainer(build, device) for name, build in builders(hidden).items()}
    for trainer in trainers.values():
        seconds(trainer, 2, device)
    taken = {name: [] for name in trainers}
    for _ in range(rounds):
        for name, trainer in trainers.items():
            taken[name].append(seconds(trainer, steps, device))
    return {name: BATCH * LENGTH / statistics.median(values) for name, values in taken.items()}


def peak_resident() -> float:
    """The largest resident set of this process so far, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux: its ru_maxrss would start from the parent's
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**10
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on macOS


def peak_memory(name: str, hidden: int, device: torch.device) -> float:
    """MiB at the peak of a few training steps; to be called in a process of its own."""

    before = peak_resident()
    trainer = Trainer(builders(hidden)[name], device)
    seconds(trainer, 5, device)
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return peak_resident() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hidden", type=int, default=256, help="width of the decoder's state")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=2, help="training steps of a model in one round")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    device = runtime.device()
    if options.memory_of:
        print(json.dumps(peak_memory(options.memory_of, options.hidden, device)))
        return

    measured = speeds(options.hidden, options.rounds, options.steps, device)
    plain = measured["plain nn.GRU"]
    print(
        f"device {device.type}, {torch.get_num_threads()} threads, torch {torch.__version__}; "
        f"embedding {EMBEDDING}, encoder 2 x 128, decoder {options.hidden}, attention {ATTENTION}, "
        f"{LENGTH} tokens a side, batch {BATCH}\n"
    )
    print("| model | target tokens/s | of plain | peak memory (MiB) |\n|---|---:|---:|---:|")
    for name, speed in measured.items():
        command = [sys.executable, __file__, "--memory-of", name, "--hidden", str(options.hidden)]
        memory = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"| {name} | {speed:,.0f} | {speed / plain:.2f} | {memory:.0f} |")


if __name__ == "__main__":
    main()
