"""Installs Dynamo's runtime, for the tests of this package, and prints the path of its
interpreter:

    python3 e2e/dynamo/install.py          # installs it
    python3 e2e/dynamo/install.py where    # only says where it is; exit code 1 if it is not

It takes half a minute and 275 MB in the user's cache folder, 75 MB of them downloaded, by
package names alone. It needs Python 3.10 to 3.13 with pip and venv. Exit code 75: the registry
of packages does not answer."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "engines"))

import environment  # noqa: E402

SOURCES = (HERE / "install.py", HERE / "requirements.txt")


def install(place: Path) -> None:
    environment.environment(place, ("3.11", "3.12", "3.13", "3.10"), HERE / "requirements.txt")
    environment.run(str(place / "bin" / "python"), "-c", "import dynamo._core")


if __name__ == "__main__":
    raise SystemExit(environment.main("dynamo", SOURCES, install, sys.argv[1:]))
