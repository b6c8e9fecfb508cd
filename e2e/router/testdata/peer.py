"""The other end of the tests, with libzmq. usage: peer.py MODE ENDPOINT [N]"""

import struct
import sys
import time

import zmq

mode, endpoint = sys.argv[1:3]
n = int(sys.argv[3]) if len(sys.argv) > 3 else 0
context = zmq.Context()


def socket(kind, **options):
    s = context.socket(kind)
    s.setsockopt(zmq.LINGER, 5000)
    s.setsockopt(zmq.RCVTIMEO, 20000)
    for name, value in options.items():
        s.setsockopt(getattr(zmq, name), value)
    return s


def say(*words):
    print(*words, flush=True)


if mode == "sub":  # the numbers of n messages of topic "kv", and their lengths
    s = socket(zmq.SUB)
    s.connect(endpoint)
    s.setsockopt(zmq.SUBSCRIBE, b"nothing")
    s.setsockopt(zmq.UNSUBSCRIBE, b"nothing")
    s.setsockopt(zmq.SUBSCRIBE, b"kv")
    for _ in range(n):
        topic, seq, payload = s.recv_multipart()
        say(topic.decode(), struct.unpack(">Q", seq)[0], len(payload))
elif mode == "churn":  # n subscribers, one after another, each for a message or none
    for i in range(n):
        s = socket(zmq.SUB)
        s.connect(endpoint)
        s.setsockopt(zmq.SUBSCRIBE, b"")
        if i % 2:
            s.recv_multipart()
        s.close(0)
    say("done")
elif mode == "slow":  # connected and subscribed, and reads nothing
    s = socket(zmq.SUB, RCVHWM=1, RCVBUF=4096)
    s.connect(endpoint)
    s.setsockopt(zmq.SUBSCRIBE, b"")
    s.recv_multipart()
    say("connected")
    sys.stdin.readline()
    s.close(0)
elif mode in ("req", "dealer"):  # as vLLM's example asks for a replay
    s = socket(zmq.REQ if mode == "req" else zmq.DEALER)
    s.connect(endpoint)
    if mode == "req":
        s.send(struct.pack(">Q", n))
        say(*(len(f) for f in s.recv_multipart()))
        sys.exit()
    for _ in range(2):
        s.send_multipart([b"", struct.pack(">Q", n)])
        while True:
            empty, seq, payload = s.recv_multipart()
            seq = struct.unpack(">q", seq)[0]
            say(seq, payload.decode())
            if seq < 0:
                break
elif mode == "pub":
    s = socket(zmq.XPUB)
    s.bind(endpoint)
    say("bound")
    say(s.recv())
    for i in range(n):
        s.send_multipart([b"kv@1", struct.pack(">Q", i), b"x" * (i * 37)])
    time.sleep(0.2)
elif mode == "router":
    s = socket(zmq.ROUTER)
    s.bind(endpoint)
    say("bound")
    peer, empty, seq = s.recv_multipart()
    for i in range(struct.unpack(">Q", seq)[0], n):
        s.send_multipart([peer, b"", struct.pack(">Q", i), b"batch"])
    s.send_multipart([peer, b"", struct.pack(">q", -1), b""])
