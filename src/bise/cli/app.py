"""The command line: thin. Only the standard library and typer are imported before a command runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from bise.base import output
from bise.base.output import show, show_json
from bise.cli import interrupts
from bise.cli.data import data_app
from bise.cli.deploy import export, shrink
from bise.cli.guard import VERBOSE, JsonOption, TrustOption
from bise.cli.guard import guard as _guard
from bise.cli.refit import refit
from bise.cli.reproduce import reproduce
from bise.cli.usage import OneSentence
from bise.cli.verify import verify
from bise.jobs.own_options import own_data

app = typer.Typer(
    cls=OneSentence,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ModelOption = Annotated[
    str | None, typer.Option("--model", help="package.module:function that returns the model; it is imported and run.")
]
WeightsOption = Annotated[
    Path | None, typer.Option("--weights", help="Its weights, .safetensors or a state dict in .pt.")
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        help="A csv or parquet file, a folder of pictures or of Hugging Face datasets, a data set by name, or "
        'package.module:function that takes "train", "val" or "test" and returns a data set of (x, y, b), '
        "or None where there is no such split; a function is imported and run.",
    ),
]
FromOption = Annotated[Path | None, typer.Option("--from", help="A run folder whose model and data are used.")]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU where there is one.")]
WorkersOption = Annotated[
    int | None,
    typer.Option(min=0, help="Processes that read ahead; default up to 4 for picture files, else 0."),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder, where it was stopped.")]
EveryOption = Annotated[
    float, typer.Option("--checkpoint-every", min=0, help="Seconds between checkpoints, for --resume.")
]
BoardOption = Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard's event files to RUN/events too.")]

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

    Exit codes: 0, done; 1, the run failed; 2, bad input; 3, done, but the output couldn't be written; 130, stopped by
    Ctrl-C; 141, done, but the output's reader had left.
    """
    VERBOSE.set(verbose)


@app.command(epilog="Example: bise demo --seed 1 --out runs/demo-1")
def demo(
    seed: Annotated[int, typer.Option(help="Seed of data, training and extraction.")] = 0,
    rho: Annotated[float, typer.Option(help="Share of training digits on their class's own colour.")] = 0.97,
    out: Annotated[Path | None, typer.Option(help="Run folder; default runs/demo-SEED.")] = None,
    resume: ResumeOption = False,
    checkpoint_every: EveryOption = 60,
    tensorboard: BoardOption = False,
    as_json: JsonOption = False,
) -> None:
    """The whole path on coloured digits: train, audit, extract, finetune, audit, in a minute or two."""
    with _guard(resumable=True):
        from bise.cli.terminal import Bars, show_run
        from bise.jobs.demo import demo as run_demo

        folder = out or Path(f"runs/demo-{seed}")
        with Bars() as bars:
            summary = run_demo(
                folder,
                seed=seed,
                rho=rho,
                progress=bars,
                tensorboard=tensorboard,
                resume=resume,
                every=checkpoint_every,
            )
        show_run(summary, f"Coloured digits, ρ = {rho:g}: accuracy on the unbiased test set, %", folder, as_json)


