"""What does hub-exporter cost over calling the engine directly? Both are measured in one run, taking turns.

    python bench/export_cost.py [minilm | smollm2 | FOLDER ...] [--backends LIST] [--repeats N]

hub-exporter is one command without verification; the direct side is one process for each backend (see
`direct_export.py`). What counts is the user CPU seconds of a process and of everything that it waited for: other load
moves them less than wall time, and both sides alike because they take turns. Exit status 1: a ratio is above the bound.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

BOUND = 1.10
"""hub-exporter's user CPU seconds over those of the direct calls, at most."""
BACKENDS = "onnx,openvino,executorch-xnnpack,dynamo"
HERE = Path(__file__).parent


class Cost(NamedTuple):
    """What one way of exporting took."""

    user: float
    """CPU seconds."""
    wall: float
    """Seconds."""
    peak: int
    """Largest resident set of any process, in bytes."""
    size: int
    """Of all that it wrote, in bytes."""


Side = Callable[[Path, Sequence[str], Path], Cost]
"""(model, backends, an empty folder to work in) -> its cost"""


def run(command: Sequence[str | Path], log: Path) -> Cost:
    """Runs one command to its end. Its output goes to `log`, and is shown when it fails."""
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{log.read_text(errors='replace')}\n{' '.join(map(str, command))}: exit status {process.returncode}")
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Cost(user=usage.ru_utime, wall=time.monotonic() - started, peak=peak, size=0)


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def measure_direct(model: Path, backends: Sequence[str], folder: Path) -> Cost:
    """One process for each backend."""
    script = HERE / "direct_export.py"
    costs = [
        run([sys.executable, script, model, backend, folder / "out" / backend], folder / f"{backend}.log")
        for backend in backends
    ]
    return Cost(
        user=sum(cost.user for cost in costs),
        wall=sum(cost.wall for cost in costs),
        peak=max(cost.peak for cost in costs),
        size=size_of(folder / "out"),
    )


def measure_hub_exporter(model: Path, backends: Sequence[str], folder: Path) -> Cost:
    """The one command, whole: planning, the rows, every job, the card and the index."""
    program = Path(sys.executable).with_name("hub-exporter")
    flags = ["--backends", ",".join(backends), "--dataset", "builtin", "--no-verify", "--to", str(folder / "out")]
    return run([program, "export", model, *flags], folder / "log")._replace(size=size_of(folder / "out"))


def compare(model: Path, backends: Sequence[str], repeats: int) -> Iterator[tuple[Cost, Cost]]:
    """(direct, hub-exporter) `repeats` times; which goes first alternates."""
    sides: list[Side] = [measure_direct, measure_hub_exporter]
    for _ in range(repeats):
        costs: dict[Side, Cost] = {}
        for side in sides:
            with tempfile.TemporaryDirectory(prefix="export-cost-") as folder:
                costs[side] = side(model, backends, Path(folder))
        yield costs[measure_direct], costs[measure_hub_exporter]
        sides.reverse()


def show(console: Console, model: Path, pairs: Sequence[tuple[Cost, Cost]]) -> float:
    """Prints both sides of one model, medians over the repeats, and returns the ratio of the user seconds."""
    table = Table(title=f"{model.name}, median of {len(pairs)}", title_justify="left")
    for heading in ("", "user CPU s", "wall s", "peak MB", "written MB"):
        table.add_column(heading, justify="right" if heading else "left")
    medians = [Cost(*map(statistics.median, zip(*side, strict=True))) for side in zip(*pairs, strict=True)]
    for name, cost in zip(("engine, directly", "hub-exporter"), medians, strict=True):
        cells = (f"{cost.user:.1f}", f"{cost.wall:.1f}", f"{cost.peak / 1e6:,.0f}", f"{cost.size / 1e6:,.1f}")
        table.add_row(name, *cells)
    console.print(table)
    ratio = medians[1].user / medians[0].user
    each = ", ".join(f"{ours.user / direct.user:.2f}" for direct, ours in pairs)
    console.print(f"user CPU: {ratio:.2f} × the direct calls (at most {BOUND:.2f}; single runs {each})\n")
    return ratio


def model_folder(name: str) -> Path:
    """A folder, or one of the two real models that the tests use."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    import real_models

    named: dict[str, Callable[[], Path]] = {"minilm": real_models.minilm, "smollm2": real_models.smollm2}
    return named[name]() if name in named else Path(name)


def main() -> None:
    """Measures every model and fails if one costs more than the bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["minilm"])
    parser.add_argument("--backends", default=BACKENDS)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    console = Console()
    ratios = []
    for model in map(model_folder, options.models):
        pairs = list(compare(model, options.backends.split(","), options.repeats))
        ratios.append(show(console, model, pairs))
    sys.exit(max(ratios) > BOUND)


if __name__ == "__main__":
    main()
