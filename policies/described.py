"""Pydantic models that take the field descriptions of their JSON schema from docstrings."""

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic_core import CoreSchema


class Described(BaseModel):
    """Base of models with described fields.

    Pydantic's own `use_attribute_docstrings` reads the sources whenever a class is created, at
    every start of a program; this class reads them when a schema is requested.
    """

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
    docstrings: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not issubclass(base, BaseModel) or base.__module__.startswith("pydantic"):
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in pairwise([*definition.body, ast.Pass()]):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                docstrings.pop(field.target.id, None)  # a base class described another type
                match text:
                    case ast.Expr(value=ast.Constant(value=str(docstring))):
                        docstrings[field.target.id] = inspect.cleandoc(docstring)
    return docstrings
