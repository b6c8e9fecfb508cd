"""The library of llama.cpp in tests, which download nothing."""

import os
import unittest
from typing import Optional

from llamacpp.library import BYTES, PACKAGE, Library, Missing, library, pin

from .daemon import skip


def need(test: Optional[unittest.TestCase] = None) -> Library:
    """The library, or the test is skipped, which CI does not allow."""
    try:
        if not pin()["here"]:
            raise Missing(
                f"llama.cpp is not here: python3 cmd/kvstored/llamacpp/library.py fetch brings {PACKAGE} "
                f"({BYTES / 1e6:.0f} MB, pinned by SHA-256), and its tests run"
            )
        return library()
    except Missing as e:
        if test is not None:
            skip(test, str(e))
        if os.environ.get("CI") == "true":
            raise
        raise unittest.SkipTest(str(e)) from None
