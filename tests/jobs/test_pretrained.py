"""A shrunk network in a folder: what from_pretrained loads, or operations and tensors that are read without code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import bise
from bise.base.errors import BadInput
from bise.jobs.auto_form import NoForm, auto_form
from bise.jobs.pretrained import FORMS
from bise.network.architectures.text import transformers
from bise.network.outputs import call, logits_tensor
from bise.network.portable.operations import NAMES, OPERATIONS
from bise.network.shrinking.rules import RULES
from small_texts import small

KINDS = ("bert", "distilbert", "roberta")


def tokens(n=4, length=9):
    return {"input_ids": torch.randint(5, 10, (n, length)), "attention_mask": torch.ones(n, length, dtype=torch.long)}


def vit():
    library = transformers()
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    return library.ViTForImageClassification(
        library.ViTConfig(image_size=16, patch_size=8, num_labels=3, **shape)
    ).eval()


def masked(model, example, seed=0):
    """Half of the units closed; of one feed-forward layer more than of the others."""
    random = torch.Generator().manual_seed(seed)
    masks = {name: torch.rand(units, generator=random) < 0.5 for name, units in bise.sites(model, example).items()}
    wide = [name for name, mask in masks.items() if len(mask) == 24]
    masks[wide[0]][:] = False
    masks[wide[0]][3:7] = True
    return bise.subnetwork(model, masks, example=example), masks, wide


def logits(model, x):
    with torch.no_grad():
        return logits_tensor(call(model, x))


@pytest.mark.parametrize("kind", [*KINDS, "vit"])
def test_the_form_of_transformers_loads_by_its_own_class_and_equals_the_masked_network(tmp_path, kind):
    torch.manual_seed(0)
    model, example = (vit(), torch.randn(4, 3, 16, 16)) if kind == "vit" else (small(kind), tokens())
    before = bise.fingerprint(model)
    sub, masks, wide = masked(model, example)
    found = bise.save_pretrained(sub, tmp_path / "small", example)
    library = transformers()
    auto = library.AutoModelForImageClassification if kind == "vit" else library.AutoModelForSequenceClassification
    loaded = auto.from_pretrained(tmp_path / "small").eval()
    assert type(loaded) is type(model)
    widest = max(int(masks[name].sum()) for name in wide)
    assert getattr(loaded.config, "hidden_dim" if kind == "distilbert" else "intermediate_size") == widest
    assert found.form == "transformers"
    assert found.why.endswith(f"24 → {widest} in every layer, that of the widest")
    assert found.parameters == sum(p.numel() for p in loaded.parameters()) < sum(p.numel() for p in model.parameters())
    for x in (example, torch.randn(3, 3, 16, 16) if kind == "vit" else tokens(3, 5)):
        gap = (logits(sub, x) - logits(loaded, x)).abs().max() / logits(sub, x).abs().max().clamp_min(1)
        assert gap < 1e-6
    assert bise.fingerprint(model) == before
    assert {"bise.json", "config.json", "model.safetensors"} == set(os.listdir(tmp_path / "small"))


def decoder(kind):
    """A classifier of a decoder: gated feed-forward layers apart or in one weight, or GPT-2's transposed weights."""
    library, words = transformers(), {"vocab_size": 12, "pad_token_id": 0, "num_labels": 3}
    torch.manual_seed(0)
    if kind == "GPT2":
        config = library.GPT2Config(n_positions=16, n_embd=16, n_layer=2, n_head=2, **words)
    else:
        shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
        config = getattr(library, f"{kind}Config")(num_key_value_heads=2, max_position_embeddings=16, **shape, **words)
    model = getattr(library, f"{kind}ForSequenceClassification")(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


@pytest.mark.parametrize(
    ("kind", "field", "sides"),
    [
        ("Llama", "intermediate_size", {"gate_proj": 0, "up_proj": 0, "down_proj": 1}),
        ("Phi3", "intermediate_size", {"gate_up_proj": 0, "down_proj": 1}),
        ("GPT2", "n_inner", {"mlp.c_fc": 1, "mlp.c_proj": 0}),
    ],
)
def test_decoders_have_that_form_too(tmp_path, kind, field, sides):
    model, example = decoder(kind), tokens()
    masks = {name: torch.arange(units) % 4 != 0 for name, units in bise.sites(model, example).items()}
    heads, wide = ([name for name in masks if ("attn" in name) is of_heads] for of_heads in (True, False))
    masks[heads[0]][1] = False
    masks[wide[0]][8:] = False  # 6 of the first layer's remain
    sub = bise.subnetwork(model, masks, example=example)
    found = bise.save_pretrained(sub, tmp_path / "small", example)
    before = len(masks[wide[1]])
    assert (found.form, found.why.split(" in ")[0]) == ("transformers", f"{field} {before} → {3 * before // 4}")
    loaded = type(model).from_pretrained(tmp_path / "small").eval()
    own = model.state_dict()
    for name, tensor in loaded.state_dict().items():
        dim = next((dim for side, dim in sides.items() if name.endswith(f"{side}.weight")), None)
        shape = [*own[name].shape]
        if dim is not None:
            shape[dim] = shape[dim] * 3 // 4
        assert name.endswith("mlp.c_fc.bias") or [*tensor.shape] == shape, name
    for x in (example, tokens(3, 5)):
        assert (logits(sub, x) - logits(loaded, x)).abs().max() < 1e-6 * logits(sub, x).abs().max().clamp_min(1)


def test_a_class_with_conditions_of_its_own_goes_into_operations(tmp_path, monkeypatch):
    """One feed-forward layer without gates, or a configuration that takes no other width."""
    model, example = decoder("Llama"), tokens()
    (name,) = (name for name in bise.sites(model, example) if name.endswith("layers.1.mlp.down_proj:in"))
    with pytest.raises(NoForm, match="not every feed-forward layer of it has gates"):
        auto_form(bise.subnetwork(model, {name: torch.arange(24) < 8}, example=example), example)
    own = type(model.config).__setattr__

    def narrow(config, key, value):
        if key == "intermediate_size" and value % 8:
            raise ValueError("a multiple of 8")
        own(config, key, value)

    monkeypatch.setattr(type(model.config), "__setattr__", narrow)
    with pytest.raises(NoForm, match="LlamaForSequenceClassification takes no intermediate_size of 25"):
        auto_form(bise.subnetwork(model, {name: torch.arange(24) < 8}, example=example), example)


def test_every_weight_of_that_form_is_the_models_own_or_zero(tmp_path):
    model = small()
    sub, masks, wide = masked(model, tokens())
    state, own = auto_form(sub, tokens()).model.state_dict(), model.state_dict()
    first = "bert.encoder.layer.0.intermediate.dense.weight"
    kept = masks[wide[0]].nonzero().flatten()
    assert torch.equal(state[first][: len(kept)], own[first][kept])
    assert not state[first][len(kept) :].any()
    for name, tensor in state.items():
        values = set(own[name].flatten().tolist())
        assert all(value in values for value in tensor.flatten().tolist() if value)


def test_a_network_without_such_a_form_says_why_and_goes_into_operations(tmp_path):
    plain = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3))
    x = torch.randn(4, 6)
    sub, *_ = masked(plain, x)
    found = bise.save_pretrained(sub, tmp_path / "small", x)
    assert (found.form, found.why) == ("operations", "Sequential is no model of transformers")
    with pytest.raises(BadInput, match="there is no form of transformers: Sequential is no model of transformers"):
        bise.save_pretrained(sub, tmp_path / "other", x, form="transformers")
    assert not (tmp_path / "other").exists()
    library = transformers()
    config = library.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    with pytest.raises(NoForm, match="has no width of its feed-forward layers"):
        auto_form(bise.subnetwork(library.ResNetForImageClassification(config).eval(), {}), torch.randn(2, 3, 32, 32))
    ungated = bise.subnetwork(small(), {"bert.pooler.activation": torch.arange(16) % 2 == 0}, example=tokens())
    with pytest.raises(NoForm, match="not every feed-forward layer of it has gates"):
        auto_form(ungated, tokens())


