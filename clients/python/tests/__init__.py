"""Tests of the package; daemon.py starts the daemon that most of them need."""

import logging

logging.getLogger("kvstored").setLevel(logging.CRITICAL)  # what it warns of is provoked here
