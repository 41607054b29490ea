"""Files to deploy: ONNX and torch.export's .pt2, compared with the module after they are written."""

from __future__ import annotations

import io
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram

from bise.base.errors import BadInput
from bise.base.files import sweep_beside
from bise.base.plain import make_folder
from bise.data.core.coders import write_tokenizer
from bise.data.core.tokens import sentences_of
from bise.jobs.file_facts import PT2_FILE, file_facts, in_one
from bise.network.outputs import call, device_of, logits_tensor, to_device
from bise.network.shrinking import sizes
from bise.network.shrinking.capture import quiet_export
from bise.network.shrinking.folding import fold
from bise.network.shrinking.removal import dtype_of, settle
from bise.network.shrinking.sizes import is_tokens
from bise.network.shrinking.verify import runs
from bise.network.twin import duplicate

TOLERANCE = 1e-4
"""The largest relative difference in float32 between a written file and the module."""


class _Logits(nn.Module):
    """The module with inputs in order and the logits as its only output, which every runtime understands."""

    def __init__(self, module: nn.Module, keys: tuple[str, ...] | None) -> None:
        super().__init__()
        self.module = module
        self.keys = keys

    def forward(self, *inputs: Tensor) -> Tensor:
        return logits_tensor(call(self.module, _given(self.keys, inputs)))


def export(small: nn.Module, path: str | Path, example: Any, *, data: Any = None, texts: Any = None) -> float:
    """Write `small` to `path`, as ONNX or .pt2 by its ending, with a free batch size and BatchNorm folded.

    The file says how large an input is, and what `data` knows: as properties in ONNX, in the extra file bise.json in
    .pt2. The length of token sequences is free as well, where the model leaves it so.

    Args:
        small: The network, usually what `shrink` gave.
        path: A file that ends in .onnx or .pt2.
        example: A batch of a few inputs, [n, …] or a dict of such tensors.
        data: A data set, whose classes' names, and the mean and deviation that its pictures are scaled by, go into
            the file.
        texts: A data set of texts, whose tokenizer is written beside the file: NAME.tokenizer.json for NAME.onnx.

    Returns:
        The largest relative difference between the file and the module on `example`, on other batch sizes and on
        other lengths.

    Raises:
        BadInput: The ending is another one, an extra is missing, or the network can't be traced.

    Example:
        >>> bise.export(nn.Sequential(nn.Linear(8, 2)), "linear.pt2", example) < 1e-5
        True
    """
    path = Path(path)
    check_target(path)
    sentences = sentences_of(texts)
    if texts is not None and sentences is None:
        raise BadInput(f"texts={type(texts).__name__} holds no texts of a tokenizer; leave it out, or give such a set")
    example = to_device(example, device_of(small))
    keys = tuple(example) if isinstance(example, Mapping) else None
    inputs = tuple(example.values()) if isinstance(example, Mapping) else (example,)
    for name, value in zip(keys or ("x",), inputs, strict=True):
        if not isinstance(value, Tensor) or not value.dim():
            raise BadInput(
                f"{name} of the example is no tensor of samples, and a file takes nothing else; wrap the network in a"
                " module that sets it"
            )
    if any(value.shape[0] < 2 for value in inputs):
        raise BadInput("the example has a batch of 1; give at least two samples, so that the batch size stays free")
    model = duplicate(small)  # in train mode, running the caller's own would move its statistics
    model.eval()
    program, cases = _faithful(_Logits(_folded(model), keys), model, keys, inputs)
    make_folder(path.parent)
    beside = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    sweep_beside(path)
    try:
        beside.touch()  # torch would say in another way that it can't
        names = keys or ("x",)
        run = _WRITERS[path.suffix](
            beside, program, names, file_facts(data, names, inputs, any_length=sizes.free(program, tokens=True))
        )
        worst = max(_gap(run, model, keys, case) for case in cases)
        if not worst <= _tolerance(model):
            raise BadInput(
                f"{path}: the file differs from the module by {worst:.1e} (relative), and was not kept; if its forward"
                " treats one sample, or some sizes, in another way, take that out"
            )
        if sentences is not None:
            write_tokenizer(tokenizer_file(path), sentences.coder)
        with beside.open("r+b") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise BadInput(f"{path} can't be written ({error.strerror or error}); choose another place") from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
    return worst


def _tolerance(model: nn.Module) -> float:
    """The largest relative difference that passes: what is rounding depends on the precision of the weights."""
    return max(TOLERANCE, 4 * torch.finfo(dtype_of(model)).eps)


