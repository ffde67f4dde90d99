"""Pydantic models that take the field descriptions of their JSON schema from docstrings."""

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic_core import CoreSchema


class Described(BaseModel):
    """Base of models with described fields.

    Pydantic's own `use_attribute_docstrings` reads the sources whenever a class is created, at
    every start of a program; this class reads them when a schema is requested. What validates a
    class is built when the class is first used, alone or inside another one.
    """

    model_config = ConfigDict(defer_build=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return pydantic's schema with descriptions of the fields."""
        described = handler(schema)
        fields = handler.resolve_ref_schema(described).get("properties", {})
        for name, text in _docstrings(cls).items():
            if name in fields:
                fields[name].setdefault("description", text)
        return described


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Docstrings by field, inherited fields included."""
    docstrings: dict[str, str | None] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and not base.__module__.startswith("pydantic"):
            source = inspect.getsource(sys.modules[base.__module__])
            docstrings |= _fields_by_class(source)[base.__qualname__]
    return {field: text for field, text in docstrings.items() if text is not None}


@cache
def _fields_by_class(source: str) -> dict[str, dict[str, str | None]]:
    """By qualified name of the classes of a module: their own fields with docstrings, or None."""
    return dict(_list_classes(ast.parse(source), ""))


def _list_classes(node: ast.AST, prefix: str) -> Iterator[tuple[str, dict[str, str | None]]]:
    """Qualified name and fields of each class inside a node."""
    for child in ast.iter_child_nodes(node):
        inner = prefix
        if isinstance(child, ast.ClassDef):
            yield f"{prefix}{child.name}", _own_fields(child)
            inner = f"{prefix}{child.name}."
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{prefix}{child.name}.<locals>."
        yield from _list_classes(child, inner)


def _own_fields(definition: ast.ClassDef) -> dict[str, str | None]:
    """The annotated names of a class with the text below each; None where there is none."""
    fields: dict[str, str | None] = {}
    for field, text in pairwise([*definition.body, ast.Pass()]):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match text:
                case ast.Expr(value=ast.Constant(value=str(docstring))):
                    fields[field.target.id] = inspect.cleandoc(docstring)
                case _:
                    fields[field.target.id] = None
    return fields
