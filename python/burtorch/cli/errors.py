"""The one exception that the command line turns into a line on stderr and exit code 2."""


class InputError(Exception):
    """What the user gave cannot be used. The message says what was found and what was expected."""


def reason(error: OSError) -> str:
    """What the operating system says, without Python's ``[Errno 2]`` in front."""
    return error.strerror or str(error)
