"""What a call of the library raises: a class for each of TensorFlow's codes."""

import re
from typing import Dict, Optional, Type

# The first node that a message names: "node 'loss' (Mean) ...".
_NODE = re.compile(r"node '([^']+)'")


class Error(Exception):
    """A failure of the library. str() is its text, which says what was wrong and where.

    code: TensorFlow's number. node: the name of the node that failed, where it is known.
    lost_task: "/job:worker/replica:0/task:1", if the failure is or follows from the loss of a task.
    """

    code = 2

    def __init__(self, message: str, lost_task: str = ""):
        super().__init__(message)
        self.message = message
        self.lost_task: Optional[str] = lost_task or None
        found = _NODE.search(message)
        self.node: Optional[str] = found.group(1) if found else None


class CancelledError(Error):
    code = 1


class UnknownError(Error):
    code = 2


class InvalidArgumentError(Error):
    code = 3


class DeadlineExceededError(Error):
    code = 4


class NotFoundError(Error):
    code = 5


class AlreadyExistsError(Error):
    code = 6


class PermissionDeniedError(Error):
    code = 7


class ResourceExhaustedError(Error):
    code = 8


class FailedPreconditionError(Error):
    code = 9


class AbortedError(Error):
    code = 10


class OutOfRangeError(Error):
    code = 11


class UnimplementedError(Error):
    code = 12


class InternalError(Error):
    code = 13


class UnavailableError(Error):
    code = 14


class DataLossError(Error):
    code = 15


class UnauthenticatedError(Error):
    code = 16


_BY_CODE: Dict[int, Type[Error]] = {cls.code: cls for cls in Error.__subclasses__()}


def _from_status(code: int, message: str, lost_task: str) -> Error:
    return _BY_CODE.get(code, UnknownError)(message, lost_task)
