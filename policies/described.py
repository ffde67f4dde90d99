"""Models whose fields are described in a schema by the docstrings under them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic_core import CoreSchema


class Described(BaseModel):
    """Base of such models.

    Pydantic can do it too (`use_attribute_docstrings`), but reads the sources when the classes are
    made, at every start of a program; this does when a schema is asked for.
    """

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """As pydantic has it, with descriptions."""
        found = handler(schema)
        fields = handler.resolve_ref_schema(found).get("properties", {})
        for name, text in _docstrings(cls).items():
            if name in fields:
                fields[name].setdefault("description", text)
        return found


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """By field, those of base classes too."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not issubclass(base, BaseModel) or base.__module__.startswith("pydantic"):
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in pairwise([*definition.body, ast.Pass()]):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                found.pop(field.target.id, None)  # a base class described another type
                match text:
                    case ast.Expr(value=ast.Constant(value=str(docstring))):
                        found[field.target.id] = inspect.cleandoc(docstring)
    return found
