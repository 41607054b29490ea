"""What users really bring: models and data that are written in other ways than ours."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import bise
from bise import BadInput, BiseWarning, ExtractConfig, TrainConfig
from bise.data import Labelled, labels
from bise.engine.inputs import Inputs
from bise.jobs.python_sources import model_of
from bise.network.placement import place
from bise.network.weights import fitting
from conftest import toy, toy_model, trained
from real_models import make

QUICK = {"upsilon": 1, "steps": 5, "head_epochs": 2, "head_steps": 5, "batch_size": 60}


def pictures(n=120, size=8):
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 3
    b = torch.where(torch.rand(n, generator=generator) < 0.8, y, (y + 1 + y % 2) % 3)
    return Labelled(TensorDataset(torch.randn(n, 3, size, size, generator=generator)), y=y, b=b)


def test_a_view_in_the_models_code_is_no_obstacle():
    class Lenet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.fc1, self.fc2 = nn.Conv2d(3, 4, 3), nn.Linear(36, 8), nn.Linear(8, 3)

        def forward(self, x):
            x = F.max_pool2d(F.relu(self.conv(x)), 2)
            return self.fc2(F.relu(self.fc1(x.view(x.size(0), -1))))

    data = pictures()
    sub = bise.extract(Lenet(), data, config=ExtractConfig(**QUICK))
    assert list(sub.masks) == ["fc1:in", "fc2:in"]
    bise.audit(sub, data)
    bise.finetune(sub, data, config=TrainConfig.finetuning(epochs=1))


def test_an_audit_sees_what_the_model_itself_gives():
    model, data = make("SimpleConvNet")[0], pictures(size=28)
    from bise.engine.inference import infer

    with torch.no_grad():
        expected = torch.cat([model(x) for x in data.tensors[0].split(50)])
    inputs = Inputs(data, torch.device("cpu"))
    assert torch.equal(infer(bise.Subnetwork(model, ()), inputs, batch_size=50).logits, expected)


def test_masks_that_wait_for_an_input_are_never_lost(tmp_path):
    data = toy()
    model = trained(toy_model(), data)
    masks = {name: torch.arange(n) % 2 == 0 for name, n in bise.sites(model, data.tensors[0][:4]).items()}
    placed = bise.subnetwork(model, masks, example=data.tensors[0][:4])
    expected = bise.audit(placed, data).accuracy
    assert bise.audit(bise.subnetwork(model, masks), data).accuracy == expected != bise.audit(model, data).accuracy
    tuned = bise.finetune(bise.subnetwork(model, masks), data, config=TrainConfig.finetuning(epochs=1))
    assert tuned.units == (16, 32)
    waiting = bise.subnetwork(model, masks)
    assert waiting.units == (16, 32)
    for use in (
        lambda: waiting.save(tmp_path),
        lambda: waiting.at(0.5),
        lambda: waiting.bare(),
        lambda: waiting.scores,
    ):
        with pytest.raises(BadInput, match="wait for an input"):
            use()
    assert bise.audit(placed.at(0), data).accuracy == bise.audit(model, data).accuracy


def test_a_subclass_with_its_own_access_is_asked_sample_by_sample():
    class Ones(TensorDataset):
        def __getitem__(self, i):
            return (torch.ones(8),)

    data = toy()
    inputs = Inputs(Labelled(Ones(data.tensors[0]), y=data.y, b=data.b), torch.device("cpu"))
    assert torch.equal(inputs.example(), torch.ones(4, 8))


@pytest.mark.parametrize("change", [{"lr": 1e30}, {"weight_decay": 1e6}])
def test_scores_that_run_away_are_noticed(change):
    data = toy()
    with pytest.raises(BadInput, match="scores became non-finite in epoch"):
        bise.extract(trained(toy_model(), data), data, config=ExtractConfig(**(QUICK | change)))


def test_no_momentum():
    data = toy()
    sub = bise.extract(trained(toy_model(), data), data, config=ExtractConfig(**QUICK, momentum=0.0, lr=0.5))
    assert sub.units[0] < sub.units[1]


def test_a_last_batch_of_one_sample():
    data = toy(n=601)
    model = trained(toy_model(), toy())
    tuned = bise.finetune(model, data, config=TrainConfig(epochs=1, weights="groups"))
    sub = bise.extract(model, data, config=ExtractConfig.paper(bn="statistics", upsilon=1, head_epochs=1, tau_min=0.6))
    losses = [tuned.record["history"][-1]["loss"], sub.record["history"][-1]["cross_entropy"]]
    assert torch.tensor(losses).isfinite().all()
    statistics = [value for name, value in sub.network.named_buffers() if "running" in name]
    assert statistics
    assert all(value.isfinite().all() for value in statistics)


def test_a_dead_unit_does_not_keep_a_run_from_stopping():
    data = toy()
    model = trained(toy_model(), data)
    with torch.no_grad():
        model[3].weight[0] = 0
        model[3].bias[0] = -1
    sub = bise.extract(model, data, config=ExtractConfig(**(QUICK | {"upsilon": 10, "steps": 20, "lr": 0.05})))
    assert "no gate can flip" in sub.record["stopped"]
    assert float(sub.scores["4"][0]) == 0


def test_a_frozen_backbone_is_said():
    class Frozen(nn.Module):
        def __init__(self, gated_head):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
            self.head = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)) if gated_head else nn.Linear(16, 3)

        def forward(self, x):
            with torch.no_grad():
                z = self.body(x)
            return self.head(z)

    with pytest.warns(BiseWarning, match="no gradient reaches body.1"):
        bise.extract(Frozen(True), toy(), config=ExtractConfig(**QUICK))
    with pytest.raises(BadInput, match="no gradient reaches any gate"):
        bise.extract(Frozen(False), toy(), config=ExtractConfig(**QUICK))


def test_no_grad_and_inference_mode_around_the_call():
    data = toy()
    model = trained(toy_model(), data)
    with torch.no_grad():
        assert bise.extract(model, data, config=ExtractConfig(**QUICK)).units[1] == 32
    with torch.inference_mode(), pytest.raises(BadInput, match="inference_mode"):
        bise.extract(model, data, config=ExtractConfig(**QUICK))


def test_wrapped_models_get_the_gates_of_their_family():
    resnet, x = make("torchvision resnet18")

    class Wrapper(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = resnet

        def forward(self, x):
            return self.net(x)

    class Mine(type(resnet)):
        pass

    resnet_like = resnet
    assert place(Wrapper(), x).units == 3840
    resnet_like.__class__ = Mine
    assert place(resnet_like, x).units == 3840
    bert, tokens = make("small BERT")

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.fc = bert.bert, nn.Linear(32, 2)

        def forward(self, input_ids, attention_mask):
            return self.fc(self.encoder(input_ids, attention_mask=attention_mask).pooler_output)

    found = place(Classifier(), tokens)
    assert found.units == 224 + 2 * 2  # and two heads in each layer
    assert [s.name for s in found.sites if s.name.endswith("dense")] == [
        "encoder.encoder.layer.0.output.dense",
        "encoder.encoder.layer.1.output.dense",
    ]


def test_the_global_random_state_stays_where_it_was():
    data = toy()
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))
    rows = [data[i] for i in range(len(data))]
    before = torch.get_rng_state()
    sub = bise.extract(model, rows, config=ExtractConfig(**QUICK))
    first = bise.finetune(sub, rows, config=TrainConfig.finetuning(epochs=1))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(123)
    second = bise.finetune(sub, rows, config=TrainConfig.finetuning(epochs=1))
    assert torch.equal(first.network[0].weight, second.network[0].weight)


def test_a_model_that_counts_its_calls_in_a_buffer_is_left_alone():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = toy_model()
            self.register_buffer("calls", torch.zeros(1), persistent=False)

        def forward(self, x):
            self.calls += 1
            return self.body(x)

    model, data = Counting(), toy()
    before = bise.fingerprint(model)
    sub = bise.extract(model, data, config=ExtractConfig(**QUICK))
    bise.audit(model, data)
    assert bise.fingerprint(model) == before
    assert float(model.calls) == 0
    assert sub.owned == {"calls"}


def test_a_transformer_encoder_with_a_padding_mask():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
            self.encoder, self.fc = nn.TransformerEncoder(layer, 2), nn.Linear(8, 2)

        def forward(self, x, padding):
            return self.fc(self.encoder(x, src_key_padding_mask=padding).mean(1))

    generator = torch.Generator().manual_seed(0)
    y = torch.arange(40) % 2
    b = torch.where(torch.rand(40, generator=generator) < 0.8, y, 1 - y)
    padding = torch.zeros(5, dtype=torch.bool)
    padding[4] = True
    rows = [{"x": torch.randn(5, 8, generator=generator), "padding": padding} for _ in range(40)]
    sub = bise.extract(Encoder().eval(), Labelled(rows, y=y, b=b), config=ExtractConfig(**(QUICK | {"batch_size": 10})))
    assert sub.units[1] == 2 * (16 + 2)  # and two heads in each layer


def test_sequence_first_bottlenecks_are_refused():
    class First(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.act, self.fc = nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3)

        def forward(self, x):
            h = self.act(self.body(x.view(len(x), 4, 2)).transpose(0, 1))
            return self.fc(h).mean(0)

    with pytest.raises(BadInput, match="bottleneck have 4 rows for 3 samples"):
        bise.extract(First(), toy(), config=ExtractConfig(**QUICK))


def test_copies_of_a_finetuned_subnetwork_own_their_weights():
    data = toy()
    tuned = bise.finetune(trained(toy_model(), data), data, config=TrainConfig.finetuning(epochs=1))
    other = tuned.at(0.5)
    before = bise.fingerprint(tuned)
    other.train()
    other(data.tensors[0])
    assert bise.fingerprint(tuned) == before


class Unlabelled:
    def __init__(self, labels_of):
        self.labels_of = labels_of

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return torch.zeros(8), self.labels_of[i], i % 2


class ClassNumbers(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = toy_model()

    def forward(self, x):
        return self.network(x).argmax(1)


@pytest.mark.parametrize(
    ("last", "sentence"),
    [(nn.Softmax(1), "add up to 1 for every sample, as after a softmax"), (None, None)],
)
def test_outputs_that_look_like_probabilities_are_doubted(last, sentence, recwarn):
    model = toy_model() if last is None else nn.Sequential(toy_model(), last)
    bise.audit(model, toy(), probe=False)
    bise.extract(model, toy(), config=ExtractConfig(**QUICK))
    said = [str(w.message) for w in recwarn if "as after" in str(w.message)]
    assert len(said) == (0 if sentence is None else 2)
    assert all(sentence in one for one in said)


def test_a_sigmoid_at_the_end_is_doubted():
    data = toy()
    two = Labelled(TensorDataset(data.tensors[0]), y=data.y % 2, b=data.b % 2)
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 1), nn.Sigmoid())
    with pytest.warns(
        BiseWarning, match="as after a sigmoid, and is taken for a logit, so that all of them say class 1"
    ):
        found = bise.audit(model, two, probe=False)
    assert found.accuracy == pytest.approx(int(two.y.sum()) / len(two))  # what the sentence says


def test_val_that_lacks_a_class_is_told_of():
    data = toy()
    some = data.y != 2
    val = Labelled(TensorDataset(data.tensors[0][some]), y=data.y[some], b=data.b[some])
    with pytest.warns(BiseWarning, match=r"val lacks classes of train \(2\)"):
        bise.extract(toy_model(), data, val=val, config=ExtractConfig(**QUICK))


def broken_val(**changes):
    data = toy()
    parts = {"x": data.tensors[0].clone(), "y": data.y, "b": data.b} | changes
    return Labelled(TensorDataset(parts["x"]), y=parts["y"], b=parts["b"])


def on_val(val):
    return bise.extract(toy_model(), toy(), val=val, config=ExtractConfig(**QUICK))


def test_labels_may_be_arrays_without_a_dimension():
    assert labels(Unlabelled([np.array(0), np.array(1), np.int64(0), 1])).y.tolist() == [0, 1, 0, 1]


def test_weights_of_a_wrapped_model_fit(tmp_path):
    state = toy_model().state_dict()
    for wrapper in ("module.", "_orig_mod.", "_orig_mod.module.", "module._orig_mod."):
        torch.save({f"{wrapper}{name}": tensor for name, tensor in state.items()}, tmp_path / "w.pt")
        assert bise.fingerprint(model_of("conftest:toy_model", tmp_path / "w.pt")) == bise.fingerprint(loaded(state))
    torch.save({"epoch": 3, "model": state}, tmp_path / "w.pt")
    assert bise.fingerprint(model_of("conftest:toy_model", tmp_path / "w.pt")) == bise.fingerprint(loaded(state))
    own = nn.Module()
    own.module = toy_model()  # a name of its own
    assert fitting(own.state_dict(), own).keys() == own.state_dict().keys()


def of_lightning(state):
    prefixed = {f"model.{name}": tensor for name, tensor in state.items()}
    return {"state_dict": prefixed, "epoch": 3, "optimizer_states": [{"state": {}, "param_groups": []}]}


def averaged(state):
    return torch.optim.swa_utils.AveragedModel(loaded(state)).state_dict()


def under_a_name(state):
    optimizer = torch.optim.SGD(toy_model().parameters(), lr=0.1).state_dict()
    return {"net": state, "optimizer": optimizer, "best": torch.tensor(0.5), "epoch": 3}


@pytest.mark.parametrize("wrap", [of_lightning, averaged, under_a_name])
def test_weights_as_trainers_save_them_fit(tmp_path, wrap):
    state = toy_model(seed=1).state_dict()
    torch.save(wrap(state), tmp_path / "w.pt")
    assert bise.fingerprint(model_of("conftest:toy_model", tmp_path / "w.pt")) == bise.fingerprint(loaded(state))


def test_weights_that_only_nearly_fit_are_refused_with_a_few_names(tmp_path):
    state = {f"model.{name}": tensor for name, tensor in toy_model().state_dict().items()}
    torch.save(state | {"loss.weight": torch.ones(3)}, tmp_path / "w.pt")
    with pytest.raises(
        BadInput, match=r"lacks 0.weight, 0.bias, 1.weight and 8 more; it holds model.0.weight, "
    ) as told:
        model_of("conftest:toy_model", tmp_path / "w.pt")
    assert "and 9 more, which the model doesn't have" in str(told.value)
    two = {"teacher": toy_model().state_dict(), "student": toy_model().state_dict()}
    for other in (two, dict(enumerate(state.values()))):
        torch.save(other, tmp_path / "w.pt")
        with pytest.raises(BadInput, match="hold no state dict"):
            model_of("conftest:toy_model", tmp_path / "w.pt")
    own = nn.Module()
    own.model = toy_model()
    assert fitting(own.state_dict(), own).keys() == own.state_dict().keys()


def loaded(state):
    model = toy_model()
    model.load_state_dict(state)
    return model


def test_an_example_that_does_not_fit_is_told_of_without_more(capfd):
    sub = bise.extract(toy_model(), toy(), config=ExtractConfig(**QUICK))
    for example in (torch.zeros(4, 9), torch.zeros(4, 8, dtype=torch.float64)):
        with pytest.raises(BadInput, match="Sequential can't run on the example .*; check its shape and type"):
            sub.shrink(example)
    assert capfd.readouterr().err == ""


def test_a_forward_that_branches_is_told_of_without_more(capfd):
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = toy_model()

        def forward(self, x):
            out = self.network(x)
            return out * 2 if out.sum() > 0 else out

    sub = bise.extract(Branching(), toy(), config=ExtractConfig(**QUICK))
    with pytest.raises(BadInput, match="must not branch on values$"):
        sub.shrink(toy().tensors[0][:4])
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        (lambda: bise.extract(ClassNumbers(), toy(), config=ExtractConfig(**QUICK)), "the model returns int64"),
        (lambda: bise.extract(torch.compile(toy_model()), toy()), "compiled by torch.compile.*_orig_mod"),
        (lambda: bise.audit(nn.Linear, toy()), "model is the class Linear"),
        (lambda: bise.extract(nn.Linear, toy()), r"model is the class Linear; make one: Linear\(...\)"),
        (lambda: bise.extract(toy_model(), toy(), config={"gamma": 1}), "of type dict; give a bise.ExtractConfig"),
        (lambda: bise.finetune(toy_model(), toy(), config=ExtractConfig()), "give a bise.TrainConfig"),
        (lambda: bise.pseudo_bias(toy_model(), toy()), "make_model is a Sequential; give a function"),
        (lambda: ExtractConfig(gamma="1"), "gamma='1' must be a number"),
        (lambda: ExtractConfig(kappa="1"), "kappa='1' must be a number"),
        (lambda: TrainConfig(momentum=None), "momentum=None must be a number"),
        (lambda: on_val(broken_val(x=torch.full((600, 8), torch.nan))), "^val: the input of sample 0 holds NaN"),
        (lambda: on_val(broken_val(b=None)), "^val: the data set has no bias labels"),
        (
            lambda: broken_val(b=torch.zeros(2, 600)),
            r"b has 2 labels for 600 samples; .*, for several biases \[samples, b",
        ),
        (lambda: labels(Unlabelled([np.array(0), np.array([1]), 0, 1])), "can't be read as whole numbers"),
        (lambda: labels(Unlabelled([0, 1.7, 0, 1])), "1.7[0-9]*, which is no whole number"),
        (lambda: labels(Unlabelled(["cat", "dog", "cat", "dog"])), "can't be read as whole numbers"),
        (lambda: labels(Unlabelled([[0, 1], [1, 0], [0, 1], [1, 0]])), "y has shape"),
        (lambda: labels(Labelled(torch.zeros(2, 1), y=[0, 1], b=[0, 10**10])), "without gaps"),
        (lambda: ExtractConfig(batch_size=0.5), "batch_size=0.5 must be a whole number"),
        (lambda: ExtractConfig(seed=10**20), "seed=100000000000000000000 must be a whole number"),
        (lambda: ExtractConfig(lr=float("inf")), "lr=inf"),
        (lambda: TrainConfig(momentum=-1), "momentum=-1"),
        (lambda: bise.sites(toy_model(), torch.zeros(2, 5)), "Sequential can't run on the first samples"),
        (lambda: bise.sites(torch.jit.trace(toy_model().eval(), torch.zeros(2, 8)), torch.zeros(2, 8)), "TorchScript"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_more_bad_input(case, sentence):
    with pytest.raises(BadInput, match=sentence):
        case()


class Lambdas(nn.Module):
    """Parts of its forward are lambdas and hooks that speak of the model itself."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.relu, self.fc = nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)
        self.body = lambda x: self.relu(self.norm(self.layer(x)))
        self.steps = [lambda x, own=self: own.body(x)]
        self.fc.register_forward_hook(lambda module, args, output: setattr(self, "seen", output))

    def forward(self, x):
        self.fc(self.steps[0](x))
        return self.seen


