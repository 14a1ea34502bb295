"""Containers of differentiated bodies: those of Python, which may hold Arrays."""

from builtins import dict, isinstance, list, tuple, type

__all__ = ["dict", "isinstance", "list", "tuple", "type"]
