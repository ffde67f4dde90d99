"""Instances whose attributes cannot be changed, at no cost to those who read them."""

from __future__ import annotations

from typing import Any


def make_immutable(kind: type) -> None:
    """Let nothing set or delete an attribute of a class's instances once they are constructed.

    The class has `__slots__`.

    Compiled, attributes that are `Final` have no setters. In plain Python, an instance is
    constructed as one of another class, without a `__setattr__`, which would take several times as
    long; then it gets its own class.
    """
    if hasattr(kind, "__mypyc_attrs__"):
        return
    body = {"__init__": kind.__init__, "__slots__": kind.__slots__}  # type: ignore[misc, attr-defined]
    mutable = type(kind.__name__, (), body)

    def construct(_: type, *arguments: Any, **named: Any) -> Any:
        instance = mutable(*arguments, **named)
        instance.__class__ = kind
        return instance

    def refuse(instance: object, name: str, *_: object) -> None:
        raise AttributeError(f"attribute {name!r} of {kind.__name__!r} objects is not writable")

    for name, method in {
        "__new__": construct,
        "__init__": lambda *_arguments, **_named: None,
        "__setattr__": refuse,
        "__delattr__": refuse,
    }.items():
        setattr(kind, name, method)
