"""What goes wrong because of what was handed in."""


class BadInput(ValueError):
    """Input that can't be worked with: one sentence that names the thing, the value and the remedy.

    The command line turns it into that sentence and exit code 2.
    """


class NoSplit(BadInput):
    """A split that a data set doesn't have; where it isn't needed, one goes on without."""


class BiseWarning(UserWarning):
    """Something that works but will probably not do what was meant."""