def _cases(program: ExportedProgram, inputs: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The example, one sample more, one alone, and the lengths at which the module may take another way."""
    yield inputs
    yield tuple(torch.cat([t, t[:1]]) for t in inputs)
    yield tuple(t[:1] for t in inputs)
    if sizes.free(program, tokens=True):
        # on a GPU a length that the model has no embedding for would end everything; shrinking has tried them on a CPU
        safe = all(t.device.type == "cpu" for t in inputs)
        for change in (sizes.longer(inputs, -1), *(sizes.doubtful(program, inputs) if safe else ())):
            yield tuple(change.of(inputs))


def _faithful(
    module: nn.Module,
    model: nn.Module,
    keys: tuple[str, ...] | None,
    inputs: tuple[Any, ...],
    free_length: bool = True,
) -> tuple[ExportedProgram, list[tuple[Any, ...]]]:
    """(program, what to compare it on): with a free length of token sequences, unless the module branches on it."""
    module.eval()
    program = _program(module, inputs, free_length)
    cases = [case for case in _cases(program, inputs) if runs(model, _given(keys, case))]
    if sizes.free(program, tokens=True):
        exported = program.module()
        for case in cases:
            if not _same(exported, model, keys, case):
                return _faithful(module, model, keys, inputs, free_length=False)
    return program, cases


def _same(run: Callable[..., Tensor], model: nn.Module, keys: tuple[str, ...] | None, inputs: tuple[Any, ...]) -> bool:
    try:
        return _gap(run, model, keys, inputs) <= _tolerance(model)
    except (RuntimeError, AssertionError):  # what it was exported under doesn't hold for this length
        return False


def _given(keys: tuple[str, ...] | None, inputs: tuple[Any, ...]) -> Any:
    return inputs[0] if keys is None else dict(zip(keys, inputs, strict=True))


def check_target(path: Path) -> None:
    """Refuse a file that can't be written, before there is work behind it."""
    if path.suffix not in _WRITERS:
        raise BadInput(f"{path}: the ending {path.suffix!r} names no format; choose .onnx or .pt2")
    if path.is_dir():
        raise BadInput(f"{path} is a folder; give the name of a file")
    if path.exists() and not path.is_file():
        raise BadInput(f"{path} is a pipe or a device; give the name of a file")


def tokenizer_file(path: Path) -> Path:
    """Where the tokenizer of a written model lies."""
    return path.with_suffix(".tokenizer.json")


def _folded(small: nn.Module) -> nn.Module:
    copied = duplicate(small)
    if isinstance(copied, fx.GraphModule):
        settle(copied, fold(copied), dtype_of(small))
    return copied


def _program(module: nn.Module, inputs: tuple[Any, ...], free_length: bool = True) -> ExportedProgram:
    batch = Dim("batch", min=1)
    shapes = {"inputs": tuple({0: batch, 1: Dim.AUTO} if is_tokens(t) and free_length else {0: batch} for t in inputs)}
    try:
        with torch.no_grad(), quiet_export():
            program = torch.export.export(module, inputs, dynamic_shapes=shapes)
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        what = f"{type(error).__name__}: {first}"
        raise BadInput(f"the network can't be exported with a free batch size ({what})") from error
    if free_length and any(map(is_tokens, inputs)) and not sizes.free(program, tokens=True):
        return _program(module, inputs, free_length=False)  # else the length would be a symbol for one number
    return program


def _pt2(path: Path, program: ExportedProgram, _: tuple[str, ...], facts: Mapping[str, str]) -> Callable[..., Tensor]:
    content = io.BytesIO()  # on a full disk torch's own writer would end the process
    with quiet_export():
        torch.export.save(program, content, extra_files={PT2_FILE: in_one(facts)})
        path.write_bytes(content.getvalue())
        # the file that was written a line above, not one from elsewhere: loading a .pt2 can run code
        return torch.export.load(path).module()


def _onnx(
    path: Path, program: ExportedProgram, names: tuple[str, ...], facts: Mapping[str, str]
) -> Callable[..., Tensor]:
    try:
        import onnxruntime  # type: ignore[import-not-found,import-untyped,unused-ignore]
        import onnxscript  # type: ignore[import-not-found,import-untyped,unused-ignore] # noqa: F401
    except ModuleNotFoundError as error:
        raise BadInput(f"{error.name} is not installed; install the extra: pip install 'bise[onnx]'") from error
    with _quiet_onnx(), quiet_export():
        try:
            made = torch.onnx.export(
                program,
                dynamo=True,
                verbose=False,
                input_names=list(names),
                output_names=["logits"],
                external_data=False,
            )
        except torch.onnx.OnnxExporterError as error:
            raise BadInput(f"the network can't be written as ONNX ({_innermost(error)}); write a .pt2") from error
        assert made is not None
        made.model.metadata_props.update(facts)
        made.save(str(path), external_data=False)
    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # its own kinds, which it doesn't make public
        raise BadInput(
            f"onnxruntime can't run the network ({_innermost(error)}); if its weights are neither float32 nor float16,"
            " turn it to float32 first, or write a .pt2"
        ) from error

    def run(*inputs: Tensor) -> Tensor:
        feed = {slot.name: t.cpu().numpy() for slot, t in zip(session.get_inputs(), inputs, strict=True)}
        return torch.from_numpy(session.run(None, feed)[0])

    return run


def _innermost(error: BaseException) -> str:
    """The first line of what began it, with operations by their names and without where the file lay."""
    while error.__cause__ is not None:
        error = error.__cause__
    first = re.sub(r"<OpOverload\(op='([^']*)'[^>]*>", r"\1", str(error).partition("\n")[0])
    return re.sub(r"Load model from \S+ failed:\s*", "", first.rpartition("] : ")[2]).removesuffix(".")


@contextmanager
def _quiet_onnx() -> Iterator[None]:
    """Without what the ONNX exporter warns about in its own dependencies."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            warnings.filterwarnings("ignore", category=FutureWarning)
            warnings.filterwarnings("ignore", message=".*dynamic_axes.*|.*opset.*", category=UserWarning)
            yield
    finally:
        log.setLevel(level)


def _gap(run: Callable[..., Tensor], model: nn.Module, keys: tuple[str, ...] | None, inputs: tuple[Any, ...]) -> float:
    with torch.no_grad():
        mine = logits_tensor(call(model, _given(keys, inputs)))
        theirs = run(*inputs).to(mine.device)
    return float((mine.double() - theirs.double()).abs().max() / mine.double().abs().max().clamp_min(1e-30))


_WRITERS: dict[str, Callable[[Path, ExportedProgram, tuple[str, ...], Mapping[str, str]], Callable[..., Tensor]]] = {
    ".onnx": _onnx,
    ".pt2": _pt2,
}
