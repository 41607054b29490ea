"""A subnetwork in a folder: scores, masks and what it owns as safetensors, the rest as JSON."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from bise.base.errors import BadInput
from bise.base.files import read_json, read_tensors
from bise.network.placement import Site
from bise.network.subnetwork import Subnetwork
from bise.network.twin import fingerprint, named_tensors


def load(folder: str | Path, model: nn.Module) -> Subnetwork:
    """A saved subnetwork, laid over the same model; refused where the model's weights are not the ones it had.

    Args:
        folder: What `Subnetwork.save` wrote.
        model: The model that the subnetwork was taken from, with its weights.

    Returns:
        The subnetwork: scores, masks, and the tensors that it owned.

    Raises:
        BadInput: The folder holds no subnetwork, or the model is another one.

    Example:
        >>> sub.save("kept")
        >>> torch.equal(bise.load("kept", model)(example), sub(example))
        True
    """
    folder = Path(folder)
    content = read_json(folder / "subnetwork.json")
    tensors = read_tensors(folder / "subnetwork.safetensors")
    try:
        sites, bottleneck, weights = (
            tuple(_site(**s) for s in content["sites"]),
            content["bottleneck"],
            content["weights"],
        )
        owned = frozenset(content["owned"])
        parts = {kind: {site.name: tensors[f"{kind}.{site.name}"] for site in sites} for kind in ("scores", "masks")}
        own_tensors = {name: tensors[f"own.{name}"] for name in owned}
    except (KeyError, TypeError) as error:
        raise BadInput(f"{folder} holds no complete subnetwork (missing {error})") from error
    modules = {module for site in sites for module in (site.module, site.norm)}
    missing = sorted(modules - set(dict(model.named_modules())))
    if missing:
        raise BadInput(f"{type(model).__name__} has no module {missing[0]}, which {folder} gates; load its own model")
    sub = Subnetwork(model, sites, **parts, bottleneck=bottleneck, owned=owned)
    everything = named_tensors(sub.network)
    for name, tensor in own_tensors.items():
        if name not in everything or everything[name].shape != tensor.shape:
            raise BadInput(f"{type(model).__name__} has no {name} of shape {tuple(tensor.shape)}; load its own model")
        everything[name].copy_(tensor)
    if fingerprint(sub.bare()) != weights:
        raise BadInput(
            f"the weights of this {type(model).__name__} are not the ones that {folder} was made with;"
            " load the same checkpoint first"
        )
    sub.kept = {name: t for name, t in tensors.items() if name.partition(".")[0] not in ("scores", "masks", "own")}
    sub.record = content.get("record", {})
    return sub


def _site(name: str, units: int, dim: int, spread: int = 1, norm: str = "") -> Site:
    if (
        not isinstance(name, str)
        or not isinstance(norm, str)
        or not all(type(value) is int for value in (units, dim, spread))
    ):
        raise TypeError("a site's name and numbers")
    return Site(name=name, units=units, dim=dim, spread=spread, norm=norm)
