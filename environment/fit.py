"""Whether this environment's torchvision, timm and transformers can be imported; says so where they can't.

`make` runs it in its .venv after it has installed there. It mends the one misfit that it knows: bise_torchvision.py has
more on that.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

IMPORTS = {
    "torchvision": "import torchvision",
    "timm": "import timm",
    "transformers": "from transformers import BertModel",
}
HOOK = Path(__file__).parent / "bise_torchvision.py"
MISFIT = "operator torchvision::nms does not exist"
REMEDY = "install torch and torchvision from one index, which PIP_ARGS of the Makefile can name"


def main() -> None:
    site = Path(sysconfig.get_paths()["purelib"])
    hook, start = site / HOOK.name, site / f"{HOOK.stem}.pth"
    start.unlink(missing_ok=True)  # from an earlier installation, whose wheels may have been others
    hook.unlink(missing_ok=True)
    there = [name for name in IMPORTS if find_spec(name) is not None]
    if not there or not fails(*there):
        return
    if "torchvision" in there and MISFIT in fails("torchvision"):
        shutil.copy(HOOK, hook)
        start.write_text(f"import {HOOK.stem}\n", encoding="utf-8")
        tell(
            f"the wheels of torch {version('torch')} and torchvision {version('torchvision')} don't fit together:"
            f" torchvision's compiled operators can't be loaded. {start} lets it be imported all the same, for its"
            f" models and transforms; detection (nms, roi_align, …) won't work. For all of it, {REMEDY}"
        )
    for name in there:
        if error := fails(name):
            reason = error.strip().splitlines()[-1]
            tell(f"{name} {version(name)} can't be imported beside torch {version('torch')} ({reason}); {REMEDY}")


def fails(*names: str) -> str:
    """What a Python of its own writes when it can't import them; nothing where it can."""
    program = "; ".join(IMPORTS[name] for name in names)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return (done.stderr or f"exit code {done.returncode}") if done.returncode else ""


def tell(sentence: str) -> None:
    print(f"warning: {sentence}.", file=sys.stderr)


if __name__ == "__main__":
    main()
