"""Seconds and peak memory of `bise data check` on a csv file of a million rows with picture paths.

    python benchmarks/csv_check.py

Makes the file first, in a temporary folder. Writes results/csv_check.json.
"""

from __future__ import annotations

import argparse
import csv
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bise.base.files import write_json
from bise.studies.origin import machine

RESULT = Path(__file__).parent.parent / "results" / "csv_check.json"
COMMAND = [sys.executable, "-c", "from bise.cli.app import main; main()", "data", "check"]


def make(path: Path, rows: int) -> None:
    """Faces with an age, hair as the target, sex as the bias (1 % without it), and a split."""
    draw = random.Random(0)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "hair", "sex", "age", "fold"])
        for i in range(rows):
            sex = draw.choice(("female", "male"))
            hair = "blond" if draw.random() < (0.24 if sex == "female" else 0.02) else "other"
            sex = "" if draw.random() < 0.01 else sex
            fold = draw.choices(("train", "val", "test"), (80, 10, 10))[0]
            writer.writerow([f"faces/{i // 1000:04d}/{i:07d}.jpg", hair, sex, draw.randint(18, 90), fold])


def measure(path: Path) -> tuple[float, float]:
    """(seconds, peak megabytes) of the check in a process of its own."""
    arguments = [str(path), "--image", "file", "--target", "hair", "--bias", "sex", "--split-column", "fold"]
    started = time.perf_counter()
    subprocess.run([*COMMAND, *arguments], check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return seconds, peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "labels.csv"
        make(path, arguments.rows)
        size = path.stat().st_size
        figures = [measure(path) for _ in range(arguments.repeats)]
    result = {
        "rows": arguments.rows,
        "bytes": size,
        "seconds": [round(seconds, 2) for seconds, _ in figures],
        "peak_mib": round(figures[-1][1], 1),  # the largest of all repeats: the system keeps the maximum
        "machine": machine(),
    }
    write_json(RESULT, result)
    print(f"{arguments.rows:,} rows, {size / 1e6:.0f} MB: {min(result['seconds'])} to {max(result['seconds'])} s,"
          f" peak {result['peak_mib']} MiB")  # fmt: skip


if __name__ == "__main__":
    main()
