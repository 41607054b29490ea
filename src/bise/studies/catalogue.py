"""The list of studies: the paper's main tables, its ablations, the supplement's, and our own."""

from __future__ import annotations

from bise.base.errors import BadInput
from bise.studies import (
    batch_norm,
    bias_probe,
    biased_mnist,
    celeba,
    civilcomments,
    corrupted_cifar10,
    gamma,
    label_noise,
    loss_ablation,
    mask_counts,
    multi_color_mnist,
    pareto,
    presets,
    pruning_strategies,
    ranking,
    sensitivity,
    severe_bias,
    summary,
    unsupervised,
)
from bise.studies.study import Study

STUDIES: dict[str, Study] = {
    module.STUDY.name: module.STUDY
    for module in (
        summary,
        biased_mnist,
        severe_bias,
        corrupted_cifar10,
        multi_color_mnist,
        celeba,
        civilcomments,
        loss_ablation,
        gamma,
        pruning_strategies,
        unsupervised,
        mask_counts,
        sensitivity,
        batch_norm,
        ranking,
        label_noise,
        bias_probe,
        presets,
        pareto,
    )
}


def studies_named(names: list[str]) -> list[Study]:
    """Studies by name; "all" is every one."""
    unknown = next((name for name in names if name not in STUDIES and name != "all"), None)
    if unknown is not None:
        raise BadInput(f"study {unknown!r} is unknown; use all, {', '.join(STUDIES)}")
    return list(STUDIES.values()) if "all" in names else [STUDIES[name] for name in dict.fromkeys(names)]
