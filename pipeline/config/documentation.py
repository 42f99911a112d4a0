"""What `pipeline settings` says of each setting."""

import ast
import inspect
import itertools

from pipeline.config import algorithm, environment, roles, services, tree


def documentation() -> dict[str, str]:
    """The sentence under each setting, by dotted name; read from the modules' sources."""
    classes: dict[str, ast.ClassDef] = {}
    for module in (algorithm, environment, roles, services, tree):
        parsed = ast.parse(inspect.getsource(module))
        classes |= {node.name: node for node in parsed.body if isinstance(node, ast.ClassDef)}
    return _documentation_of(classes, "PipelineConfig", "")


def _documentation_of(classes: dict[str, ast.ClassDef], name: str, prefix: str) -> dict[str, str]:
    texts: dict[str, str] = {}
    body = classes[name].body
    for statement, following in itertools.pairwise(body):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        dotted = f"{prefix}{statement.target.id}"
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            texts[dotted] = str(following.value.value)
        if isinstance(statement.annotation, ast.Name) and statement.annotation.id in classes:
            texts |= _documentation_of(classes, statement.annotation.id, f"{dotted}.")
    return texts
