"""The list of methods: a new one has its file beside this one and a line here."""

from __future__ import annotations

from bise.base.errors import BadInput
from bise.methods.rivals.dfr import DfrConfig, dfr
from bise.methods.rivals.erm import ErmConfig, erm
from bise.methods.rivals.finetuned import FinetunedConfig, finetuned
from bise.methods.rivals.group_dro import GroupDroConfig, group_dro
from bise.methods.rivals.jtt import JttConfig, jtt
from bise.methods.rivals.leace import LeaceConfig, leace
from bise.methods.rivals.ours import OursConfig, ours
from bise.methods.rivals.rwg import RwgConfig, rwg
from bise.methods.rivals.subsampling import SubsamplingConfig, subsampling
from bise.methods.shared.interface import Method

B = ("b",)
_LISTED = (
    Method(name="bise", run=ours, config=OursConfig(), starts="vanilla", needs=B, changes="nothing"),
    Method(
        name="bise-refit", run=ours, config=OursConfig(then="refit"), starts="vanilla", needs=B, changes="last layer"
    ),
    Method(
        name="bise-finetuned",
        run=ours,
        config=OursConfig(then="finetuning"),
        starts="vanilla",
        needs=B,
        changes="weights",
    ),
    Method(name="finetuned", run=finetuned, config=FinetunedConfig(), starts="vanilla", needs=B, changes="weights"),
    Method(name="dfr", run=dfr, config=DfrConfig(), starts="vanilla", needs=("val",), changes="last layer"),
    Method(name="dfr-train", run=dfr, config=DfrConfig(on="train"), starts="vanilla", needs=B, changes="last layer"),
    Method(name="leace", run=leace, config=LeaceConfig(), starts="vanilla", needs=B, changes="last layer"),
    Method(name="erm", run=erm, config=ErmConfig()),
    Method(name="rwg", run=rwg, config=RwgConfig(), needs=B),
    Method(name="subsampling", run=subsampling, config=SubsamplingConfig(), needs=B),
    Method(name="group-dro", run=group_dro, config=GroupDroConfig(), needs=B),
    Method(name="jtt", run=jtt, config=JttConfig()),
)

METHODS: dict[str, Method] = {method.name: method for method in _LISTED}
"""{name: method}: those from the vanilla model first, ours before others."""


def methods_named(names: str) -> list[Method]:
    """Methods by their names with commas between them, or "all"."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if wanted == ["all"]:
        return list(METHODS.values())
    odd = next((name for name in wanted if name not in METHODS), None)
    if odd is not None or not wanted:
        raise BadInput(f"method {odd or names!r} is unknown; use all, or some of {', '.join(METHODS)}")
    return [METHODS[name] for name in dict.fromkeys(wanted)]
