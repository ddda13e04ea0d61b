"""Files that travel with KVScope: fonts, icons, themes, the model catalogue, sample prompts.

They lie beside this module in a checkout, in an installed package and in a frozen build alike, so :func:`path` needs
no knowledge of which of these is running.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent


def path(name: str) -> Path:
    """The file or folder ``name`` (with forward slashes, such as ``"fonts/Inter-Regular.otf"``).

    Raises FileNotFoundError if it is missing, which means a damaged installation, never a fault of the person.
    """
    found = ROOT.joinpath(*name.split("/"))
    if not found.exists():
        raise FileNotFoundError(f"the resource {name} is missing: install KVScope again")
    return found


def fonts() -> list[Path]:
    """The bundled font files, for use where the system has none of its own."""
    return sorted(file for file in path("fonts").iterdir() if file.suffix in {".otf", ".ttf"})
