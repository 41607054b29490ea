"""What a run folder may say of its model and data: it may come from a stranger, who chose every name in it."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from importlib.machinery import PathFinder, all_suffixes
from pathlib import Path
from typing import Any

from bise.base.errors import BadInput, caution
from bise.network.architectures.named import is_named

LONGEST = 80
"""Characters of a name that a sentence shows."""


def check_source(
    run: Path,
    source: dict[str, Any],
    *,
    options: Container[str],
    keys: Mapping[str, Mapping[str, Mapping[str, tuple[type, ...]]]],
) -> None:
    """Refuse a source that chooses what a foreign function is called with, a folder that brings code, and nonsense.

    `keys` says {"model" or "data": {key: {argument: its types}}}: what may be called without anybody's consent.
    """
    own, texts = source.get("own") or {}, [source.get("model"), source.get("data"), source.get("weights") or ""]
    known = isinstance(own, dict) and all(
        name in options and isinstance(value, int if name == "length" else str) for name, value in own.items()
    )
    if not known or not all(isinstance(text, str) and "\0" not in text for text in texts):
        raise BadInput(f"{run}/config.json says of model and data what bise doesn't write; take back what was edited")
    for what in ("model", "data"):
        if is_key(source, what):
            _check_key(run, source[what], source[f"{what}_arguments"], keys[what])
    for path in (odd for named in _paths(source) for odd in _waiting(named)):
        raise BadInput(f"{run}/config.json names {str(path)!r}, a pipe or a device; only files and folders are read")
    code = next((path for path in sorted(run.rglob("*")) if path.name.endswith(tuple(all_suffixes()))), None)
    if code is not None:
        raise BadInput(f"{code} is code, and a run folder holds none; move it away if it is yours")


def is_key(source: dict[str, Any], what: str) -> bool:
    """Whether a source names its model or its data by a key of bise's: these alone have arguments, or an empty {}."""
    return f"{what}_arguments" in source


def _check_key(run: Path, name: str, arguments: Any, keys: Mapping[str, Mapping[str, tuple[type, ...]]]) -> None:
    if not isinstance(arguments, dict) or name not in keys:
        raise BadInput(f"{run}/config.json gives {name!r:.{LONGEST}} arguments, which only bise's own keys take")
    odd = next((one for one, value in arguments.items() if not _fits(keys[name].get(one), value)), None)
    if odd is not None:
        raise BadInput(
            f"{run}/config.json calls {name} with {odd!r:.{LONGEST}}, which bise doesn't write; take back what was"
            " edited"
        )


def _fits(types: tuple[type, ...] | None, value: Any) -> bool:
    """Whether an argument is one that a key takes: a library behind it may read others as it likes."""
    if types is None:
        return False
    values = value if isinstance(value, list) and list in types else [value]
    return all(one is None or (isinstance(one, types) and not isinstance(one, list)) for one in values)


def _paths(source: dict[str, Any]) -> Iterator[Path]:
    """Every path that a source names, or may."""
    own, arguments = source.get("own") or {}, source.get("data_arguments") or {}
    named = (
        source.get("weights"),
        source["data"],
        *map(own.get, ("root", "bias_csv", "tokenizer")),
        arguments.get("root"),
    )
    yield from (Path(path) for path in named if path)
    for text in (source["model"], source["data"]):
        if is_named(text):
            where = str(text).partition(":")[2]
            yield from (Path(where), Path(where.rpartition(":")[0] or where))  # a table of several has a name behind


def _waiting(path: Path) -> Iterator[Path]:
    """What is neither a file nor a folder, there or in the folder there: reading it may never end."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # what isn't there is said by who reads it
        return
    if not stat.S_ISDIR(mode):
        yield from () if stat.S_ISREG(mode) else (path,)
        return
    for folder, _, _ in os.walk(path):
        with suppress(OSError), os.scandir(folder) as entries:  # which nobody can list, nobody reads
            odd = [Path(entry.path) for entry in entries if not entry.is_file() and not entry.is_dir()]
            yield from (one for one in odd if one.exists())  # a link that leads nowhere is never read


def functions_of(source: dict[str, Any]) -> dict[str, str]:
    """{"model" or "data": the function that a source names for it}, unless it is our key or a library's name."""
    found = {}
    if source.get("model"):
        found["model"] = source["model"]
    data = source.get("data") or ""
    if ":" in data and not Path(data).is_absolute():  # whether a file lies there now may be another's to say
        found["data"] = data
    return {what: name for what, name in found.items() if not is_key(source, what) and not is_named(name)}