class Blocks(nn.Module):
    """A residual stream of two linear blocks with BatchNorm, whose sums come after a product."""

    def __init__(self):
        super().__init__()
        self.first, self.acts = nn.Linear(6, 12), nn.ModuleList(nn.ReLU() for _ in range(3))
        self.blocks = nn.ModuleList(nn.Linear(12, 12) for _ in range(2))
        self.norms, self.last = nn.ModuleList(nn.BatchNorm1d(12) for _ in range(2)), nn.Linear(12, 3)

    def forward(self, x):
        x = self.acts[0](self.first(x))
        for block, norm, act in zip(self.blocks, self.norms, self.acts[1:], strict=True):
            x = act(norm(block(x)) + x)
        return self.last(x)


def test_operations_take_the_widths_that_shrinking_takes(tmp_path):
    torch.manual_seed(0)
    model, x = Blocks().eval(), torch.randn(4, 6)
    sub = bise.subnetwork(model, {f"acts.{i}": torch.arange(12) % 4 > i for i in range(3)}, example=x)
    bise.save_pretrained(sub, tmp_path / "wide", x, align=4, streams="union")
    loaded, shrunk = bise.load_pretrained(tmp_path / "wide"), sub.shrink(x, align=4, streams="union")
    assert torch.equal(loaded(x), shrunk(x))
    found = {name: tuple(value.shape) for name, value in load_file(tmp_path / "wide/model.safetensors").items()}
    assert found == {name: tuple(value.shape) for name, value in shrunk.state_dict().items()}
    assert any(node.target is torch.ops.aten.addcmul_.default for node in shrunk.graph.nodes)


