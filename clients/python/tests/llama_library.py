"""The library of llama.cpp in tests."""

from __future__ import annotations

import os
import unittest
from typing import Optional

from llamacpp.library import Library, Missing, library

from .daemon import skip


def need(test: Optional[unittest.TestCase] = None) -> Library:
    """The library, or the test is skipped, which CI does not allow."""
    try:
        return library()
    except Missing as e:
        if test is not None:
            skip(test, str(e))
        if os.environ.get("CI") == "true":
            raise
        raise unittest.SkipTest(str(e)) from None
