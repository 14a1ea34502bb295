"""Containers of differentiated bodies: those of Python, which may hold Arrays."""

import builtins

__all__ = ["dict", "isinstance", "list", "tuple", "type"]

dict, isinstance, list = builtins.dict, builtins.isinstance, builtins.list
tuple, type = builtins.tuple, builtins.type
