"""A shrunk network in a folder: in the form of transformers where that has one, else as operations and tensors."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from bise.base.errors import BadInput, Unwritable
from bise.base.files import sweep_beside, write_json
from bise.base.version import VERSION
from bise.jobs.auto_form import AutoForm, NoForm, auto_form
from bise.network.architectures.text import offline, quiet
from bise.network.outputs import call, logits_tensor, to_device
from bise.network.portable.network import load_pretrained, write_network
from bise.network.size import parameters
from bise.network.subnetwork import Subnetwork
from bise.network.twin import duplicate, fingerprint

FORMS = ("auto", "transformers", "operations")
TOLERANCE = 1e-6
"""The largest relative difference of logits between the network and what is read back from the folder."""
ABOUT = "bise.json"
BESIDE = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt"),
    *("vocab.json", "merges.txt", "spiece.model", "sentencepiece.bpe.model", "preprocessor_config.json"),
)
"""What lies beside a model of transformers and says how its inputs are made."""


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """What was written: its form, its size, and how far the logits of what is read back differ."""

    form: str
    parameters: int
    difference: float
    why: str
    """What the form says of widths, or why it isn't that of transformers."""


def save_pretrained(
    sub: Subnetwork,
    folder: str | Path,
    example: Any,
    *,
    form: str = "auto",
    align: int | Literal["auto"] = 1,
    streams: Literal["narrow", "union", "auto"] | None = None,
) -> Pretrained:
    """Write a subnetwork without its closed units to a new folder, read it back, and compare the two.

    In the form of transformers, any `from_pretrained` loads it; in that of operations, `bise.load_pretrained` does,
    with torch and safetensors alone.

    Args:
        sub: The subnetwork.
        folder: A new folder, or an empty one.
        example: A batch of a few inputs.
        form: "transformers", "operations", or "auto": the first where a configuration can say the widths.
        align: As in `sub.shrink`, for operations; a configuration of transformers has widths of its own.
        streams: Likewise.

    Returns:
        The form that was taken, and why, the parameters, and how far the logits of what is read back differ.

    Raises:
        BadInput: The folder isn't empty or can't be written, there is no such form, or what is read back differs.

    Example:
        >>> bise.save_pretrained(sub, "to-hand-on", example).form
        'operations'
    """
    folder = Path(folder)
    if form not in FORMS:
        raise BadInput(f"form={form!r} is unknown; use {', '.join(FORMS)}")
    check_new(folder)
    sub = duplicate(sub).cpu().eval()
    example = to_device(example, torch.device("cpu"))
    sub.place(example)
    made, why = _formed(sub, example, form)
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    sweep_beside(folder)
    try:
        beside.mkdir(parents=True)
        if made:
            found = _write_auto(sub, made, beside, example)
        else:
            small = sub.shrink(example, align=align, streams=streams)
            found = _write_operations(sub, small, beside, example, why)
        about = {"bise": VERSION, **asdict(found), "weights": fingerprint(sub.bare())}
        write_json(beside / ABOUT, about)
        if folder.exists():
            folder.rmdir()
        beside.rename(folder)
    except OSError as error:
        if isinstance(error, Unwritable):
            raise
        raise BadInput(f"{folder} can't be written ({error.strerror or error}); choose another place") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return found


def check_new(folder: Path) -> None:
    """Refuse a place where something lies, before there is work behind it."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput(f"{folder} exists and isn't empty; name a new folder")


def _formed(sub: Subnetwork, example: Any, form: str) -> tuple[AutoForm | None, str]:
    """The form of transformers, or why there is none."""
    if form == "operations":
        return None, "as was asked for"
    try:
        return auto_form(sub, example), ""
    except NoForm as error:
        if form == "transformers":
            raise BadInput(
                f"there is no form of transformers: {error}; take form='operations', or export it"
            ) from error
        return None, str(error)


def _write_auto(sub: Subnetwork, made: AutoForm, folder: Path, example: Any) -> Pretrained:
    """A folder for `from_pretrained`, with tokenizer and preprocessor of the model where they are on this machine."""
    kind = type(made.model)
    with quiet(), offline():
        made.model.save_pretrained(folder)
        loaded = kind.from_pretrained(folder, use_safetensors=True, local_files_only=True).eval()
    _copy_beside(str(getattr(made.model.config, "_name_or_path", "")), folder)
    return Pretrained(
        form="transformers",
        parameters=parameters(loaded),
        difference=_gap(sub, loaded, example, folder),
        why=f"{made.field} {made.before} → {made.after} in every layer, that of the widest",
    )


def _write_operations(sub: Subnetwork, small: Any, folder: Path, example: Any, why: str) -> Pretrained:
    write_network(small, folder, {"bise": VERSION})
    loaded = load_pretrained(folder)
    return Pretrained(
        form="operations", parameters=parameters(loaded), difference=_gap(sub, loaded, example, folder), why=why
    )


def _gap(sub: Subnetwork, loaded: nn.Module, example: Any, folder: Path) -> float:
    """The largest difference of logits, relative to the largest above 1; a folder that differs isn't kept."""
    with torch.no_grad():
        mine, theirs = (logits_tensor(call(network, example)).double() for network in (sub, loaded))
    gap = float((mine - theirs).abs().max() / mine.abs().max().clamp_min(1))
    if not gap <= max(TOLERANCE, 4 * torch.finfo(_precision(sub)).eps):
        raise BadInput(f"what {folder.name} holds differs from the network by {gap:.1e} (relative), and isn't kept")
    return gap


def _precision(sub: Subnetwork) -> torch.dtype:
    return next((p.dtype for p in sub.network.parameters() if p.is_floating_point()), torch.float32)


def _copy_beside(name: str, folder: Path) -> None:
    for file in BESIDE:
        found: Any = Path(name) / file if Path(name).is_dir() else _cached(name, file)
        if found is not None and Path(found).is_file() and not (folder / file).exists():
            shutil.copyfile(found, folder / file)


def _cached(name: str, file: str) -> Any:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, file) if name else None
    return found if isinstance(found, str) else None