def test_lambdas_and_hooks_of_the_twin_speak_of_the_twin():
    x = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
    data = Labelled(TensorDataset(x), y=torch.arange(60) % 3, b=torch.arange(60) % 2)
    model = Lambdas()
    before = bise.fingerprint(model)
    sub = bise.extract(model, data, config=ExtractConfig(**QUICK))
    assert list(sub.masks) == ["relu"]
    assert bise.audit(model, data).accuracy == bise.audit(model.eval(), data).accuracy
    assert bise.fingerprint(model) == before  # in train mode its BatchNorm would have counted what ran
    assert not hasattr(model, "seen")
    tuned = bise.finetune(sub, data, config=TrainConfig.finetuning(epochs=1, lr=0.1))
    assert not torch.equal(tuned.network.layer.weight, model.layer.weight)
    assert torch.allclose(sub.shrink(x[:4])(x), sub(x), atol=1e-6)


def test_a_train_method_that_returns_nothing():
    class Frozen(nn.Sequential):
        def train(self, mode=True):
            super().train(mode)
            self[1].train(False)

    x = torch.randn(4, 6)
    model = Frozen(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))
    sub = bise.subnetwork(model, {"2": torch.arange(5) > 1}, example=x)
    torch.testing.assert_close(sub.shrink(x)(x), sub(x))


