import { createRequire } from "node:module";
import { CodedError } from "@kpng/process/process-error.ts";

/** Error codes of the nftables rules, in kpng-nft and kpng-ebpf. `docs/errors.md` explains each. */
type BackendNftErrorCode =
  | "NETLINK_UNAVAILABLE"
  | "COMMIT_REJECTED"
  | "READ_FAILED"
  | "NFT_UNSUPPORTED"
  | "TABLE_NOT_OURS";

/** An error of the nftables rules. */
export class BackendNftError extends CodedError<BackendNftErrorCode> {
  override readonly name = "BackendNftError";
}

const addressFamilyNetlink = 16;
const socketTypeRaw = 3;
const closeOnExec = 0o2000000;
const protocolNetfilter = 12;
const solSocket = 1;
const sendBuffer = 7;
const sendBufferForce = 32;
const receiveBufferForce = 33;
const dontWait = 0x40;
const errnoAgain = 11;
const errnoInterrupted = 4;

/** Desired size of the socket buffers, in bytes: enough for a transaction of 100 000 elements with comments. */
const desiredBufferBytes = 32 * 1024 * 1024;

/** Room for each answer: 32 KiB of a list, or an error, which contains the rejected message (see `maxListBytes`). */
const readBytes = 64 * 1024;

let loaded: CLibrary | undefined;

type CLibrary = ReturnType<typeof loadCLibrary>;

/**
 * Loads koffi when the first socket is opened, not at startup: `kpng` contains all backends, and the others must start
 * even on a platform for which koffi has no native module.
 */
function loadCLibrary() {
  try {
    const koffi: typeof import("koffi") = createRequire(import.meta.url)("koffi");
    // The C library that Node.js itself runs on, glibc or musl.
    const library = koffi.load(null);
    return {
      errno: koffi.errno,
      socket: library.func("int socket(int, int, int)"),
      bind: library.func("int bind(int, const uint8_t *, uint32_t)"),
      send: library.func("intptr_t send(int, const uint8_t *, size_t, int)"),
      receive: library.func("intptr_t recv(int, _Out_ uint8_t *, size_t, int)"),
      setOption: library.func("int setsockopt(int, int, int, const uint8_t *, uint32_t)"),
      getOption: library.func("int getsockopt(int, int, int, _Out_ uint8_t *, _Inout_ uint32_t *)"),
      close: library.func("int close(int)"),
    };
  } catch (cause) {
    const remedy = "install kpng again with its native modules, or use kpng-iptables where koffi has none";
    const text = `the native module of koffi, which opens netlink sockets, cannot be loaded: ${remedy}`;
    throw new BackendNftError("NETLINK_UNAVAILABLE", text, { cause });
  }
}

/**
 * A netlink socket to the kernel's netfilter subsystem, in the network namespace of this process.
 *
 * The kernel handles a message during `send`, so its answer can be received immediately afterwards.
 */
export class NetlinkSocket {
  readonly #libc: CLibrary;
  readonly #descriptor: number;
  /** One buffer for all datagrams: a new one for each would leave about 20 MB of garbage after a full read. */
  readonly #input = Buffer.alloc(readBytes);
  /**
   * Largest transaction that can be sent, in bytes. The kernel charges a message's memory to the socket, about twice
   * its length; without CAP_NET_ADMIN in the host's user namespace the buffer cannot exceed `net.core.wmem_max`.
   */
  readonly maxSendBytes: number;
  #isClosed = false;

  private constructor(libc: CLibrary, descriptor: number, bufferBytes: number) {
    this.#libc = libc;
    this.#descriptor = descriptor;
    this.#setBuffer(receiveBufferForce, desiredBufferBytes);
    if (!this.#setBuffer(sendBufferForce, bufferBytes)) this.#setBuffer(sendBuffer, bufferBytes);
    const size = Buffer.alloc(4);
    libc.getOption(descriptor, solSocket, sendBuffer, size, [4]);
    // The kernel reports twice the requested size, to account for its own overhead.
    this.maxSendBytes = Math.floor(size.readInt32LE(0) / 2);
  }

  /** Opens and binds a socket. `bufferBytes` is the desired size of its send buffer. Errors: NETLINK_UNAVAILABLE. */
  static open(bufferBytes = desiredBufferBytes): NetlinkSocket {
    loaded ??= loadCLibrary();
    const libc = loaded;
    const descriptor = libc.socket(addressFamilyNetlink, socketTypeRaw | closeOnExec, protocolNetfilter);
    if (descriptor < 0) throw failure(libc, "a netlink socket cannot be opened");
    const address = Buffer.alloc(12);
    address.writeUInt16LE(addressFamilyNetlink, 0);
    if (libc.bind(descriptor, address, address.length) < 0) {
      const error = failure(libc, "the netlink socket cannot be bound");
      libc.close(descriptor);
      throw error;
    }
    return new NetlinkSocket(libc, descriptor, bufferBytes);
  }

  /** Sends messages as one datagram. Errors: NETLINK_UNAVAILABLE, also if they exceed {@link maxSendBytes}. */
  send(bytes: Buffer): void {
    this.#checkOpen();
    while (this.#libc.send(this.#descriptor, bytes, bytes.length, 0) < 0) {
      if (this.#libc.errno() !== errnoInterrupted)
        throw failure(this.#libc, `${bytes.length} bytes cannot be sent to the kernel`);
    }
  }

  /** Like {@link send}, but on another thread, because the kernel takes several microseconds for each element. */
  async sendOffThread(bytes: Buffer): Promise<void> {
    this.#checkOpen();
    await new Promise<void>((resolve, reject) => {
      this.#libc.send.async(this.#descriptor, bytes, bytes.length, 0, (error: unknown, sent: number | bigint) => {
        if (error !== null || Number(sent) < 0)
          reject(failure(this.#libc, `${bytes.length} bytes cannot be sent to the kernel`));
        else resolve();
      });
    });
  }

  /**
   * Returns the next datagram, or undefined if there is none. The datagram is valid until the next call. Errors:
   * NETLINK_UNAVAILABLE.
   */
  receive(): Buffer | undefined {
    this.#checkOpen();
    const bytes = this.#input;
    for (;;) {
      const length = Number(this.#libc.receive(this.#descriptor, bytes, bytes.length, dontWait));
      if (length >= 0) return bytes.subarray(0, length);
      if (this.#libc.errno() === errnoAgain) return undefined;
      if (this.#libc.errno() !== errnoInterrupted) throw failure(this.#libc, "the kernel's answer cannot be read");
    }
  }

  /** Closes the socket. Every later call fails with NETLINK_UNAVAILABLE, except another `close`. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#libc.close(this.#descriptor);
  }

  /** Throws if the socket is closed, because the descriptor's number may belong to another file by now. */
  #checkOpen(): void {
    if (this.#isClosed) throw new BackendNftError("NETLINK_UNAVAILABLE", "the netlink socket is closed");
  }

  #setBuffer(option: number, bytes: number): boolean {
    const value = Buffer.alloc(4);
    value.writeInt32LE(bytes);
    return this.#libc.setOption(this.#descriptor, solSocket, option, value, value.length) === 0;
  }
}

/** Returns the error for a failed call to the C library, including its error number. */
function failure(libc: CLibrary, text: string): BackendNftError {
  return new BackendNftError("NETLINK_UNAVAILABLE", `${text} (errno ${libc.errno()})`);
}
