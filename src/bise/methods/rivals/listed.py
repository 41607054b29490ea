"""The list of methods: a new one has its file beside this one and a line here."""

from __future__ import annotations

from typing import Any

from bise.base.errors import BadInput
from bise.methods.rivals.bcon import BconConfig, bcon
from bise.methods.rivals.bias_balance import BiasBalanceConfig, bias_balance
from bise.methods.rivals.cnc import CncConfig, cnc
from bise.methods.rivals.debian import DebianConfig, debian, debian_guess
from bise.methods.rivals.dedier import DedierConfig, dedier
from bise.methods.rivals.dett import DettConfig, dett
from bise.methods.rivals.dfa import DfaConfig, dfa
from bise.methods.rivals.dfr import DfrConfig, dfr
from bise.methods.rivals.di import DiConfig, di
from bise.methods.rivals.eiil import EiilConfig, eiil, eiil_guess
from bise.methods.rivals.end import EndConfig, end
from bise.methods.rivals.erm import ErmConfig, erm
from bise.methods.rivals.ffw import FfwConfig, ffw
from bise.methods.rivals.finetuned import FinetunedConfig, finetuned
from bise.methods.rivals.group_dro import GroupDroConfig, group_dro
from bise.methods.rivals.hex import HexConfig, hex
from bise.methods.rivals.jtt import JttConfig, jtt, jtt_guess
from bise.methods.rivals.leace import LeaceConfig, leace
from bise.methods.rivals.learned_mixin import LearnedMixinConfig, learned_mixin
from bise.methods.rivals.lff import LffConfig, lff
from bise.methods.rivals.lnl import LnlConfig, lnl
from bise.methods.rivals.lwbc import LwbcConfig, lwbc, lwbc_guess
from bise.methods.rivals.ours import OursConfig, ours
from bise.methods.rivals.pgi import PgiConfig, pgi, pgi_guess
from bise.methods.rivals.pruned import PrunedConfig, pruned
from bise.methods.rivals.rebias import RebiasConfig, rebias
from bise.methods.rivals.rubi import RubiConfig, rubi
from bise.methods.rivals.rwg import RwgConfig, rwg
from bise.methods.rivals.simkd import SimkdConfig, simkd
from bise.methods.rivals.softcon import SoftconConfig, softcon
from bise.methods.rivals.subsampling import SubsamplingConfig, subsampling
from bise.methods.rivals.vcba import VcbaConfig, vcba, vcba_guess
from bise.methods.shared.interface import Method, Run

B = ("b",)
SLOWER = ({"rate": 0.3}, {"rate": 0.1})
"""Where a method has no settings of its own, a search tries lower rates of learning."""
GAMMAS = ({"extract.gamma": 1.0}, {"extract.gamma": 0.1})
SHARES = ({"share": 0.1}, {"share": 0.5})


def _from_vanilla(name: str, run: Run, config: Any, changes: str, **more: Any) -> Method:
    return Method(name=name, run=run, config=config, starts="vanilla", changes=changes, **({"needs": B} | more))


def _taught(name: str, run: Run, config: Any, **more: Any) -> Method:
    return Method(name=name, run=run, config=config, starts="teacher", **more)


