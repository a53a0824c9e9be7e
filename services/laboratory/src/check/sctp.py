"""Sends and answers the first two packets of an SCTP association over raw sockets.

Node.js has no SCTP, and most kernels have no SCTP sockets, but conntrack and NAT support it.

sctp.py serve NAME PORT,PORT ADDRESS...
    prints "ready", then answers INIT on these ports with INIT ACK
sctp.py ask ADDRESS PORT FROM|- TIMEOUT_MS WANTED AT_MOST
    sends INITs, each from a new port, until WANTED names have answered or AT_MOST INITs are sent; prints a JSON array
    of the outcomes: {"kind":"answer","name","port","from"}, {"kind":"refused"}, {"kind":"silent"}

Source: RFC 9260, 3.3.2 and 3.3.3.
"""

import json
import random
import select
import socket
import struct
import sys
import time

PROTOCOL = 132
INIT, INIT_ACK = 1, 2
# A parameter that other receivers ignore; it carries the name of the pod that answers.
NAME = 0xC0DE

TABLE = []
for byte in range(256):
    value = byte
    for _ in range(8):
        value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    TABLE.append(value)


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = (value >> 8) ^ TABLE[(value ^ byte) & 255]
    return struct.pack("<I", value ^ 0xFFFFFFFF)


def packet(source_port, port, tag, chunk_type, body):
    chunk = struct.pack("!BBH", chunk_type, 0, 4 + len(body)) + body
    chunk += b"\0" * (-len(chunk) % 4)
    head = struct.pack("!HHI", source_port, port, tag)
    return head + crc32c(head + b"\0\0\0\0" + chunk) + chunk


def start(tag):
    """Returns the body of INIT: initiate tag, window, streams out and in, first sequence number."""
    return struct.pack("!IIHHI", tag, 65536, 1, 1, tag)


def parse(data):
    source_port, port, tag = struct.unpack("!HHI", data[:8])
    return source_port, port, tag, data[12], data[16:]


def open_socket(address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.socket(family, socket.SOCK_RAW, PROTOCOL)


def payload(one, data):
    """Returns the SCTP packet; raw IPv4 sockets deliver the IP header too."""
    return data if one.family == socket.AF_INET6 else data[(data[0] & 15) * 4 :]


def serve(name, ports, addresses):
    sockets = []
    for address in addresses:
        one = open_socket(address)
        one.bind((address, 0))
        sockets.append(one)
    print("ready", flush=True)
    while True:
        for one in select.select(sockets, [], [])[0]:
            data, sender = one.recvfrom(4096)
            source_port, port, _, kind, body = parse(payload(one, data))
            if kind != INIT or port not in ports:
                continue
            (peer_tag,) = struct.unpack("!I", body[:4])
            text = json.dumps({"kind": "answer", "name": name, "port": port, "from": sender[0]}).encode()
            answer = start(random.getrandbits(32) | 1) + struct.pack("!HH", NAME, 4 + len(text)) + text
            one.sendto(packet(port, source_port, peer_tag, INIT_ACK, answer), (sender[0], 0))


def ask_once(address, port, source, timeout):
    with open_socket(address) as one:
        if source != "-":
            one.bind((source, 0))
        one.connect((address, 0))
        own_port, tag = random.randint(10000, 60000), random.getrandbits(32) | 1
        deadline = time.monotonic() + timeout
        try:
            one.send(packet(own_port, port, 0, INIT, start(tag)))
            while True:
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([one], [], [], left)[0]:
                    break
                from_port, to_port, got, kind, body = parse(payload(one, one.recv(4096)))
                if (from_port, to_port, got, kind) == (port, own_port, tag, INIT_ACK):
                    (length,) = struct.unpack("!H", body[18:20])
                    return json.loads(body[20 : 16 + length])
        except ConnectionRefusedError:
            return {"kind": "refused"}
        return {"kind": "silent"}


def ask(address, port, source, timeout_ms, wanted, at_most):
    answers, names = [], set()
    while len(answers) < at_most and (len(names) < wanted or len(answers) < 2 * wanted + 1):
        answers.append(ask_once(address, port, source, timeout_ms / 1000))
        if answers[-1]["kind"] == "answer":
            names.add(answers[-1]["name"])
        else:
            break
    print(json.dumps(answers))


if sys.argv[1] == "serve":
    serve(sys.argv[2], [int(port) for port in sys.argv[3].split(",")], sys.argv[4:])
else:
    ask(sys.argv[2], int(sys.argv[3]), sys.argv[4], *(int(word) for word in sys.argv[5:8]))
