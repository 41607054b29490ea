"""Commands in forks of one process that has torch already, killed at their n-th write where that is wanted."""

from __future__ import annotations

import builtins
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path

PARTS = [
    "bise.jobs.extract",
    "bise.jobs.finetune",
    "bise.jobs.shrink",
    "bise.reporting.page",
    "bise.jobs.sources",
    "bise.cli.terminal",
    "bise.jobs.train",
    "bise.jobs.verification",
]
PARTS += ["onnxruntime", "onnxscript", "torch._dynamo", "torch.export", "torch.onnx", "small_job"]
"""What would be imported in each fork."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink")


class Warm:
    """`run` gives [code, output, errors, writes] of each command, all of them started at the same time."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    def run(self, *commands, kill=0):
        """Killed at their `kill`-th write; 0 lets them end."""
        asked = {"commands": [[str(word) for word in words] for words in commands], "kill": kill}
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Counter:
    """Counts what changes a file system, and kills this process at the n-th: a write is half done then."""

    def __init__(self, kill):
        self.kill, self.count = kill, 0
        self.write, self.open, self.fdopen = os.write, io.open, os.fdopen

    def install(self):
        sys.addaudithook(self.hear)
        os.fsync = lambda handle: self.step()  # a kill takes nothing from the disk; the wait would be long
        os.write = self.written
        os.fdopen = lambda *a, **k: self.watched(self.fdopen(*a, **k))
        builtins.open = io.open = lambda *a, **k: self.watched(self.open(*a, **k))

    def step(self):
        self.count += 1
        if self.count == self.kill:
            os.kill(os.getpid(), signal.SIGKILL)

    def hear(self, event, values):
        if event in CHANGES or (event == "open" and values[2] & WRITES and not str(values[0]).startswith("/dev/")):
            self.step()

    def written(self, handle, data):
        if self.count + 1 == self.kill:
            self.write(handle, bytes(data)[: len(data) // 2])
        self.step()
        return self.write(handle, data)

    def watched(self, file):
        if file.writable():
            return Watched(file, self)
        return file


class Watched:
    """A file whose writes are counted."""

    def __init__(self, file, counter):
        self.file, self.counter = file, counter

    def write(self, data):
        if self.counter.count + 1 == self.counter.kill:
            self.file.write(data[: len(data) // 2])
            self.file.flush()
        self.counter.step()
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        self.file.__enter__()
        return self

    def __exit__(self, *error):
        return self.file.__exit__(*error)

    def __iter__(self):
        return iter(self.file)


def child(words, kill, start, streams, report):
    """One command, in a fork."""
    code = 1
    try:
        os.read(start, 1)  # until all are there
        for descriptor, stream in enumerate(streams, 1):
            os.dup2(stream.fileno(), descriptor)
        counter = Counter(kill)
        counter.install()
        sys.argv = ["bise", *words]
        from bise.cli.app import main

        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        counter.write(report, str(counter.count).encode())
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def at_once(commands, kill):
    gate, start = os.pipe()
    streams = [tuple(tempfile.TemporaryFile() for _ in range(3)) for _ in commands]  # noqa: SIM115
    processes = []
    for words, (out, errors, report) in zip(commands, streams, strict=True):
        pid = os.fork()
        if not pid:
            os.close(start)
            child(words, kill, gate, (out, errors), report.fileno())
        processes.append(pid)
    os.close(start)
    os.close(gate)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in processes]
    found = []
    for code, files in zip(codes, streams, strict=True):
        texts = []
        for file in files:
            file.seek(0)
            texts.append(file.read().decode())
            file.close()
        found.append([code, texts[0], texts[1], int(texts[2] or 0)])
    return found


def rehearse():
    """What is imported and made on first use, as torch.export has much of it, is there before the first fork."""
    from bise.cli.app import app
    from small_job import OWN, QUICK

    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        run = f"{folder}/run"
        for words in (["extract", *OWN, *QUICK, "--out", run], ["refit", run], ["finetune", run, "--epochs", "1"]):
            app(words, standalone_mode=False)


def serve():
    import torch

    sys.path.insert(0, os.getcwd())
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    for name in PARTS:
        import_module(name)
    rehearse()

    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(at_once(asked["commands"], asked["kill"])), flush=True)


if __name__ == "__main__":
    serve()