_OURS = (
    _from_vanilla("bise", ours, OursConfig(), "nothing", tried=GAMMAS),
    _from_vanilla("bise-refit", ours, OursConfig(then="refit"), "last layer", tried=GAMMAS),
    _from_vanilla("bise-finetuned", ours, OursConfig(then="finetuning"), "weights", tried=GAMMAS),
)
_OF_THE_VANILLA_MODEL = (
    _from_vanilla("finetuned", finetuned, FinetunedConfig(), "weights", tried=({"rate": 0.3}, {"rate": 3.0})),
    _from_vanilla("dfr", dfr, DfrConfig(), "last layer", needs=("val",)),
    _from_vanilla("dfr-train", dfr, DfrConfig(on="train"), "last layer"),
    _from_vanilla("leace", leace, LeaceConfig(), "last layer"),
    _from_vanilla("magnitude", pruned, PrunedConfig(rank="magnitude"), "weights", tried=SHARES),
    _from_vanilla("random", pruned, PrunedConfig(rank="random"), "weights", tried=SHARES),
    _from_vanilla("first-order", pruned, PrunedConfig(rank="first-order"), "weights", tried=SHARES),
    _from_vanilla("ffw", ffw, FfwConfig(), "weights", tried=({"gamma": 1.0}, {"lr": 0.1})),
    _from_vanilla(
        "lwbc", lwbc, LwbcConfig(), "last layer", needs=(), tried=({"alpha": 0.2}, {"lr": 6e-4}), guess=lwbc_guess
    ),
    _from_vanilla("ffw-units", ffw, FfwConfig(of="units"), "nothing", tried=({"gamma": 1.0}, {"lr": 0.1})),
)
_ANEW = (
    Method(name="erm", run=erm, config=ErmConfig(), tried=SLOWER),
    Method(name="rwg", run=rwg, config=RwgConfig(), needs=B, tried=SLOWER),
    Method(
        name="subsampling", run=subsampling, config=SubsamplingConfig(), needs=B, tried=({"least": 10}, {"rate": 0.1})
    ),
    Method(name="group-dro", run=group_dro, config=GroupDroConfig(), needs=B, tried=({"eta": 0.1}, {"rate": 0.1})),
    Method(name="jtt", run=jtt, config=JttConfig(), tried=({"repeats": 10}, {"first_epochs": 3}), guess=jtt_guess),
    Method(name="lff", run=lff, config=LffConfig(), tried=({"q": 0.5}, {"rate": 0.1})),
    Method(
        name="end",
        run=end,
        config=EndConfig(),
        needs=B,
        tried=({"alpha": 0.5, "beta": 0.5}, {"alpha": 1.0, "beta": 1.0}),
    ),
    Method(name="bias-balance", run=bias_balance, config=BiasBalanceConfig(), needs=B, tried=SLOWER),
    Method(name="bcon", run=bcon, config=BconConfig(), needs=B, tried=({"ce": 0.1}, {"rate": 0.1})),
    Method(name="softcon", run=softcon, config=SoftconConfig(), tried=({"ce": 0.1}, {"rate": 0.1})),
    Method(name="di", run=di, config=DiConfig(), needs=B, tried=SLOWER),
    Method(name="lnl", run=lnl, config=LnlConfig(), needs=B, tried=({"reversal": 1.0}, {"entropy": 1.0})),
    Method(name="rubi", run=rubi, config=RubiConfig(), tried=SLOWER),
    Method(
        name="learned-mixin",
        run=learned_mixin,
        config=LearnedMixinConfig(),
        tried=({"entropy": 0.03}, {"first_epochs": 1}),
    ),
    Method(name="rebias", run=rebias, config=RebiasConfig(), tried=({"independence": 10.0}, {"independence": 0.1})),
    Method(name="dfa", run=dfa, config=DfaConfig(), tried=({"biased": 5.0}, {"rate": 0.1})),
    Method(name="cnc", run=cnc, config=CncConfig(), tried=({"contrast": 0.5}, {"first_epochs": 3})),
    Method(name="eiil", run=eiil, config=EiilConfig(), tried=({"then": "irm"}, {"rate": 0.1}), guess=eiil_guess),
    Method(name="pgi", run=pgi, config=PgiConfig(), tried=({"penalty": 10.0}, {"lr": 1e-2}), guess=pgi_guess),
    Method(
        name="debian", run=debian, config=DebianConfig(), tried=({"balance": 0.1}, {"rate": 0.1}), guess=debian_guess
    ),
    Method(name="vcba", run=vcba, config=VcbaConfig(), tried=({"gamma": 0.3}, {"rate": 0.1}), guess=vcba_guess),
    Method(name="hex", run=hex, config=HexConfig(), tried=({"ridge": 0.1}, {"rate": 0.1})),
)
_OF_A_TEACHER = (
    _taught("simkd", simkd, SimkdConfig(), tried=SLOWER),
    _taught("dett", dett, DettConfig(), needs=B, tried=({"weight": 10.0}, {"rate": 0.1})),
    _taught("dedier", dedier, DedierConfig(), tried=({"beta": 1.0}, {"alpha": 0.5})),
)

METHODS: dict[str, Method] = {
    method.name: method for method in (*_OURS, *_OF_THE_VANILLA_MODEL, *_ANEW, *_OF_A_TEACHER)
}
"""{name: method}: those from the vanilla model first, ours before others; last those that have it for a teacher."""


def methods_named(names: str) -> list[Method]:
    """Methods by their names with commas between them, or "all"."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if wanted == ["all"]:
        return list(METHODS.values())
    odd = next((name for name in wanted if name not in METHODS), None)
    if odd is not None or not wanted:
        raise BadInput(f"method {odd or names!r} is unknown; use all, or some of {', '.join(METHODS)}")
    return [METHODS[name] for name in dict.fromkeys(wanted)]