def test_heads_that_nothing_follows_go_into_operations_too(tmp_path):
    """ALBERT's layers share their weights, so only its pooler has gates."""
    library = transformers()
    torch.manual_seed(0)
    shape = {"hidden_size": 8, "embedding_size": 8, "num_hidden_layers": 2, "intermediate_size": 8}
    config = library.AlbertConfig(vocab_size=12, num_attention_heads=2, max_position_embeddings=16, **shape)
    model, example = library.AlbertForSequenceClassification(config).eval(), tokens()
    ((site, units),) = bise.sites(model, example).items()
    sub = bise.subnetwork(model, {site: torch.arange(units) % 2 == 0}, example=example)
    found = bise.save_pretrained(sub, tmp_path / "small", example)
    assert (found.form, found.why) == ("operations", "not every feed-forward layer of it has gates")
    x = tokens(3, 5)
    assert (logits(bise.load_pretrained(tmp_path / "small"), x) - logits(sub, x)).abs().max() < 1e-6


@pytest.fixture(scope="module")
def operations(tmp_path_factory):
    """(folder, shrunk network, example) of a BERT in the form of operations."""
    torch.manual_seed(0)
    example = tokens()
    sub, *_ = masked(small(), example)
    folder = tmp_path_factory.mktemp("operations") / "small"
    found = bise.save_pretrained(sub, folder, example, form="operations")
    assert found.form == "operations"
    assert found.difference < 1e-6
    return folder, sub.shrink(example), example


def test_operations_are_the_shrunk_network_bit_for_bit(operations):
    folder, shrunk, example = operations
    loaded = bise.load_pretrained(folder)
    assert not loaded.training
    for x in (example, tokens(7), tokens(1, 5)):
        assert torch.equal(logits(loaded, x), logits(shrunk, x))
    mine, theirs = loaded.state_dict(), shrunk.state_dict()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert [n for n, _ in loaded.named_parameters()] == [n for n, _ in shrunk.named_parameters()]
    logits_tensor(loaded(**example)).sum().backward()  # it can be trained on


ALONE = """
import sys, torch
for module in ("transformers", "timm", "torchvision", "tokenizers"):
    sys.modules[module] = None  # as if it weren't installed
import bise
folder, inputs, out = sys.argv[1:]
x = torch.load(inputs, weights_only=True)
with torch.no_grad():
    torch.save(bise.load_pretrained(folder)(**x), out)
"""


@pytest.mark.long
def test_operations_are_read_where_the_models_library_is_not_installed(operations, tmp_path):
    folder, shrunk, example = operations
    torch.save(example, tmp_path / "x.pt")
    command = [sys.executable, "-c", ALONE, folder, tmp_path / "x.pt", tmp_path / "y.pt"]
    env = os.environ | {"PYTHONPATH": str(Path(bise.__file__).parent.parent)}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert torch.equal(torch.load(tmp_path / "y.pt", weights_only=True), logits(shrunk, example))