@app.command(epilog="Example: bise train biased-mnist --rho 0.99 --seed 0 --out runs/vanilla")
def train(
    name: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="biased-mnist, multi-color-mnist, corrupted-cifar10, celeba, civilcomments, biased-madlibs or"
            " biased-madlibs-small.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Run folder to write.")],
    rho: Annotated[str | None, typer.Option(help="Share of aligned samples; two with a comma, for two biases.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of data, weights and batches.")] = 0,
    protocol: Annotated[
        str | None,
        typer.Option(help="The data set's protocol, such as paper, the default, or authors, as in their code."),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs; default the recipe's.")] = None,
    device: DeviceOption = "auto",
    weights: Annotated[
        str | None, typer.Option(help="Weights to start from: imagenet, scratch, or a file; default the recipe's.")
    ] = None,
    select: Annotated[str | None, typer.Option(help="For the steps after: best on val, or last.")] = None,
    data_root: Annotated[Path | None, typer.Option(help="Folder of data sets; default what BISE_DATA names.")] = None,
    limit: Annotated[int | None, typer.Option(help="Draw only so many samples of each split, for a trial.")] = None,
    workers: WorkersOption = None,
    resume: ResumeOption = False,
    checkpoint_every: EveryOption = 60,
    tensorboard: BoardOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train a vanilla model by a recipe, and audit it; go on with bise extract --from."""
    with _guard(resumable=True):
        from bise.base.files import finite
        from bise.cli.terminal import Bars, audit_table, console, show_place, show_table
        from bise.jobs.data_sources import rho_of
        from bise.jobs.recipes import recipe
        from bise.jobs.train import train_job

        chosen = recipe(name, rho=rho_of(rho), protocol=protocol, seed=seed)
        with Bars() as bars:
            summary = train_job(
                chosen,
                out,
                seed=seed,
                epochs=epochs,
                device=device,
                weights=weights,
                root=data_root,
                select=select,
                limit=limit,
                workers=workers,
                progress=bars,
                tensorboard=tensorboard,
                resume=resume,
                every=checkpoint_every,
            )
        if as_json:
            show_json(finite(summary))
            return
        out_console = console()
        show_table(out_console, audit_table("Accuracy on the test split, %", {"vanilla": summary["vanilla"]}))
        out_console.print(f"started from: {summary['start']}; weights: sha256 {summary['weights']['sha256'][:12]}…")
        show_place(out_console, out, summary["seconds"])


@app.command(epilog="Example: bise audit --model nets:make --weights net.safetensors --data nets:load")
@own_data
def audit(
    own: dict[str, Any],
    model: ModelOption = None,
    data: DataOption = None,
    weights: WeightsOption = None,
    from_run: FromOption = None,
    device: DeviceOption = "auto",
    split: Annotated[
        str | None,
        typer.Option(help="Which split to audit; default test, or, with --run, all of a file without splits."),
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="Audit this run's subnetwork; by its model and data, unless others are given.")
    ] = None,
    of: Annotated[
        str, typer.Option(help="Which network of the run: subnetwork, refitted, finetuned, dense_finetuned.")
    ] = "subnetwork",
    trust: TrustOption = False,
    workers: WorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """How biased is it: groups with intervals, information, fairness, calibration, a probe."""
    with _guard():
        from bise.base.files import finite
        from bise.cli.terminal import Bars
        from bise.jobs.audit import audit_job
        from bise.jobs.sources import given, given_for, trust_run

        if trust and run is not None and from_run is None:
            trust_run(run)
        if run is None or from_run is not None:
            network, load, _ = given(model, weights, data, own, from_run, device, trust=trust)
        else:
            network, load = given_for(run, model, weights, data, own, device)
        same = run is not None and data is None and from_run in (None, run)
        with Bars() as bars:
            found = audit_job(network, load, run, of=of, split=split, same=same, workers=workers, progress=bars)
        if as_json:
            show_json(finite(found.as_dict()))
        else:
            where = f", on {split or 'test'}" if same or split else ""
            show(found if run is None else f"{run}, {of}{where}:\n{found}")


@app.command(epilog="Example: bise extract --model nets:make --weights net.safetensors --data nets:load --out runs/a")
@own_data
def extract(
    out: Annotated[Path, typer.Option(help="Run folder to write.")],
    own: dict[str, Any],
    model: ModelOption = None,
    data: DataOption = None,
    weights: WeightsOption = None,
    from_run: FromOption = None,
    trust: TrustOption = False,
    device: DeviceOption = "auto",
    preset: Annotated[
        str, typer.Option(help="balanced; paper, Algorithm 1 to the letter; or authors, as in their code.")
    ] = "balanced",
    gamma: Annotated[float | None, typer.Option(help="γ, the weight of the mutual information.")] = None,
    head_epochs: Annotated[int | None, typer.Option(help="E, epochs of the bias head after each annealing.")] = None,
    mi: Annotated[str | None, typer.Option(help="auto, conflicting, batch or none.")] = None,
    margin: Annotated[
        float | None,
        typer.Option(help="α: raise logits by α · ln p(y | b); default 0.4 for models that know train by heart."),
    ] = None,
    smoothing: Annotated[
        float | None, typer.Option(help="Share of a target spread over all classes; default 0.2 in the same case.")
    ] = None,
    bn: Annotated[str | None, typer.Option(help="BatchNorm: frozen, statistics or all.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Samples a batch.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps an epoch.")] = None,
    upsilon: Annotated[int | None, typer.Option(help="υ, epochs between annealings.")] = None,
    patience: Annotated[
        int | None, typer.Option(help="Anneal sooner, once no gate has flipped for so many epochs.")
    ] = None,
    baseline: Annotated[
        bool | None,
        typer.Option(help="Let masks compete with the model itself on val; default yes, unless the preset is paper."),
    ] = None,
    augment: Annotated[
        bool | None,
        typer.Option(help="Crop and mirror pictures as in training; default as the preset and the recipe say."),
    ] = None,
    jitter: Annotated[
        float | None, typer.Option(help="Turn, stretch and shift pictures at random, and choose no margin then; try 1.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="fp32, bf16, or auto, bf16 on a GPU that has it; default as the preset says.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of batches and bias head.")] = 0,
    bottleneck: Annotated[str | None, typer.Option(help="Module whose input is the bottleneck.")] = None,
    sites: Annotated[list[str] | None, typer.Option(help="Pattern of modules to gate; may be repeated.")] = None,
    workers: WorkersOption = None,
    resume: ResumeOption = False,
    checkpoint_every: EveryOption = 60,
    tensorboard: BoardOption = False,
    as_json: JsonOption = False,
) -> None:
    """Find the subnetwork that doesn't lean on the bias; audits before and after where there is a test split."""
    with _guard(resumable=True):
        from bise.cli.terminal import Bars, show_run
        from bise.extraction.config import PRESETS
        from bise.jobs.extract import extract_job
        from bise.jobs.recipes import preset_changes
        from bise.jobs.sources import given
        from bise.jobs.train import recipe_of, searching

        named: dict[str, Any] = {
            "gamma": gamma,
            "head_epochs": head_epochs,
            "mi": mi,
            "margin": margin,
            "smoothing": smoothing,
            "bn": bn,
            "batch_size": batch_size,
            "steps": steps,
            "upsilon": upsilon,
            "patience": patience,
            "baseline": baseline,
            "augment": augment,
            "jitter": jitter,
            "precision": precision,
        }
        changes = {key: value for key, value in named.items() if value is not None}
        network, load, source = given(model, weights, data, own, from_run, device, trust=trust)
        if (chosen := recipe_of(source)) is not None:
            load, source = searching(chosen, load, source)
            changes = (preset_changes(chosen, preset) if preset in PRESETS else {}) | changes
        with Bars() as bars:
            summary = extract_job(
                network,
                load,
                out,
                preset=preset,
                changes={**changes, "seed": seed},
                bottleneck=bottleneck,
                sites=sites or None,
                source=source,
                workers=workers,
                progress=bars,
                tensorboard=tensorboard,
                resume=resume,
                every=checkpoint_every,
            )
        show_run(summary, "Accuracy on the test split, %", out, as_json)


@app.command(epilog="Example: bise finetune runs/a --epochs 20 --lr 0.001")
def finetune(
    run: Annotated[Path, typer.Argument(help="A run folder of bise extract; its model and data are used again.")],
    preset: Annotated[
        str, typer.Option(help="balanced; or paper or authors: its weights, by the recipe's settings if any.")
    ] = "balanced",
    epochs: Annotated[int | None, typer.Option(help="Epochs; 20 where the preset is balanced.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate; 0.001 where the preset is balanced.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Samples a batch; 100 where the preset is balanced.")] = None,
    sampler: Annotated[str | None, typer.Option(help="balanced, cells evenly; or natural passes.")] = None,
    margin: Annotated[
        float | None, typer.Option(help="α: raise logits by α · ln p(y | b); 1 suits natural passes.")
    ] = None,
    jitter: Annotated[
        float | None, typer.Option(help="Turn, stretch and shift pictures at random; 1 is by up to 15 degrees.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of batches.")] = 0,
    trust: TrustOption = False,
    device: DeviceOption = "auto",
    workers: WorkersOption = None,
    resume: ResumeOption = False,
    checkpoint_every: EveryOption = 60,
    tensorboard: BoardOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train the weights that remain, mask fixed, and the dense control by the same settings."""
    with _guard(resumable=True):
        from bise.cli.terminal import Bars, show_run
        from bise.jobs.finetune import finetune_job
        from bise.jobs.python_sources import device_named
        from bise.jobs.sources import described_by, source_of, trust_run
        from bise.jobs.train import finetune_settings

        if trust:
            trust_run(run)
        changes = finetune_settings(preset, described_by(run))
        named: dict[str, Any] = {"epochs": epochs, "lr": lr, "batch_size": batch_size, "seed": seed}
        named |= {"sampler": sampler, "margin": margin, "jitter": jitter}
        changes |= {key: value for key, value in named.items() if value is not None}
        model, splits = source_of(run)
        with Bars() as bars:
            tuned = model.to(device_named(device))
            summary = finetune_job(
                tuned,
                splits,
                run,
                changes=changes,
                workers=workers,
                progress=bars,
                tensorboard=tensorboard,
                resume=resume,
                every=checkpoint_every,
            )
        show_run(summary, "Accuracy on the test split, %", run, as_json)


@app.command(epilog="Example: bise report runs/a --out for-a-colleague.html")
def report(
    run: Annotated[Path, typer.Argument(help="A run folder of bise demo, train, extract, refit or finetune.")],
    out: Annotated[Path | None, typer.Option(help="File to write; default report.html in the run folder.")] = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make the run's page again: one file, no network, for a reader who knows no code."""
    with _guard():
        from bise.cli.terminal import Bars
        from bise.jobs.report import report_job
        from bise.jobs.sources import trust_run

        if trust:
            trust_run(run)
        with Bars() as bars:
            path = report_job(run, out, progress=bars)
        size = path.stat().st_size
        if as_json:
            show_json({"report": str(path), "bytes": size}, indent=None)
        else:
            show(f"{path}  ({size / 1000:.0f} kB)")


app.command(epilog="Example: bise refit runs/a --on val")(refit)
app.command(epilog="Example: bise shrink runs/a --out model.pt2 --onnx model.onnx")(shrink)
app.command(epilog="Example: bise export runs/a model.onnx")(export)
app.command(epilog="Example: bise verify runs/a")(verify)
app.command(epilog="Example: bise reproduce biased-mnist --scale smoke")(reproduce)


def main() -> None:
    """Entry point of the command `bise`; -v may stand anywhere."""
    interrupts.take()
    output.open_streams()
    given = sys.argv[1:]
    loud = [word for word in given if word in ("-v", "--verbose")]
    try:
        app(loud[:1] + [word for word in given if word not in ("-v", "--verbose")])
    except SystemExit as end:
        code = output.close_streams(end.code if isinstance(end.code, int) else 0)
        interrupts.leave()
        sys.exit(code)
