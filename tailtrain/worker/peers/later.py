"""Imports that a library makes and this program does not need.

The standard library's LazyLoader does not do here: an import statement of a module that it holds loads it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Later(ModuleType):
    """Stands for a module until something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # import statements ask for these
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def load_later(name: str) -> None:
    """Let a module be loaded when something of it is first used, whoever imports it before.

    Nothing happens where it is loaded already.

    Args:
        name: of the module.
    """
    sys.modules.setdefault(name, _Later(name))