def shows_files(source: dict[str, Any]) -> bool:
    """Whether a source's data are files in a place that it names, and neither made by us nor in the data folder."""
    from bise.data import names

    data = source.get("data")
    if not data or is_key(source, "data"):
        return False
    return data not in names() and "data" not in functions_of(source)


def check_trusted(run: Path, source: dict[str, Any], part: str, *, remedy: str = "trust=True") -> None:
    """Refuse to call what a run names for its model or its data, unless the user has said that it may."""
    functions = functions_of(source)
    if part not in functions or is_trusted(run, source):
        return
    shown = " and ".join(f"{name!r:.{LONGEST}}" for name in dict.fromkeys(functions.values()))
    if any(_file_of(name) is None for name in functions.values()):
        raise BadInput(
            f"{run} names Python to be called, {shown}, and not all of it is found from here; run from the folder that"
            f" holds it, or, if you know it and want it called, give {remedy}"
        )
    raise BadInput(
        f"{run} names Python to be called, {shown}, and you haven't said that it may be; if you know it and want that,"
        f" give {remedy}"
    )


def check_shown(run: Path, source: dict[str, Any]) -> None:
    """Refuse to show samples of files that a stranger chose: a page is made to be handed on."""
    if shows_files(source) and not is_trusted(run, source):
        raise BadInput(
            f"{run} names data in {source['data']!r:.{LONGEST}}, and the page would show some; if you want that, give"
            " trust=True"
        )


def is_trusted(run: Path, source: dict[str, Any]) -> bool:
    """Whether the user has said of this folder that what its source names may be called."""
    path = record_of(run)
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode) or (hasattr(os, "getuid") and found.st_uid != os.getuid()):
            raise BadInput(f"{path} is no file of your own; move it away, then say again which folders you trust")
        if found.st_mode & 0o022 and os.name == "posix":
            raise BadInput(f"{path} can be written by others; remove it, then say again which folders you trust")
        noted = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} can't be read ({error}); remove it, then say again which folders you trust") from error
    return isinstance(noted, dict) and noted.get("sha256") == _digest(run, source)


def remember(run: Path, source: dict[str, Any]) -> None:
    """Keep that what this source names may be called and shown for this folder, until either changes."""
    asks = functions_of(source) or shows_files(source)
    if not asks or is_trusted(run, source):
        return
    path = record_of(run)
    content = {"folder": str(run.resolve()), **functions_of(source), "sha256": _digest(run, source)}
    beside = None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=".")  # which nobody else can read or write
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(json.dumps(content, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        raise BadInput(
            f"{path.parent}, where it is remembered whom you trust, can't be written ({error.strerror}); name another"
            " folder in BISE_HOME"
        ) from error
    finally:
        if beside is not None:
            Path(beside).unlink(missing_ok=True)


def remember_own(run: Path, source: dict[str, Any]) -> None:
    """Trust a run that this very process makes, of functions that its user named; where that can't be kept, say so."""
    try:
        remember(run, source)
    except BadInput as error:
        caution(f"later commands on {run} will ask for trust=True: {error}", stacklevel=2)


def record_of(run: Path) -> Path:
    """The file that tells what is trusted of a folder; it lies far from it, where only the user writes."""
    return trust_home() / "trusted" / f"{hashlib.sha256(os.fsencode(run.resolve())).hexdigest()[:32]}.json"


def trust_home() -> Path:
    """The folder that BISE_HOME names, else bise in XDG_STATE_HOME, else ~/.local/state/bise."""
    if own := os.environ.get("BISE_HOME"):
        return Path(own)
    state = Path(os.environ.get("XDG_STATE_HOME") or "")
    try:
        return (state if state.is_absolute() else Path.home() / ".local" / "state") / "bise"
    except RuntimeError as error:
        raise BadInput("there is no home folder to remember whom you trust in; name a folder in BISE_HOME") from error


def _digest(run: Path, source: dict[str, Any]) -> str:
    """SHA-256 of what consent is about: the folder, all that it says of model and data, and the files of the code.

    A module of the same name in another working folder is other code, so the place where Python would find it counts.
    """
    found = {name: _file_of(name) for name in functions_of(source).values()}
    about = {"folder": str(run.resolve()), "source": source, "found": found}
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _file_of(function: str) -> str | None:
    """The file from which a function's module would be imported, found without importing anything."""
    here = str(Path.cwd())
    path = list(sys.path) if here in sys.path else [here, *sys.path]
    name, found = "", None
    for part in function.partition(":")[0].split("."):
        name = f"{name}.{part}" if name else part
        found = PathFinder.find_spec(name, path)
        if found is None:
            return None
        path = list(found.submodule_search_locations or ())
    return None if found is None or found.origin is None else os.path.realpath(found.origin)
