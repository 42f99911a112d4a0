"""A string that does not show itself."""

from typing import Any


class Secret(str):
    """A password or key: a plain ``str`` in use, redacted in ``repr``, so in dataclasses, logs and tracebacks."""

    __slots__ = ()

    def __new__(cls, value: str) -> "Secret":
        return super().__new__(cls, value.strip())

    def __repr__(self) -> str:
        return "Secret('***')"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Secret, (str.__str__(self),))
