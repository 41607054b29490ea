"""Writes the table of results/README.md: where each file comes from, by its own words or by this script's lists.

    python benchmarks/index.py            # writes results/README.md
    python benchmarks/index.py --check    # writes nothing, and names what is wrong

It needs nothing but Python. A file of a study names the study, and so its command; the command of any other file is
listed here. New files and rows name their commit, day and version. For older ones the last commit that brought the file
is listed here, as `git log -1 --format='%h %as' -- results/FILE` said it.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
MARK, END = "<!-- table: benchmarks/index.py -->", "<!-- end of table -->"
HEAD = ["file", "command", "commit", "date", "version", "device", "torch", "n"]
CHECKPOINTS = "--checkpoints FOLDER"
COMMANDS = {
    "by_heart": "python benchmarks/by_heart.py --out results/by_heart.json",
    "callbacks_cpu": "python benchmarks/callbacks.py --epochs 11",
    "corruptions": "python benchmarks/corruptions.py",
    "csv_check": "python benchmarks/csv_check.py",
    "demo": "python benchmarks/demo.py --no-finetuning --out results/demo.json",
    "engines_cpu": "python benchmarks/engines.py --rounds 3",
    "extraction_cpu": "python benchmarks/extraction.py --rho 0.95 --workers 0 --literal-batches 20"
    " --out results/extraction_cpu.json",
    "extraction_cuda": f"python benchmarks/extraction.py --scale full --seeds 10 11 12 --jobs default plain paper"
    f" --short-paper {CHECKPOINTS} --out results/extraction_cuda.json",
    "find_cpu": "python benchmarks/find.py",
    "find_cuda": "python benchmarks/find.py --device cuda --scale full",
    "growth_cpu": "python benchmarks/growth.py --out results/growth_cpu.json",
    "growth_cuda": "python benchmarks/growth.py --device cuda --out results/growth_cuda.json",
    "kill": "python benchmarks/kill.py --kills 200 --seed 1 --out results/kill.json",
    "last_layer": f"python benchmarks/last_layer.py --rho 0.99 0.997 {CHECKPOINTS} --out results/last_layer.json",
    "latency_cpu": "python benchmarks/latency.py --threads 2 --rounds 5",
    "latency_cuda": "python benchmarks/latency.py --device cuda",
    "madlibs": "python benchmarks/madlibs.py --out results/madlibs.json",
    "madlibs_small": "python benchmarks/madlibs.py --small --seeds 0 --out results/madlibs_small.json",
    "memory": "python benchmarks/memory.py --out results/memory.json",
    "peers": "python benchmarks/peers.py",
    "processes_cpu": "python benchmarks/processes.py --rounds 3",
    "pseudo_sources": "python benchmarks/pseudo_sources.py --scale full",
    "pseudo_sources_cpu": "python benchmarks/pseudo_sources.py --scale small",
    "rivals": f"python benchmarks/rivals.py {CHECKPOINTS} --out results/rivals.json",
    "shrink_table": "python benchmarks/shrink_table.py",
    "soak": "python benchmarks/soak.py --runs 200 --out results/soak.json",
    "throughput": "python benchmarks/throughput.py --compiled --out results/throughput.json",
    "vanilla_biased_mnist": f"python benchmarks/vanilla.py --compiled --out results/vanilla_biased_mnist.json"
    f" {CHECKPOINTS}",
    "what_can_go": "python benchmarks/what_can_go.py",
}
"""{file: what writes it}, unless `bise reproduce` does."""
FIRST = "0.1.0"
"""The only version that there was before files said theirs."""
COMMITTED = {
    "batch-norm": "15f21dc 2026-11-16",
    "bias-probe": "15f21dc 2026-11-16",
    "biased-mnist": "44b3101 2026-11-16",
    "by_heart": "2ff7698 2026-11-16",
    "corrupted-cifar10": "8c1c8a4 2026-11-16",
    "corruptions": "436810e 2026-11-15",
    "csv_check": "17233d6 2026-11-15",
    "extraction_cpu": "9e4ac23 2026-11-16",
    "gamma": "8c1c8a4 2026-11-16",
    "growth_cpu": "fcb8c3c 2026-11-15",
    "kill": "d0df95b 2026-11-15",
    "label-noise": "15f21dc 2026-11-16",
    "latency_cpu": "f474206 2026-11-15",
    "latency_cuda": "474036a 2026-11-15",
    "loss-ablation": "1fadcb7 2026-11-16",
    "madlibs_small": "cb77815 2026-11-15",
    "mask-counts": "c602f09 2026-11-16",
    "memory": "fcb8c3c 2026-11-15",
    "multi-color-mnist": "1fadcb7 2026-11-16",
    "pareto": "15f21dc 2026-11-16",
    "peers": "841ec5f 2026-11-15",
    "presets": "44b3101 2026-11-16",
    "pruning-strategies": "15f21dc 2026-11-16",
    "ranking": "15f21dc 2026-11-16",
    "rho-0.999": "2b7f943 2026-11-16",
    "sensitivity": "8c1c8a4 2026-11-16",
    "shrink_table": "c8a4db5 2026-11-15",
    "soak": "c30b8da 2026-11-15",
    "summary": "1fadcb7 2026-11-16",
    "unsupervised": "15f21dc 2026-11-16",
    "vanilla_biased_mnist": "557f962 2026-11-15",
}
"""{file: the commit and day that brought what doesn't name its own}."""


def rows_of(content: dict[str, Any]) -> list[dict[str, Any]]:
    """What a file's n counts: rows, runs, or the entries of its main part."""
    for name in ("rows", "runs", "networks", "curves", "models", "others", "jobs"):
        part = content.get(name)
        if isinstance(part, dict):
            part = [entry for value in part.values() for entry in (value if isinstance(value, list) else [value])]
        if isinstance(part, list) and part and isinstance(part[0], dict):
            return part
    return []


def is_study(content: dict[str, Any]) -> bool:
    return all("config" in row for row in rows_of(content)) and content.get("scale") == "paper" and "rows" in content


def command_of(name: str, content: dict[str, Any]) -> str | None:
    """None for a file that nothing is known to write."""
    if is_study(content):
        return f"bise reproduce {content['study']} --protocol all"
    return COMMANDS.get(name)


def entry(name: str, content: dict[str, Any]) -> list[str]:
    """The file's line of the table."""
    rows, machine = rows_of(content), content.get("machine") or content.get("hardware") or {}
    told = machine if isinstance(machine, dict) else {}
    origins = [row for row in rows if "commit" in row] if is_study(content) else [told] if "commit" in told else []
    commits, dates = _counted(origins, "commit"), _counted(origins, "date")
    if len(origins) < (len(rows) if is_study(content) else 1):
        commit, _, day = COMMITTED.get(name, "?").partition(" ")
        count = f", {len(rows) - len(origins)} rows" if origins else ""
        commits, dates = [f"committed in {commit}{count}", *commits], [day, *dates]
    devices = Counter(row["device"] for row in rows if "torch" in str(row.get("device"))) or {
        f"{_device(told, rows, name)}, torch {told.get('torch') or content.get('torch', '–')}": 1
    }
    places = [tuple(device.rsplit(", torch ", 1)) for device in devices]
    return [
        f"[{name}.json]({name}.json)",
        f"`{command_of(name, content)}`",
        "; ".join(commits),
        "; ".join(dict.fromkeys(dates)),
        "; ".join(sorted({row["bise"] for row in origins if "bise" in row} or {told.get("bise", FIRST)})),
        "; ".join(dict.fromkeys(place for place, _ in places)),
        "; ".join(dict.fromkeys(torch for _, torch in places)),
        _n(content, rows),
    ]


def _counted(origins: list[dict[str, Any]], key: str) -> list[str]:
    """Each value, with how many rows have it where there are several."""
    found = Counter(row[key] for row in origins)
    return [value if len(found) == 1 else f"{value}, {count} rows" for value, count in sorted(found.items())]


def _device(told: dict[str, Any], rows: list[dict[str, Any]], name: str) -> str:
    named = told.get("gpu") or next((row["device"] for row in rows if "NVIDIA" in str(row.get("device"))), None)
    if named and not name.endswith("_cpu"):
        return str(named)
    threads = told.get("threads") or next((row["threads"] for row in rows if "threads" in row), None)
    return "CPU" + (f", {threads} thread{'s' * (threads > 1)}" if threads else "")


def _n(content: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """How much was measured: rows and seeds, or what the file counts itself."""
    for key in ("kills", "runs"):
        if isinstance(content.get(key), int):
            return f"{content[key]} {key}"
    if isinstance(content.get("seconds"), list):
        return f"{len(content['seconds'])} runs"
    seeds = {row["seed"] for row in rows if "seed" in row}
    return f"{len(rows)} rows" + (f", {len(seeds)} seed{'s' * (len(seeds) > 1)}" if seeds else "")


def files(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(folder.glob("*.json")):
        yield path.stem, json.loads(path.read_text(encoding="utf-8"))


def table(folder: Path) -> str:
    lines = [HEAD, ["---"] * len(HEAD), *(entry(name, content) for name, content in files(folder))]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def filled(text: str, found: str) -> str:
    before, mark, rest = text.partition(MARK)
    return f"{before}{mark}\n\n{found}\n\n{rest[rest.index(END) :]}"


def troubles(folder: Path, page: Path) -> list[str]:
    """What is wrong with the index, a sentence each."""
    out = []
    text = page.read_text(encoding="utf-8")
    for name, content in files(folder):
        command = command_of(name, content)
        if f"[{name}.json]" not in text:
            out.append(f"{name}.json has no entry in {page.name}")
        if command is None:
            out.append(f"{name}.json: nothing is known to write it")
        elif why := refusal(command):
            out.append(f"{name}.json: {why}")
        if "committed in ?" in entry(name, content)[2]:
            out.append(f"{name}.json names no commit, and none is listed for it")
    known = {name for name, _ in files(folder)}
    out += [f"{page.name} has an entry for {n}, which is not there" for n in re.findall(r"\]\((\w[^)]*)\.json\)", text)
            if n not in known]  # fmt: skip
    return out + ([] if out or text == filled(text, table(folder)) else [f"{page.name} is not what the files say"])


def refusal(command: str) -> str:
    """Why a command can't be run: a script, an option or a study that isn't there; nothing where it can."""
    program, *words = command.split()
    if program == "bise":
        return "" if words[0] == "reproduce" and words[1] in studies() else f"there is no `{' '.join(words[:2])}`"
    script = ROOT / words[0]
    if not script.exists():
        return f"there is no {words[0]}"
    options = options_of(script)
    unknown = [word for word in words if word.startswith("--") and word not in options]
    missing = [option for option, required in options.items() if required and option not in words]
    return "".join([*(f"{script.name} has no {word}" for word in unknown), *(f"it lacks {word}" for word in missing)])


def options_of(script: Path) -> dict[str, bool]:
    """{option: whether it is required}, as the script's source says."""
    out = {}
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            required = any(word.arg == "required" and ast.literal_eval(word.value) for word in node.keywords)
            out[ast.literal_eval(node.args[0])] = required
    return out


def studies() -> set[str]:
    """The names of the studies, as their sources say."""
    found = set()
    for source in (ROOT / "src" / "bise" / "studies").glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Study":
                found |= {ast.literal_eval(word.value) for word in node.keywords if word.arg == "name"}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    page = ROOT / "results" / "README.md"
    if not parser.parse_args().check:
        page.write_text(filled(page.read_text(encoding="utf-8"), table(ROOT / "results")), encoding="utf-8")
    wrong = troubles(ROOT / "results", page)
    print("\n".join(wrong) or "every file has its entry")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
