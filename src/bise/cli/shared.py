"""The options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bise.base.names import NETWORKS
from bise.base.options import either
from bise.cli.completing import DEVICES, one_of
from bise.jobs.engines import ENGINES

MODEL = (
    "package.module:function that returns the model; it is imported and run. Or a library's name for it, of which no"
    " code is run: timm:resnet18, torchvision:resnet18, or hf:FOLDER_OR_NAME for transformers."
)
ModelOption = Annotated[str | None, typer.Option("--model", help=MODEL)]
WeightsOption = Annotated[
    Path | None, typer.Option("--weights", help="Its weights, .safetensors or a state dict in .pt.")
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        help="A csv or parquet file, a folder of pictures or of Hugging Face datasets, a data set by name, "
        "hf:FOLDER_OR_NAME of parquet files as in the hub, or "
        'package.module:function that takes "train", "val" or "test" and returns a data set of (x, y, b), '
        "or None where there is no such split; a function is imported and run.",
    ),
]
FromOption = Annotated[Path | None, typer.Option("--from", hidden=True)]
"""A run folder whose model and data are used; commands take it as RUN, and under this name for older scripts."""
DataRootOption = Annotated[Path | None, typer.Option(help="Folder of data sets; default what BISE_DATA names.")]
DeviceOption = Annotated[
    str, typer.Option(help="cpu, cuda, or auto: a GPU where there is one.", autocompletion=one_of(DEVICES))
]
WorkersOption = Annotated[
    int | None,
    typer.Option(min=0, help="Processes that read ahead; default up to 4 for picture files, else 0."),
]
EngineOption = Annotated[
    str,
    typer.Option(
        help="Where runs are done: local, one at a time, or ray, on a cluster.", autocompletion=one_of(ENGINES)
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(help="Of a Ray cluster that is there; default one on this machine, while the command runs."),
]
CpusOption = Annotated[float | None, typer.Option(help="CPUs for each run on a cluster; default 1.")]
GpusOption = Annotated[float | None, typer.Option(help="GPUs for each run on a cluster, or a fraction: 0.25.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder, where it was stopped.")]
EveryOption = Annotated[
    float, typer.Option("--checkpoint-every", min=0, help="Seconds between checkpoints, for --resume.")
]
BoardOption = Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard's event files to RUN/events too.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the summary as JSON instead of a table.")]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust", help="Call the functions that the run names, now and until its config.json says otherwise."
    ),
]
OfOption = Annotated[
    str, typer.Option(help=f"Which network of the run: {either(NETWORKS)}.", autocompletion=one_of(NETWORKS))
]
ZetaOption = Annotated[
    float | None,
    typer.Option(
        "--zeta",
        metavar="ζ",
        help="Keep the units whose score m has σ(m) ≥ ζ, as the slider of the report does; default 0.5, the mask.",
    ),
]
ExtractedArgument = Annotated[
    Path, typer.Argument(help="A run folder of bise extract; its model and data are used again.")
]
UnderOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-under",
        help="A figure and its least share, as worst_group=0.8; also accuracy, unbiased, aligned, conflicting. Exit"
        " code 1 where its whole 95 % interval is below; undecided, 0. May be given several times.",
        metavar="FIGURE=SHARE",
    ),
]
GapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-gap",
        help="The largest share by which the best group may exceed the worst, as 0.1; or conflicting=0.1, by which"
        " aligned samples may exceed conflicting ones. Exit codes as for --fail-under.",
        metavar="SHARE",
    ),
]
JunitOption = Annotated[
    Path | None,
    typer.Option("--junit", help="JUnit file to write for these limits: undecided ones count as skipped."),
]


def one_run(run: Path | None, older: Path | None) -> Path | None:
    """The run that was given as an argument, or under an older option's name."""
    if run is not None and older is not None and run != older:
        from bise.base.errors import BadInput

        raise BadInput(f"{run} and {older} are two runs, and one is looked at; give one of them")
    return run if run is not None else older


def run_or_model(argument: Path | None, model: str | None) -> tuple[Path | None, str | None]:
    """(run, model): what is given as a command's argument is a run folder, or a library's name for a model."""
    from bise.network.architectures.named import is_named

    if argument is None or argument.exists() or not is_named(str(argument)):
        return argument, model
    if model is not None:
        from bise.base.errors import BadInput

        raise BadInput(f"the model is named twice, as {argument} and as --model {model}; leave one of them out")
    return None, str(argument)
