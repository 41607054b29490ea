"""Classifiers by transformers' Auto classes: hf:FOLDER_OR_NAME, and no code from there."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bise.base.errors import BadInput
from bise.base.files import LARGEST_TEXT
from bise.network.architectures.hub import first_line, missing, reach
from bise.network.architectures.text import offline, quiet, transformers

PLAIN_ATTENTION = (None, "eager", "sdpa")
"""How transformers may compute attention with its own code and torch's: any other name is one of code to be fetched."""


def transformers_model(where: str, *, local: bool) -> nn.Module:
    """A classifier of texts or pictures by transformers' Auto classes: a folder, or a name in the hub or its cache.

    Its code is transformers' own, whatever the folder asks for; its weights are safetensors, in float32.
    """
    library: Any = transformers()
    folder, reached = _place(where, local)
    how: dict[str, Any] = {"local_files_only": local or folder}
    try:
        with reached, quiet():
            _check_configuration(where, library, how)
            config = library.AutoConfig.from_pretrained(where, trust_remote_code=False, **how)
            kind = _kind(where, library, config)
            if commit := getattr(config, "_commit_hash", None):
                how["revision"] = commit  # of one state of the repository; and no server is asked to convert pickles
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model, found = kind.from_pretrained(
                    where,
                    config=config,
                    use_safetensors=True,
                    trust_remote_code=False,
                    dtype=torch.float32,
                    output_loading_info=True,
                    **how,
                )
    except BadInput:
        raise
    except Exception as error:  # transformers raises anything where a file is missing or broken
        raise _unfound(where, folder, local, error) from error
    drawn = sorted([*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])])
    if drawn:
        raise BadInput(
            f"hf:{where} is no trained classifier: it has no {drawn[0]}; train it first, then name the result"
        )
    return model


def _place(where: str, local: bool) -> tuple[bool, AbstractContextManager[Any]]:
    """(whether it is a folder, what keeps the hub out of it); refuses what is neither a folder nor a name."""
    path = Path(where)
    if path.is_dir():
        odd = next((one for one in sorted(path.iterdir()) if not one.is_file() and not one.is_dir()), None)
        if odd is not None:
            raise BadInput(f"{odd} is a pipe, a device or a broken link; only files and folders are read")
        large = (one for one in sorted(path.glob("*.json")) if one.is_file() and one.stat().st_size > LARGEST_TEXT)
        if (odd := next(large, None)) is not None:
            raise BadInput(f"{odd} has {odd.stat().st_size:,} bytes, more than {LARGEST_TEXT:,}; name another model")
        if not (path / "config.json").is_file():
            raise BadInput(f"hf:{where} holds no config.json; name a folder that save_pretrained wrote")
        return True, offline()
    if path.is_absolute() or where.startswith((".", "~")) or where.count("/") > 1 or "\\" in where:
        raise BadInput(f"hf:{where} does not exist; name a folder that save_pretrained wrote, or a model of the hub")
    return False, reach(local)


def _check_configuration(where: str, library: Any, how: Mapping[str, Any]) -> None:
    """Refuse a configuration that asks for code from elsewhere, or for another library to read its weights."""
    content, _ = library.PretrainedConfig.get_config_dict(where, **how)
    for key, value in _entries(content):
        if key.endswith("attn_implementation") and value not in PLAIN_ATTENTION:
            raise BadInput(f"hf:{where}: config.json asks for the code of {value!r}; take {key} out of it")
        if key == "quantization_config":
            raise BadInput(f"hf:{where} holds quantised weights; name the model that it was made from")
    if str(content.get("model_type", "")).startswith("timm") or (
        "architecture" in content and "model_type" not in content
    ):
        raise BadInput(
            f"hf:{where} is a model of timm; give timm:ARCHITECTURE, and its model.safetensors with --weights"
        )


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key with its value, at any depth; an implementation for each part counts as one for all."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if str(key).endswith("attn_implementation") and isinstance(inner, Mapping):
                yield from ((str(key), one) for one in inner.values())
            else:
                yield str(key), inner
                yield from _entries(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _entries(inner)


def _kind(where: str, library: Any, config: Any) -> Any:
    name = (getattr(config, "architectures", None) or ["a model without a head"])[0]
    if name.endswith("ForSequenceClassification"):
        return library.AutoModelForSequenceClassification
    if "ForImageClassification" in name:
        return library.AutoModelForImageClassification
    raise BadInput(f"hf:{where} is {name}, and no classifier of texts or pictures; name one that was trained as such")


def _unfound(where: str, folder: bool, local: bool, error: Exception) -> BadInput:
    if folder:
        return BadInput(
            f"hf:{where} can't be loaded ({first_line(error)}); it takes a config.json of a model that transformers"
            " knows, and its weights in model.safetensors"
        )
    return BadInput(missing(where, f"{where} is neither a folder nor", first_line(error), local, "and give hf:FOLDER"))
