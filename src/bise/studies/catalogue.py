"""The list of studies, in the order of the paper."""

from __future__ import annotations

from bise.errors import BadInput
from bise.studies import biased_mnist, corrupted_cifar10, multi_color_mnist, severe_bias
from bise.studies.study import Study

STUDIES: dict[str, Study] = {
    module.STUDY.name: module.STUDY
    for module in (
        biased_mnist,
        corrupted_cifar10,
        multi_color_mnist,
        severe_bias,
    )
}


def studies_named(names: list[str]) -> list[Study]:
    """Studies by name; "all" is every one."""
    unknown = next((name for name in names if name not in STUDIES and name != "all"), None)
    if unknown is not None:
        raise BadInput(f"study {unknown!r} is unknown; use all, {', '.join(STUDIES)}")
    return list(STUDIES.values()) if "all" in names else [STUDIES[name] for name in dict.fromkeys(names)]
