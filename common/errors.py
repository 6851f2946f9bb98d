"""The errors that fourstroke raises on purpose. Anything else that is raised is a bug.

Each carries its cause in words: it is printed for an operator or sent to a client as it stands.
"""


class FourstrokeError(Exception):
    """Base of all errors raised on purpose."""


class ConfigError(FourstrokeError):
    """An option, or a combination of options, that cannot work. Names the flag."""


class ModelError(FourstrokeError):
    """A model that is missing, damaged or of a kind that is not supported."""


class ResourceError(FourstrokeError):
    """The machine lacks something: memory, shared memory, a port, a file descriptor."""


class ServerError(FourstrokeError):
    """A running server failed or could not be reached."""


class TargetMissed(FourstrokeError):
    """A benchmark ran, and a figure of it is worse than it may be."""


class MachineUnfit(FourstrokeError):
    """The machine was examined, and something must be mended before a server runs well on it."""


class CollectiveError(FourstrokeError):
    """The ranks of a group did not agree on this tick: one of them is gone or did not answer in time."""


class BadMessage(FourstrokeError):
    """A frame on an internal wire that is not a message of that wire. It is counted and dropped."""


class InvalidRequest(FourstrokeError):
    """A request that a client must change before it can be served.

    `param` names the field at fault, or is None where it is not one field.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param
