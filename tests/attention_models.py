"""Tiny classifiers with attention, of torch, torchvision, timm and transformers, for several tests."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bise.network.architectures.vision import torchvision

WIDTH, HEADS = 24, 4
TEXT = {
    "vocab_size": 60,
    "hidden_size": WIDTH,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "intermediate_size": 10,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
}


def words(length: int = 7, samples: int = 3) -> dict[str, Tensor]:
    ids = torch.randint(2, 60, (samples, length), generator=torch.Generator().manual_seed(length))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def picture() -> Tensor:
    return torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def text_model(name: str, attention: str = "sdpa", **shape: Any) -> nn.Module:
    torchvision()  # transformers imports it, so it needs the same care
    import transformers

    config = getattr(transformers, f"{name}Config")(**shape)
    return getattr(transformers, f"{name}ForSequenceClassification")._from_config(config, attn_implementation=attention)


class Sentences(nn.Module):
    """torch's own encoder over words, padding masked."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(60, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 10, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.fc = nn.Linear(WIDTH, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.fc(self.encoder(self.words(input_ids), src_key_padding_mask=attention_mask == 0).mean(1))


def torchvision_vit() -> nn.Module:
    torchvision()
    from torchvision.models import VisionTransformer

    return VisionTransformer(
        image_size=8, patch_size=4, num_layers=1, num_heads=HEADS, hidden_dim=WIDTH, mlp_dim=10, num_classes=3
    )


def timm_vit() -> nn.Module:
    torchvision()
    import timm

    return timm.models.VisionTransformer(
        img_size=8, patch_size=4, depth=1, num_heads=HEADS, embed_dim=WIDTH, mlp_ratio=0.5, num_classes=3
    )


DISTIL = {"vocab_size": 60, "dim": WIDTH, "n_layers": 1, "n_heads": HEADS, "hidden_dim": 10}
GPT2 = {"vocab_size": 60, "n_embd": WIDTH, "n_layer": 1, "n_head": HEADS, "n_inner": 10, "pad_token_id": 0}
VIT = {"image_size": 8, "patch_size": 4}
GROUPED = {"num_key_value_heads": 2}
BERT = "bert.encoder.layer.0.attention.output.dense"
LLAMA = "model.layers.0.self_attn.o_proj"
MODELS: dict[str, tuple[Any, Any, str, int]] = {
    "BERT": (lambda: text_model("Bert", **TEXT), words, BERT, HEADS),
    "BERT, attention written out": (lambda: text_model("Bert", "eager", **TEXT), words, BERT, HEADS),
    "DistilBERT": (
        lambda: text_model("DistilBert", **DISTIL),
        words,
        "distilbert.transformer.layer.0.attention.out_lin",
        HEADS,
    ),
    "RoBERTa": (lambda: text_model("Roberta", **TEXT), words, BERT.replace("bert", "roberta", 1), HEADS),
    "GPT-2": (lambda: text_model("GPT2", **GPT2), words, "transformer.h.0.attn.c_proj", HEADS),
    "LLaMA": (lambda: text_model("Llama", **TEXT), words, LLAMA, HEADS),
    "LLaMA, grouped queries": (lambda: text_model("Llama", **TEXT, **GROUPED), words, LLAMA, 2),
    "Qwen2, grouped queries": (lambda: text_model("Qwen2", **TEXT, **GROUPED), words, LLAMA, 2),
    "Qwen2, written out": (lambda: text_model("Qwen2", "eager", **TEXT, **GROUPED), words, LLAMA, 2),
    "ViT (transformers)": (lambda: vit_of_transformers(), picture, "vit.layers.0.attention.o_proj", HEADS),
    "ViT (torchvision)": (torchvision_vit, picture, "encoder.layers.encoder_layer_0.self_attention.out_proj", HEADS),
    "ViT (timm)": (timm_vit, picture, "blocks.0.attn.proj", HEADS),
    "torch's encoder": (Sentences, words, "encoder.layers.0.self_attn.out_proj", HEADS),
}


def vit_of_transformers() -> nn.Module:
    torchvision()
    from transformers import ViTConfig, ViTForImageClassification

    shape = {key: value for key, value in TEXT.items() if key not in ("vocab_size", "pad_token_id")}
    return ViTForImageClassification(ViTConfig(**shape, **VIT))


def made(name: str) -> tuple[nn.Module, Any, str, int]:
    """(model in float64 with weights that tell on the logits, example, projection, heads or groups of them)."""
    make, example, projection, units = MODELS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = make().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model, example(), projection, units
