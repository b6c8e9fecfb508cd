"""Tests of the package; daemon.py starts the daemon that most of them need."""

import logging

from kvstored import connection

logging.getLogger("kvstored").setLevel(logging.CRITICAL)  # what it warns of is provoked here

#: Seconds that a client gives a daemon to answer hello. In tests the daemon that is there has a
#: minute: a busy machine may not run it for a second.
HELLO, connection._HELLO = connection._HELLO, 60.0
