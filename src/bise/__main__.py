"""Entry point of the command `bise`, and of `python -m bise`: Ctrl-C is heard before anything is imported."""

from __future__ import annotations

from bise.cli import interrupts


def main() -> None:
    interrupts.take()
    from bise.cli.app import main as command

    command()


if __name__ == "__main__":
    main()