def test_every_operation_that_shrinking_knows_has_a_name():
    assert [str(rule) for rule in RULES if rule not in NAMES and not isinstance(rule, FunctionType)] == []
    assert all(name.startswith(("aten.", "operator.", "torch.")) for name in OPERATIONS)


def test_no_operation_reaches_a_file_or_memory_of_others():
    """By their own schemas: none takes the name of a file, and none lays a tensor over memory as it is told to."""
    banned = {
        "from_file",
        "as_strided",
        "as_strided_",
        "set_",
        "resize_",
        "_resize_output",
        "data_ptr",
        "empty_strided",
    }
    for name, operation in OPERATIONS.items():
        assert not banned & set(name.split("."))
        schema = getattr(operation, "_schema", None)
        words = [] if schema is None else [a.name for a in schema.arguments if "str" in str(a.type)]
        assert set(words) <= {"approximate", "rounding_mode", "mode", "padding", "equation", "indexing"}, name


def edited(folder, tmp_path, change):
    """A copy of the folder whose graph.json went through `change`."""
    copy = tmp_path / "copy"
    copy.mkdir()
    save_file(load_file(folder / "model.safetensors"), copy / "model.safetensors")
    (copy / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    content = json.loads((folder / "graph.json").read_text(encoding="utf-8"))
    change(content)
    (copy / "graph.json").write_text(json.dumps(content), encoding="utf-8")
    return copy


def step(operation, *args):
    return lambda content: content["steps"].insert(0, ["evil", operation, list(args), {}])


@pytest.mark.parametrize(
    "change",
    [
        step("aten.from_file.default", "/etc/passwd"),
        step("os.system", "touch ran"),
        step("operator.methodcaller", "x"),
        step("torch._assert.__globals__", "x"),
        step("aten.relu.default", {"of": "nothing"}),
        step("aten.relu.default", {"dtype": "load"}),
        step("aten.relu.default", {"call": "x"}),
        lambda content: content["steps"].clear(),
        lambda content: content.update(tensors={"a": "forward.x"}),
        lambda content: content.update(tensors={"a": ""}),
        lambda content: content.update(tensors={"a": "__class__.x"}),
        lambda content: content.update(steps=None),
        lambda content: content.pop("output"),
        lambda content: content.update(inputs=[["x"]]),
        lambda content: content.update(sha256="0" * 64),
    ],
)
def test_a_folder_that_bise_did_not_write_is_refused_in_a_sentence(operations, tmp_path, change):
    with pytest.raises(BadInput, match="fetch it again|fetch both again"):
        bise.load_pretrained(edited(operations[0], tmp_path, change))


def test_other_inputs_than_it_takes_are_refused(operations):
    loaded = bise.load_pretrained(operations[0])
    with pytest.raises(BadInput, match="takes input_ids, attention_mask, and was given input_ids"):
        loaded(input_ids=torch.ones(1, 4, dtype=torch.long))
    assert "operations on input_ids, attention_mask" in repr(loaded)


def test_a_folder_of_transformers_says_how_to_load_it(tmp_path):
    small().save_pretrained(tmp_path)
    with pytest.raises(BadInput, match="load it by the class's from_pretrained"):
        bise.load_pretrained(tmp_path)
    with pytest.raises(BadInput, match="does not exist"):
        bise.load_pretrained(tmp_path / "none")


def test_nothing_is_written_over_and_nothing_is_left_half_written(tmp_path):
    plain, x = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3)), torch.randn(4, 6)
    sub, *_ = masked(plain, x)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").write_text("mine")
    for place in ("full", "full/mine"):
        with pytest.raises(BadInput, match="exists and isn't empty; name a new folder"):
            bise.save_pretrained(sub, tmp_path / place, x)
    with pytest.raises(BadInput, match=f"form='onnx' is unknown; use {', '.join(FORMS)}"):
        bise.save_pretrained(sub, tmp_path / "new", x, form="onnx")
    (tmp_path / "empty").mkdir()
    bise.save_pretrained(sub, tmp_path / "empty", x)
    assert sorted(os.listdir(tmp_path)) == ["empty", "full"]
