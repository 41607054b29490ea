"""The command line: thin. What is imported before a command runs is typer, the standard library, and no torch."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from bise.base import output
from bise.base.output import show
from bise.cli import interrupts
from bise.cli.audit import audit, report
from bise.cli.bench import bench
from bise.cli.compare import compare
from bise.cli.data import data_app
from bise.cli.deploy import export, shrink
from bise.cli.find import find
from bise.cli.guard import VERBOSE
from bise.cli.learning import extract, finetune, front, refit
from bise.cli.reproduce import reproduce
from bise.cli.several import several
from bise.cli.train import demo, train
from bise.cli.usage import OneSentence
from bise.cli.verify import verify

app = typer.Typer(
    cls=OneSentence,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(data_app, name="data")


def _version(wanted: bool) -> None:
    if wanted:
        from bise.base.version import VERSION

        show(f"bise {VERSION}")
        raise typer.Exit


@app.callback(epilog="Example: bise demo, then open runs/demo-0/report.html")
def _root(
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Show every library's warnings, and tracebacks where a run fails.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Find the unbiased network inside a biased classifier, without changing one of its weights.

    Exit codes: 0, done; 1, the run failed, or a check or a limit did; 2, bad input; 3, done, but the output couldn't
    be written; 130, stopped by Ctrl-C; 141, done, but the output's reader had left.
    """
    VERBOSE.set(verbose)


for command, example in (
    (demo, "demo --seed 1 --out runs/demo-1"),
    (train, "train biased-mnist --rho 0.99 --seed 0 --out runs/vanilla"),
    (audit, "audit --model nets:make --weights net.safetensors --data nets:load"),
    (find, "find --model nets:make --weights net.safetensors --data nets:load --out runs/found"),
    (extract, "extract --model nets:make --weights net.safetensors --data nets:load --out runs/a"),
    (finetune, "finetune runs/a --epochs 20 --lr 0.001"),
    (compare, "compare runs/a runs/b --out compared.html"),
    (report, "report runs/a --out for-a-colleague.html"),
    (refit, "refit runs/a --on val"),
    (front, "front runs/a --budget 0.5 --budget 0.3"),
    (shrink, "shrink runs/a --out model.pt2 --onnx model.onnx"),
    (export, "export runs/a model.onnx"),
    (verify, "verify runs/a"),
    (bench, "bench --methods bise,finetuned,dfr,erm --datasets demo --seeds 2"),
    (reproduce, "reproduce biased-mnist --scale smoke"),
):
    app.command(epilog=f"Example: bise {example}")(command)


def main() -> None:
    """Entry point of the command `bise`; -v may stand anywhere."""
    interrupts.take()
    output.open_streams()
    given = sys.argv[1:]
    loud = [word for word in given if word in ("-v", "--verbose")]
    try:
        with several(given):
            app(loud[:1] + [word for word in given if word not in ("-v", "--verbose")])
    except SystemExit as end:
        code = output.close_streams(end.code if isinstance(end.code, int) else 0)
        interrupts.leave()
        sys.exit(code)
