"""`python -m bise`: the command line where the package is on the path and not installed."""

from bise.cli import main

if __name__ == "__main__":
    main()
