"""Addresses of watchers, channels to them, and the delays between two streams."""

from __future__ import annotations

import random
import re
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import grpc


@dataclass(frozen=True)
class Address:
    """Address of a watcher."""

    host: str
    """Host name, IP address, or path of a unix socket."""
    port: int
    """0 for a unix socket."""
    tls_name: str = ""
    """Host that the certificate must name; "" without TLS."""

    @property
    def target(self) -> str:
        """The address as gRPC writes it."""
        if self.port == 0:
            return f"unix:{self.host}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Credentials:
    """PEM files, and a file with a ServiceAccount token; "" for none."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    token: str = ""

    @property
    def has_tls_files(self) -> bool:
        return self.ca != "" or self.certificate != "" or self.key != ""


_host_port = re.compile(r"(?:(tcp|https?)://)?(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::(\d{1,5}))?/?")


def parse_api(api: str, credentials: Credentials) -> list[Address]:
    """Returns the addresses in a list separated by commas. Raises ValueError."""
    if (credentials.certificate == "") != (credentials.key == ""):
        raise ValueError("a client certificate needs both tls_cert and tls_key")
    return [_parse_one(text.strip(), credentials) for text in api.split(",")]


def _parse_one(text: str, credentials: Credentials) -> Address:
    unix = re.fullmatch(r"unix:(?://)?(/?[^/].*)", text)
    if unix:
        return Address(unix[1], 0)
    match = _host_port.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an address: write host:port, https://host:port or unix:///path")
    scheme, host = match[1], match[2] or match[3]
    is_tls = scheme == "https" or credentials.has_tls_files
    if scheme == "http" and is_tls:
        raise ValueError(f"{text!r} disables TLS, but TLS files are given")
    if credentials.token and not is_tls:
        raise ValueError(f"{text!r} is plain TCP, which would reveal the token: use https:// or a unix socket")
    port = int(match[4] or 12090)
    if not 1 <= port <= 65535:
        raise ValueError(f"{text!r} has an invalid port: it must be from 1 to 65535")
    return Address(host, port, host if is_tls else "")


def resolve(named: list[Address], last: Optional[Address]) -> list[Address]:
    """Returns the addresses of all watchers in random order, the last used one at the end. Raises OSError."""
    found: list[Address] = []
    failure: Optional[OSError] = None
    for one in named:
        if one.port == 0:
            found.append(one)
            continue
        try:
            infos = socket.getaddrinfo(one.host, one.port, type=socket.SOCK_STREAM)
        except OSError as error:
            failure = error
            continue
        found += [Address(str(info[4][0]), one.port, one.tls_name) for info in infos]
    if not found and failure is not None:
        raise failure
    result = list(dict.fromkeys(found))
    random.shuffle(result)
    # A stable sort: the others remain shuffled.
    return sorted(result, key=lambda one: one == last)


def open_channel(to: Address, credentials: Credentials) -> Any:
    """Opens a channel to one watcher. Reads the TLS files. Raises OSError."""
    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", 64 << 20),
        # A Go server closes a connection that pings more than once in five minutes. A stream may be silent for hours.
        ("grpc.keepalive_time_ms", 330_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.max_pings_without_data", 0),
        # Delays between streams are this package's: channels share neither connections nor gRPC's own delays.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
    ]
    if to.tls_name == "":
        return grpc.insecure_channel(to.target, options)
    options += [("grpc.ssl_target_name_override", to.tls_name), ("grpc.default_authority", to.tls_name)]
    files = [credentials.ca, credentials.key, credentials.certificate]
    return grpc.secure_channel(to.target, grpc.ssl_channel_credentials(*map(_read_pem, files)), options)


def _read_pem(file: str) -> Optional[bytes]:
    if not file:
        return None
    content = Path(file).read_bytes()
    # gRPC aborts the process at an empty file, which a rotation may leave for a moment.
    if b"-----BEGIN" not in content:
        raise OSError(f"{file} contains no PEM block")
    return content


def metadata_of(credentials: Credentials) -> list[tuple[str, str]]:
    """Returns the metadata of a stream. Reads the token. Raises OSError."""
    if not credentials.token:
        return []
    token = Path(credentials.token).read_bytes().strip()
    # gRPC raises ValueError for what HTTP/2 cannot carry.
    if re.fullmatch(rb"[ -~]+", token) is None:
        raise OSError(f"{credentials.token} contains no token: it must be one line of ASCII")
    return [("authorization", f"Bearer {token.decode()}")]


def probe(to: Address) -> Optional[OSError]:
    """Returns why no connection to the address can be opened; None if it can.

    gRPC tells a refused connection from other failures only in the text of its message.
    """
    try:
        if to.port == 0:
            with socket.socket(socket.AF_UNIX) as one:
                one.connect(to.host)
        else:
            socket.create_connection((to.host, to.port), timeout=5).close()
    except OSError as error:
        return error
    return None


class Backoff:
    """Delays in seconds that double from `shortest` to `longest`, each shortened by a random part of up to `jitter`."""

    def __init__(self, shortest: float, longest: float, jitter: float) -> None:
        self.shortest = shortest
        self.longest = longest
        self.jitter = jitter
        self._step = shortest

    def next(self) -> float:
        step = self._step
        self._step = min(2 * step, self.longest)
        return step * (1 - self.jitter * random.random())

    def reset(self) -> None:
        self._step = self.shortest


class Reconnect:
    """Decides how long to wait before the next stream.

    The watcher may ask for a time (gRFC A6); otherwise the delay is a random part of one that doubles. While nothing
    listens at the address, the delay is at most 3 s, because a refused connection costs no watcher anything.

    Delays start at the shortest again after a stream that has worked for the longest delay. A first state alone is not
    enough: a watcher that fails after each one would send all its nodes the whole state once a second.
    """

    MAX_PUSHBACK = 150.0
    """Longest delay that a watcher may ask for: a defect of one must not keep a node away for hours."""

    def __init__(self, shortest: float = 1.0, longest: float = 30.0) -> None:
        self._lost = Backoff(shortest, longest, 1.0)
        self._absent = Backoff(shortest, max(shortest, 3.0), 0.5)
        # Time at which the stream delivered its first state.
        self._working_since: Optional[float] = None

    def opening(self) -> None:
        self._working_since = None

    def progressed(self) -> None:
        """Records that the stream has delivered a state."""
        if self._working_since is None:
            self._working_since = time.monotonic()

    def ended(self, error: Exception) -> tuple[str, float]:
        """Returns whether the stream is lost, refused by a busy watcher or moved to another one, and the delay."""
        worked = 0.0 if self._working_since is None else time.monotonic() - self._working_since
        if worked >= self._lost.longest:
            self._lost.reset()
            self._absent.reset()
        if isinstance(error, (ConnectionRefusedError, FileNotFoundError)):
            return "lost", self._absent.next()
        text = pushback_of(error)
        if text is None:
            return "lost", self._lost.next()
        # A watcher that asks not to retry, by a negative number, gets its client back after the longest delay.
        is_valid = re.fullmatch(r"[0-9]{1,9}", text) is not None
        delay = min(int(text) / 1000, self.MAX_PUSHBACK) if is_valid else self.MAX_PUSHBACK
        # Two watchers must not send a client back and forth without a pause.
        if delay == 0 and worked < 1.0:
            delay = self._lost.next()
        return "refused" if self._working_since is None else "moved", delay


def pushback_of(error: Exception) -> Optional[str]:
    """Returns the delay that a watcher asks for, in milliseconds, as it wrote it."""
    if not isinstance(error, grpc.RpcError) or not hasattr(error, "trailing_metadata"):
        return None
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-retry-pushback-ms":
            return str(value)
    return None
