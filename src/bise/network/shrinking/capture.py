"""The masked network as one graph of ATen operations, in the normal forms that the rules rely on."""

from __future__ import annotations

import io
import itertools
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils._pytree import tree_unflatten

from bise.base.errors import BadInput
from bise.network.gates import Gated
from bise.network.outputs import plain_output
from bise.network.shrinking import sizes
from bise.network.shrinking.attention_forms import attention_forms
from bise.network.shrinking.normal_forms import normalise

_ATTENTION = re.compile("attention|attn|transformer", re.IGNORECASE)
_PADS_BY_SIZE = re.compile(r"Same$")
"""timm's convolutions and pools that pad by the picture's size, as TensorFlow does: free, it is a formula in each
layer of that of the one before, and export would take minutes."""
_GATE_MASK = re.compile(r"sub\.gates\.(\d+)\.mask")


@dataclass(kw_only=True)
class Captured:
    """The graph of a subnetwork; its masks are tensors beside it, so that one capture serves every mask."""

    graph: fx.Graph
    tensors: dict[str, Tensor]
    """Placeholder -> parameter, buffer or constant."""
    names: dict[str, str]
    """Placeholder -> the tensor's name in the model."""
    gates: dict[int, str] = field(default_factory=dict)
    """Gate number -> the placeholder of its mask."""
    trainable: frozenset[str] = frozenset()
    """Placeholders of parameters; the rest are buffers and constants."""
    keys: tuple[str, ...] | None = None
    """The names of the inputs where the model takes a dict."""
    dynamic_size: bool = False
    """Whether height and width are free in the graph."""
    dynamic_length: bool = False
    """Whether the length of token sequences is."""
    held: dict[int, dict[int, int]] = field(default_factory=dict)
    """{input: {dimension: the only size}} where they are not."""
    given: dict[int, Any] = field(default_factory=dict)
    """{input: its value} for those that aren't tensors: the graph was captured for these."""
    doubtful: tuple[sizes.Change, ...] = ()
    """Changes of free sizes under which the model may take another way than the graph."""
    outputs: Any = 0
    """What the model returns, dicts and tuples of tensors, each as its place among the outputs of the graph."""


def capture(sub: Gated, example: Any, *, free_sizes: bool = True) -> Captured:
    """Export the masked network with a free batch size, and free heights, widths and lengths if asked and possible."""
    sub.place(example)
    modes = {module: module.training for module in sub.modules()}
    sub.eval()
    # clones: torch.export stumbles over a part of a larger tensor
    inputs = tuple(value.clone() if isinstance(value, Tensor) else value for value in _values(example))
    try:
        with torch.no_grad():
            program = _exported(sub, tuple(example) if isinstance(example, Mapping) else None, inputs, free_sizes)
    finally:
        for module, mode in modes.items():
            module.training = mode
    captured = _lifted(program, example)
    captured.dynamic_size, captured.dynamic_length = (sizes.free(program, tokens=t) for t in (False, True))
    captured.given = {number: value for number, value in enumerate(inputs) if not isinstance(value, Tensor)}
    captured.held, captured.doubtful = sizes.held(program), sizes.doubtful(program, inputs)
    normalise(captured.graph)
    attention_forms(captured.graph, captured.gates.values())
    return captured


def as_module(captured: Captured) -> fx.GraphModule:
    """The graph as it was captured, at full width and under its masks."""
    graph, root = fx.Graph(), nn.Module()
    new: dict[fx.Node, fx.Node] = {}
    names = iter(captured.keys or (f"x{number}" for number in itertools.count()))
    for node in captured.graph.nodes:
        if node.op == "placeholder" and node.name in captured.tensors:
            root.register_buffer(node.name, captured.tensors[node.name])
            new[node] = graph.get_attr(node.name)
        elif node.op == "placeholder":
            new[node] = graph.placeholder(next(names))
        elif node.op == "output":
            leaves: Any = node.args[0]
            graph.output(structured(captured.outputs, lambda place: new[leaves[place]]))  # noqa: B023
        else:
            new[node] = graph.node_copy(node, new.__getitem__)
    return fx.GraphModule(root, graph, class_name="Captured")


def structured(outputs: Any, leaf: Callable[[int], Any]) -> Any:
    """What the model returned, under its names and in its order: logits need not come first."""
    if isinstance(outputs, dict):
        return {key: structured(value, leaf) for key, value in outputs.items()}
    if isinstance(outputs, tuple):
        return tuple(structured(value, leaf) for value in outputs)
    return leaf(outputs)


def _values(example: Any) -> tuple[Any, ...]:
    return tuple(example.values()) if isinstance(example, Mapping) else (example,)


