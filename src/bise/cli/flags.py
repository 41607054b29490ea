"""What the library says of its arguments, as the command line calls them: bias=… is --bias here."""

from __future__ import annotations

import re

from bise.base.options import commanded
from bise.engine.config import TrainConfig
from bise.extraction.config import ExtractConfig
from bise.jobs.own_options import OWN
from bise.methods.refit.config import RefitConfig

_COMMANDED = [name for config in (ExtractConfig, TrainConfig, RefitConfig) for name in commanded(config)]
FLAGS = {name: f"--{name.replace('_', '-')}" for name in (*OWN, *_COMMANDED, "out", "resume", "trust")}
FLAGS |= {"like": "RUN, as in bise audit RUN --data", "under": "--fail-under", "gap": "--fail-gap"}
"""{argument: option}, where the two mean the same."""

_ASKED_FOR = re.compile(r"\b([a-z][a-z0-9_]*)=(?:…|(True|False)\b|'([a-z]+)'(?! is))")


def flagged(sentence: str) -> str:
    """The sentence, with the options' names for the arguments that it asks for: name=…, =True, =False or ='word'."""

    def flag(found: re.Match[str]) -> str:
        name = FLAGS.get(found[1])
        if name is None:
            return found[0]
        if found[3]:
            return f"{name} {found[3]}"
        return name.replace("--", "--no-", 1) if found[2] == "False" else name

    return _ASKED_FOR.sub(flag, sentence)
