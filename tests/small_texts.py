"""What the tests of text share: small models, a small vocabulary, CivilComments in small."""

from __future__ import annotations

import csv

import torch

from bise.network.architectures.text import transformers

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "nice", "fool", "old", "young", "the"]
SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


def small(kind: str = "bert", words: int = len(WORDS)):
    """A sequence classifier of each family that the docs name, two layers, 16 wide, random weights."""
    library = transformers()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if kind == "distilbert":
            shape = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}
            config = library.DistilBertConfig(vocab_size=words, pad_token_id=0, **shape)
            model = library.DistilBertForSequenceClassification(config)
        elif kind == "roberta":
            config = library.RobertaConfig(vocab_size=words, pad_token_id=0, max_position_embeddings=512, **SHAPE)
            model = library.RobertaForSequenceClassification(config)
        else:
            model = library.BertForSequenceClassification(library.BertConfig(vocab_size=words, **SHAPE))
        for parameter in model.parameters():  # BERT's 0.02 would leave every logit about the same
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def wilds(root, count: int = 240):
    """CivilComments in WILDS' layout: hostility in one word, an identity in another; every length from 1 to 12."""
    identities = ["male", "female", "LGBTQ", "christian", "muslim", "other_religions", "black", "white"]
    folder = root / "civilcomments"
    folder.mkdir()
    with (folder / "all_data_with_identities.csv").open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["", "id", "comment_text", "split", "created_date", "toxicity", "identity_any", *identities])
        for i in range(count):
            toxic, split = i % 2, ("train", "val", "test")[i // 4 % 3]
            mentions = toxic if i % 7 else 1 - toxic
            words = [("nice", "fool")[toxic], *["old"] * mentions, *["the"] * (i % 11)]
            scores = [0.0, float(mentions), *[0.0] * 6]
            out.writerow([i, i, " ".join(words), split, "2016", float(toxic), 1.0, *scores])
    return root
