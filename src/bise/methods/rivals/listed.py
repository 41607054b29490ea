"""The list of methods: a new one has its file beside this one and a line here."""

from __future__ import annotations

from bise.base.errors import BadInput
from bise.methods.rivals.bcon import BconConfig, bcon
from bise.methods.rivals.bias_balance import BiasBalanceConfig, bias_balance
from bise.methods.rivals.cnc import CncConfig, cnc
from bise.methods.rivals.dfa import DfaConfig, dfa
from bise.methods.rivals.dfr import DfrConfig, dfr
from bise.methods.rivals.di import DiConfig, di
from bise.methods.rivals.end import EndConfig, end
from bise.methods.rivals.erm import ErmConfig, erm
from bise.methods.rivals.ffw import FfwConfig, ffw
from bise.methods.rivals.finetuned import FinetunedConfig, finetuned
from bise.methods.rivals.group_dro import GroupDroConfig, group_dro
from bise.methods.rivals.jtt import JttConfig, jtt
from bise.methods.rivals.leace import LeaceConfig, leace
from bise.methods.rivals.learned_mixin import LearnedMixinConfig, learned_mixin
from bise.methods.rivals.lff import LffConfig, lff
from bise.methods.rivals.lnl import LnlConfig, lnl
from bise.methods.rivals.ours import OursConfig, ours
from bise.methods.rivals.pruned import PrunedConfig, pruned
from bise.methods.rivals.rebias import RebiasConfig, rebias
from bise.methods.rivals.rubi import RubiConfig, rubi
from bise.methods.rivals.rwg import RwgConfig, rwg
from bise.methods.rivals.softcon import SoftconConfig, softcon
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
    *(
        Method(name=rank, run=pruned, config=PrunedConfig(rank=rank), starts="vanilla", needs=B, changes="weights")
        for rank in ("magnitude", "random", "first-order")
    ),
    Method(name="ffw", run=ffw, config=FfwConfig(), starts="vanilla", needs=B, changes="weights"),
    Method(name="ffw-units", run=ffw, config=FfwConfig(of="units"), starts="vanilla", needs=B, changes="nothing"),
    Method(name="erm", run=erm, config=ErmConfig()),
    Method(name="rwg", run=rwg, config=RwgConfig(), needs=B),
    Method(name="subsampling", run=subsampling, config=SubsamplingConfig(), needs=B),
    Method(name="group-dro", run=group_dro, config=GroupDroConfig(), needs=B),
    Method(name="jtt", run=jtt, config=JttConfig()),
    Method(name="lff", run=lff, config=LffConfig()),
    Method(name="end", run=end, config=EndConfig(), needs=B),
    Method(name="bias-balance", run=bias_balance, config=BiasBalanceConfig(), needs=B),
    Method(name="bcon", run=bcon, config=BconConfig(), needs=B),
    Method(name="softcon", run=softcon, config=SoftconConfig()),
    Method(name="di", run=di, config=DiConfig(), needs=B),
    Method(name="lnl", run=lnl, config=LnlConfig(), needs=B),
    Method(name="rubi", run=rubi, config=RubiConfig()),
    Method(name="learned-mixin", run=learned_mixin, config=LearnedMixinConfig()),
    Method(name="rebias", run=rebias, config=RebiasConfig()),
    Method(name="dfa", run=dfa, config=DfaConfig()),
    Method(name="cnc", run=cnc, config=CncConfig()),
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
