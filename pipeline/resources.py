"""Where the files that ship beside the code are: in a checkout at its top level, in an installed
copy inside the package.

The wheel carries ``schemas/``, ``conf/`` and ``deploy/local/`` as ``pipeline/_data/…``, so that an
installed copy needs no checkout.
"""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def schemas_folder() -> Path:
    """The folder of the released Avro schemas, ``*.avsc``."""
    return _folder("schemas")


def conf_folder() -> Path:
    """The folder of the Hydra configuration, with ``config.yaml`` at its top."""
    return _folder("conf")


def local_services_folder() -> Path:
    """The folder of what the local services are made from, with ``pom.xml``."""
    return _folder("deploy/local")


def _folder(name: str) -> Path:
    packaged = _PACKAGE / "_data" / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name
