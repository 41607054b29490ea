"""The two large architectures of the paper, ResNet-18 and BERT, with a word on where their weights come from."""

from __future__ import annotations

import http.client
from pathlib import Path
from typing import Any
from urllib.error import URLError

from torch import nn

from bise.base.errors import BadInput
from bise.network.architectures.text import transformers
from bise.network.architectures.vision import torchvision
from bise.network.weights import read_state, start_from

BERT_BASE = {
    "vocab_size": 30_522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3_072,
}


def resnet18(classes: int, weights: str | Path | None = None) -> tuple[nn.Module, str]:
    """(torchvision's ResNet-18, provenance): `weights` is "imagenet", a file, or None to start from scratch.

    The last layer is drawn anew where the weights have another number of classes.
    """
    torchvision()
    from torchvision import models

    model = models.resnet18(weights=None, num_classes=classes)
    if weights is None:
        return model, "scratch"
    if str(weights) == "imagenet":
        chosen = models.ResNet18_Weights.IMAGENET1K_V1
        try:
            state = chosen.get_state_dict(progress=False, check_hash=True, weights_only=True)
        except (URLError, http.client.HTTPException, OSError, RuntimeError) as error:
            raise BadInput(
                f"ImageNet weights are not in torch's cache and can't be fetched from {chosen.url}"
                f" ({str(error).splitlines()[0]}); give weights=FILE, or weights=None to start from scratch"
            ) from error
        return model, start_from(model, state, head="fc", what=f"ImageNet-1K, torchvision {chosen.name}")
    return model, start_from(model, read_state(Path(weights)), head="fc", what=str(weights))


def bert(classes: int, weights: str | Path | None = None, **changes: Any) -> tuple[nn.Module, str]:
    """(BERT with a linear layer on its pooler, provenance): `weights` is a model's name, its folder, or None.

    None draws weights at random, in the shape of bert-base-uncased as `changes` to its configuration alter it.
    """
    library: Any = transformers()
    kind = library.BertForSequenceClassification  # its types don't know what it returns
    if weights is None:
        settings: dict[str, Any] = {**BERT_BASE, **changes, "num_labels": classes}
        return kind(library.BertConfig(**settings)), "scratch"
    if changes:
        raise BadInput(f"{', '.join(changes)} can't be changed beside weights={str(weights)!r}; leave one of them out")
    try:
        # a pickled pytorch_model.bin is left alone
        model, found = kind.from_pretrained(
            str(weights),
            num_labels=classes,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    except Exception as error:  # transformers raises anything where a file is missing or broken
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadInput(
            f"BERT weights {str(weights)!r} are neither a folder with config.json and model.safetensors nor to be"
            f" fetched ({reason}); give another, or weights=None to start from scratch"
        ) from error
    drawn = [*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])]
    wrong = sorted(name for name in drawn if not name.startswith("classifier."))
    if wrong:
        raise BadInput(f"BERT weights {str(weights)!r} have no {wrong[0]} of the right shape; give those of a BERT")
    return model, f"{weights}, classifier drawn anew" if drawn else str(weights)
