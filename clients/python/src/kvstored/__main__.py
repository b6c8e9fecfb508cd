"""``python -m kvstored`` is the daemon's program, ``kvstored``, that the wheel has put beside Python's own."""

# pyright: strict, reportPrivateUsage=false

import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Optional


def program() -> Optional[str]:
    """Where pip has put it: among the scripts of an environment, of a user, or of ``--target``; else the one in PATH."""
    folders = (sysconfig.get_path("scripts"), sysconfig.get_path("scripts", "posix_user"), Path(__file__).parents[1] / "bin")
    return next(filter(None, (shutil.which("kvstored", path=folder) for folder in folders)), None) or shutil.which("kvstored")


if __name__ == "__main__":
    found = program()
    if found is None:
        sys.exit("kvstored: this package was installed without the daemon, as from an sdist, and there is none in PATH: install a wheel for this machine")
    os.execv(found, [found, *sys.argv[1:]])
