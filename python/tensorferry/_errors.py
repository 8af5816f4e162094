"""What goes wrong: one hierarchy, whose classes are also the built-in ones that SMG's workers distinguish."""


class Error(Exception):
    """Whatever Tensorferry fails with.

    ``reason`` is one of the stable names of docs/errors.md. ``retryable`` says whether the same bytes, asked for later
    or by another lane, may well arrive.
    """

    def __init__(self, message: str, reason: str, retryable: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.retryable = retryable

    def __reduce__(self) -> tuple[type["Error"], tuple[str, str, bool]]:
        return type(self), (str(self), self.reason, self.retryable)


class InputError(Error, ValueError):
    """What was given cannot be right: a worker answers INVALID_ARGUMENT."""


class OperationError(Error, RuntimeError):
    """It might have worked: a worker answers INTERNAL."""


class TimedOutError(OperationError, TimeoutError):
    """The time was over."""


class PullCancelledError(OperationError):
    """A Cancellation ended it."""


_BY_REASON: dict[str, type[Error]] = {"timed_out": TimedOutError, "cancelled": PullCancelledError}


def make(reason: str, message: str, retryable: bool, bad_input: bool) -> Error:
    """The extension module's errors are made here."""
    kind = InputError if bad_input else _BY_REASON.get(reason, OperationError)
    return kind(message, reason, retryable)
