"""A network that is a list of operations: written from a shrunk one, and run as it stands, without code made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, fx, nn

from bise.base.errors import BadInput
from bise.base.files import read_hashed, read_json, write_json, write_tensors
from bise.network.portable.operations import NAMES, OPERATIONS
from bise.network.portable.values import read, written

GRAPH, TENSORS = "graph.json", "model.safetensors"
LARGEST = 1_000_000
"""Operations that a file may hold."""


@dataclass(frozen=True)
class _Of:
    """Stands for what a step, an input or a tensor of the network gives."""

    name: str


@dataclass(frozen=True)
class _Step:
    name: str
    operation: Any
    args: Any
    kwargs: Any
    done: tuple[str, ...]
    """What nobody reads after it."""


class Operations(nn.Module):
    """Runs its steps one after another; parameters and buffers have the names that they had in the user's model."""

    def __init__(
        self,
        inputs: Sequence[str],
        tensors: Mapping[str, str],
        steps: Sequence[tuple[str, str, Any, Any]],
        output: Any,
        values: Mapping[str, Tensor],
        buffers: frozenset[str],
    ) -> None:
        """`tensors` {name in the graph: name in the network}; `steps` (name, operation, args, kwargs) as JSON."""
        super().__init__()
        self.inputs, self.tensors = tuple(inputs), dict(tensors)
        known = {*self.inputs, *self.tensors}
        used: dict[str, int] = {}

        def of(name: str, at: int) -> _Of:
            if name not in known:
                raise ValueError(f"{name!r:.60} is read before it is made")
            used[name] = at
            return _Of(name)

        parsed = []
        for number, (name, operation, args, kwargs) in enumerate(steps):
            if (
                name in known
                or operation not in OPERATIONS
                or not isinstance(args, list)
                or not isinstance(kwargs, dict)
            ):
                raise ValueError(f"step {number} ({name!r:.60}, {operation!r:.60}) is none that bise writes")
            here = lambda one, at=number: of(one, at)  # noqa: E731
            given = read(args, here), {str(key): read(value, here) for key, value in kwargs.items()}
            parsed.append((name, OPERATIONS[operation], *given))
            known.add(name)
        self.output = read(output, lambda one: of(one, len(steps)))
        done: dict[int, list[str]] = {}
        for name, at in used.items():
            done.setdefault(at, []).append(name)
        self.steps = [_Step(*one, tuple(done.get(number, ()))) for number, one in enumerate(parsed)]
        for name in self.tensors.values():
            self._register(name, values[name], name in buffers)

    def _register(self, name: str, value: Tensor, buffer: bool) -> None:
        *path, leaf = name.split(".")
        owner: nn.Module = self
        for part in path:
            if part not in owner._modules:
                owner.add_module(part, nn.Module())
            owner = owner.get_submodule(part)
        if leaf in owner._parameters or leaf in owner._buffers:  # one that is read twice
            return
        if buffer:
            owner.register_buffer(leaf, value)
        else:
            owner.register_parameter(leaf, nn.Parameter(value, requires_grad=value.is_floating_point()))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        values: dict[str, Any] = dict(zip(self.inputs, args, strict=False)) | kwargs
        if len(args) > len(self.inputs) or set(values) != set(self.inputs):
            raise BadInput(
                f"the network takes {', '.join(self.inputs)}, and was given {', '.join(values) or 'nothing'}"
            )
        for name, place in self.tensors.items():
            path, _, leaf = place.rpartition(".")
            values[name] = getattr(self.get_submodule(path), leaf)
        for step in self.steps:
            values[step.name] = step.operation(*_filled(step.args, values), **_filled(step.kwargs, values))
            for name in step.done:
                del values[name]
        return _filled(self.output, values)

    def extra_repr(self) -> str:
        return f"{len(self.steps)} operations on {', '.join(self.inputs)}"


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    """`value` with what its names stand for."""
    if isinstance(value, _Of):
        return values[value.name]
    if isinstance(value, (list, tuple)):
        return type(value)(_filled(item, values) for item in value)
    if isinstance(value, dict):
        return {key: _filled(item, values) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(_filled(part, values) for part in (value.start, value.stop, value.step)))
    return value


def write_network(small: fx.GraphModule, folder: Path, about: Mapping[str, Any]) -> None:
    """graph.json and model.safetensors of a shrunk network, in `folder`."""
    inputs, tensors, steps = [], {}, []
    output: Any = None
    for node in small.graph.nodes:
        if node.op == "placeholder":
            inputs.append(str(node.target))
            if node.name != node.target:
                raise BadInput(
                    f"the input {node.target} of the shrunk network has another name in its graph; write a .pt2"
                )
        elif node.op == "get_attr":
            tensors[node.name] = str(node.target)
        elif node.op == "output":
            output = written(node.args[0])
        elif node.target in NAMES:
            kwargs = {key: written(value) for key, value in node.kwargs.items()}
            steps.append([node.name, NAMES[node.target], written(list(node.args)), kwargs])
        else:
            raise BadInput(f"the operation {node.target} has no form in a folder; write a .pt2 or ONNX instead")
    buffers = dict(small.named_buffers(remove_duplicate=False))
    values = dict(small.named_parameters(remove_duplicate=False)) | buffers
    kept = {name: values[name] for name in tensors.values()}
    sha256 = write_tensors(folder / TENSORS, kept)
    graph = {"inputs": inputs, "tensors": tensors, "buffers": sorted(set(buffers) & set(kept))}
    write_json(folder / GRAPH, {**about, "sha256": sha256, **graph, "steps": steps, "output": output})


def load_pretrained(folder: str | Path) -> nn.Module:
    """The shrunk network that `bise.save_pretrained` or `bise shrink --folder` wrote, in eval mode on the CPU.

    Nothing in the folder is run or unpickled: it names operations of a fixed list, and tensors.

    Args:
        folder: The folder; one in the form of transformers is loaded by its class's `from_pretrained` instead.

    Returns:
        The network, which needs torch and safetensors alone.

    Raises:
        BadInput: The folder holds no such network, or files that don't belong together.

    Example:
        >>> report = bise.save_pretrained(sub, "for-a-colleague", example)
        >>> small = bise.load_pretrained("for-a-colleague")
        >>> small(example).shape == model(example).shape
        True
    """
    folder = Path(folder)
    if not (folder / GRAPH).is_file() and (folder / "config.json").is_file():
        raise BadInput(
            f"{folder} holds no {GRAPH}; if it is in the form of transformers, load it by the class's from_pretrained"
        )
    content = read_json(folder / GRAPH)
    values, sha256 = read_hashed(folder / TENSORS)
    if content.get("sha256") != sha256:
        raise BadInput(f"{folder / TENSORS} is not the file that {GRAPH} was written beside; fetch both again")
    try:
        if len(content["steps"]) > LARGEST:
            raise ValueError(f"it has more than {LARGEST:,} steps")
        parts = {key: content[key] for key in ("inputs", "tensors", "steps", "output")}
        made = Operations(**parts, values=values, buffers=frozenset(content["buffers"]))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, RuntimeError) as error:
        raise BadInput(f"{folder / GRAPH} holds something else than bise writes ({error}); fetch it again") from error
    return made.eval()
