"""Files of Hugging Face's hub: from its cache or fetched, or a sentence on what to download and where to put it."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from bise.base.errors import BadInput
from bise.network.architectures.text import offline


def reach(local: bool) -> AbstractContextManager[None]:
    """What keeps the hub out of it where `local`, or where there is no network: it would be tried for half a minute."""
    from huggingface_hub import constants

    host = urlsplit(constants.ENDPOINT).hostname
    try:
        if not local and not getproxies():
            socket.getaddrinfo(host, None)
    except OSError:
        local = True
    return offline() if local else nullcontext()


def hub_file(where: str, file: str, *, local: bool, remedy: str) -> Path:
    """A file of the hub, from its cache or, unless `local`, fetched; where it can't be had, what to do about it."""
    library = _library()
    try:
        with reach(local):
            return Path(library.hf_hub_download(where, file, local_files_only=local))
    except Exception as error:  # the library raises many kinds
        raise BadInput(missing(where, f"{file} of {where} is not", first_line(error), local, remedy)) from error


def hub_folder(where: str, patterns: Sequence[str], *, local: bool) -> Path:
    """The files of a data set in the hub that fit a pattern, from its cache or, unless `local`, fetched."""
    library = _library()
    try:
        with reach(local):
            found = library.snapshot_download(
                where, repo_type="dataset", allow_patterns=list(patterns), local_files_only=local
            )
    except Exception as error:  # the library raises many kinds
        remedy = "with --repo-type dataset, and give hf:FOLDER"
        raise BadInput(missing(where, f"{where} is neither a folder nor", first_line(error), local, remedy)) from error
    return Path(found)


def _library() -> Any:
    try:
        import huggingface_hub
    except ModuleNotFoundError as error:
        raise BadInput("huggingface_hub is not installed; install the extra: pip install 'bise[text]'") from error
    return huggingface_hub


def missing(where: str, what: str, reason: str, local: bool, remedy: str) -> str:
    """The sentence on what isn't here: why it can't be had, and how to get it where there is a network."""
    from huggingface_hub import constants

    why = "a run's own is looked for on this machine only" if local else f"it can't be fetched ({reason.rstrip('.')})"
    return (
        f"{what} in the hub's cache {constants.HF_HUB_CACHE}, and {why}; where there is a"
        f" network, run hf download {where} --local-dir FOLDER, {remedy}"
    )


def first_line(error: BaseException) -> str:
    """What an error says first, or its kind where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
