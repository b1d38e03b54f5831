"""What can be wrong with what a user gave; every message names the argument and the remedy."""


class UsageError(ValueError):
    """What was given cannot be checked as it stands (exit code 4 on the command line)."""


class ContractError(UsageError):
    """A contract is malformed; where a text is at fault, the message points at the character."""

    def __init__(self, message: str, text: str | None = None, at: int = 0) -> None:
        if text is not None:
            message = f"{message}\n  {text}\n  {' ' * at}^"
        super().__init__(message)


class CaseError(UsageError):
    """A case does not fit its contract, its text, or the devices at hand."""


class BackendError(UsageError):
    """The backend cannot give the devices that a case asks for."""