class _Positional(nn.Module):
    """The subnetwork with its inputs in order, since torch.export can't free the sizes of keyword arguments."""

    def __init__(self, sub: Gated, keys: tuple[str, ...] | None) -> None:
        super().__init__()
        self.sub = sub
        self.keys = keys

    def forward(self, *inputs: Any) -> Any:
        if self.keys is None:
            return plain_output(self.sub(*inputs))
        return plain_output(self.sub(**dict(zip(self.keys, inputs, strict=True))))


def _exported(
    sub: Gated, keys: tuple[str, ...] | None, inputs: tuple[Any, ...], free_sizes: bool, pictures: bool = True
) -> ExportedProgram:
    kinds = [type(module).__name__ for module in sub.modules()]
    pictures &= free_sizes and not any(_ATTENTION.search(kind) or _PADS_BY_SIZE.search(kind) for kind in kinds)
    shapes = {"inputs": tuple(_free(value, free_sizes, pictures) for value in inputs)}
    try:
        with quiet_export():
            # an empty table decomposes nothing, but turns in-place operations into functional ones
            program = _program(_Positional(sub, keys), inputs, shapes).run_decompositions({})
    except Exception as error:
        raise BadInput(
            f"{type(sub.network).__name__} can't be captured by torch.export ({type(error).__name__}: "
            f"{str(error).strip().splitlines()[0] if str(error) else 'no message'}); "
            "its forward must not branch on values"
        ) from error
    if moved := sorted(program.graph_signature.buffers_to_mutate.values()):
        name = moved[0].removeprefix("sub.network.")
        raise BadInput(f"{name}: the forward pass updates this buffer, which a shrunk network can't; take that out")
    # a flattened picture has as many features as its size says: then the size is not free after all
    if pictures and _size_in_features(program.graph):
        return _exported(sub, keys, inputs, free_sizes, pictures=False)
    return program


def _program(module: nn.Module, inputs: tuple[Any, ...], shapes: dict[str, Any]) -> ExportedProgram:
    """As it runs; or where len(x) or the like made a number of the batch size, as its source reads."""
    from torch._dynamo.exc import UserError  # which takes a second to import, and export needs it anyway

    try:
        return torch.export.export(module, inputs, dynamic_shapes=shapes)
    except UserError:
        with suppress(Exception):  # if that fails too, the first error says more of what is wrong
            return torch.export.export(module, inputs, dynamic_shapes=shapes, strict=True)
        raise


def _size_in_features(graph: fx.Graph) -> bool:
    values = (node.meta.get("val") for node in graph.nodes)
    rows = (v for v in values if isinstance(v, Tensor) and v.dim() == 2 and v.is_floating_point())
    return any(isinstance(v.shape[1], torch.SymInt) for v in rows)


def _free(value: Any, lengths: bool, pictures: bool) -> Any:
    """The free dimensions of an input: the batch; height and width of pictures; the length of token sequences."""
    if not isinstance(value, Tensor):
        return None
    if value.dim() and value.shape[0] < 2:
        raise BadInput(f"the example has a batch of {value.shape[0]}; give at least two samples, so that it stays free")
    free: dict[int, Any] = {0: Dim.DYNAMIC} if value.dim() else {}
    if lengths if sizes.is_tokens(value) else pictures:
        free |= dict.fromkeys(sizes.size_dims(value), Dim.AUTO)
    return free


@contextmanager
def quiet_export() -> Iterator[None]:
    """Without the deprecation that torch's own exporter trips over, and without what it prints and logs: whole graphs,
    before it raises what the caller puts into a sentence."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\)", category=FutureWarning)
            # noted features, and a part of a file that torch reads and doesn't write to
            for message in ("The tensor attribute .* assigned during export", "The given buffer is not writable"):
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        logging.disable(before)


def _lifted(program: ExportedProgram, example: Any) -> Captured:
    captured = Captured(graph=program.graph_module.graph, tensors={}, names={})
    parameters = set()
    for spec in program.graph_signature.input_specs:
        if spec.kind == InputKind.USER_INPUT:
            continue
        place, name = spec.arg.name, str(spec.target)
        tensor = program.state_dict.get(name, program.constants.get(name))
        if not isinstance(tensor, Tensor):
            raise BadInput(f"{name}: a {type(tensor).__name__} inside the model can't be carried into the graph")
        captured.tensors[place] = tensor.detach()
        captured.names[place] = name.removeprefix("sub.network.")
        if spec.kind == InputKind.PARAMETER:
            parameters.add(place)
        gate = _GATE_MASK.fullmatch(name)
        if gate:
            captured.gates[int(gate[1])] = place
    captured.trainable = frozenset(parameters)
    captured.keys = tuple(example) if isinstance(example, Mapping) else None
    leaves: Any = next(node for node in captured.graph.nodes if node.op == "output").args[0]
    captured.outputs = tree_unflatten(range(len(leaves)), program.call_spec.out_spec)
    return captured