@pytest.mark.parametrize(
    ("front", "units"),
    [
        (nn.Sequential(nn.BatchNorm1d(6)), 6),
        (nn.Sequential(nn.Flatten(), nn.Linear(60, 80), nn.Unflatten(1, (4, 20))), 4),
        (nn.Sequential(nn.Unflatten(2, (2, 5)), nn.Conv2d(6, 7, 1), nn.Flatten(2)), 7),
    ],
    ids=["normalised", "made of features", "flattened"],
)
def test_channels_of_sequences_come_first_where_a_convolution_reads_them(front, units):
    model = nn.Sequential(front, nn.ReLU(), nn.Conv1d(units, 3, 3), nn.AdaptiveAvgPool1d(1), nn.Flatten())
    sites = place(model, torch.randn(4, 6, 10)).sites
    assert [(site.name, site.units, site.dim) for site in sites] == [("1", units, 1)]


def test_units_that_are_tiled_have_no_run_of_features_each():
    class Tiled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.fc = nn.Linear(6, 4), nn.Linear(12, 2)

        def forward(self, x):
            return self.fc(F.relu(self.layer(x)).repeat(1, 3))

    with pytest.raises(BadInput, match="Tiled has no site"):
        place(Tiled(), torch.randn(4, 6))


def test_weights_without_shapes_values_or_parameters_are_refused():
    with pytest.raises(BadInput, match="LazyBatchNorm1d has weights without a shape"):
        bise.fingerprint(nn.Sequential(nn.LazyBatchNorm1d(affine=False)))
    with pytest.raises(BadInput, match="Linear has weights without values, on the device meta; load them first"):
        bise.fingerprint(nn.Linear(2, 2, device="meta"))


def test_sparse_inputs_are_refused():
    data = toy(n=60)
    sparse = TensorDataset(data.tensors[0].to_sparse(), data.y, data.b)
    with pytest.raises(BadInput, match=r"the inputs are of layout torch.sparse_coo; make them dense with x.to_dense"):
        bise.audit(toy_model(), sparse)


def test_batch_norm_and_one_sample_at_a_time():
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    config = TrainConfig.finetuning(epochs=1, batch_size=1)
    with pytest.raises(BadInput, match=r"BatchNorm can't learn from one sample; raise batch_size \(now 1\)"):
        bise.finetune(model, toy(n=60), config=config)


def test_logits_without_a_gradient_are_named():
    class Detached(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.fc = nn.Sequential(nn.Linear(8, 16), nn.ReLU()), nn.Linear(16, 3)

        def forward(self, x):
            hidden = self.body(x)
            with torch.no_grad():
                return self.fc(hidden)

    with pytest.raises(
        BadInput, match=r"no gradient comes from the model's logits: .* under no_grad, or detaches them"
    ):
        bise.extract(Detached(), toy(), config=ExtractConfig(**QUICK, gamma=0))
