import koffi from "koffi";
import { BackendNftError } from "./nft-error.ts";

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

/** Room for the messages of one transaction, in bytes: 100 000 elements with comments fit. */
const wantedBufferBytes = 32 * 1024 * 1024;

/** Largest datagram that the kernel sends in a dump. */
const readBytes = 64 * 1024;

const libc = openLibc();

function openLibc() {
  try {
    // The C library that Node.js itself runs on, glibc or musl.
    const loaded = koffi.load(null);
    return {
      socket: loaded.func("int socket(int, int, int)"),
      bind: loaded.func("int bind(int, const uint8_t *, uint32_t)"),
      send: loaded.func("intptr_t send(int, const uint8_t *, size_t, int)"),
      receive: loaded.func("intptr_t recv(int, _Out_ uint8_t *, size_t, int)"),
      setOption: loaded.func("int setsockopt(int, int, int, const uint8_t *, uint32_t)"),
      getOption: loaded.func("int getsockopt(int, int, int, _Out_ uint8_t *, _Inout_ uint32_t *)"),
      close: loaded.func("int close(int)"),
    };
  } catch (cause) {
    throw new BackendNftError("NETLINK_UNAVAILABLE", "the C library cannot be called through koffi", { cause });
  }
}

/**
 * A netlink socket to the kernel's netfilter subsystem, in the network namespace of this process.
 *
 * The kernel handles a message during `send`, so its answer can be received at once.
 */
export class NetlinkSocket {
  readonly #descriptor: number;
  /**
   * Largest transaction that can be sent, in bytes. The kernel charges a message's memory to the socket, about twice
   * its length; without CAP_NET_ADMIN in the host's user namespace the buffer cannot exceed `net.core.wmem_max`.
   */
  readonly maxSendBytes: number;

  private constructor(descriptor: number) {
    this.#descriptor = descriptor;
    this.#setBuffer(receiveBufferForce, wantedBufferBytes);
    if (!this.#setBuffer(sendBufferForce, wantedBufferBytes)) this.#setBuffer(sendBuffer, wantedBufferBytes);
    const size = Buffer.alloc(4);
    libc.getOption(descriptor, solSocket, sendBuffer, size, [4]);
    // The kernel reports twice what was asked for, to account for its own overhead.
    this.maxSendBytes = Math.floor(size.readInt32LE(0) / 2);
  }

  /** Errors: NETLINK_UNAVAILABLE. */
  static open(): NetlinkSocket {
    const descriptor = libc.socket(addressFamilyNetlink, socketTypeRaw | closeOnExec, protocolNetfilter);
    if (descriptor < 0) throw failure("a netlink socket cannot be opened");
    const address = Buffer.alloc(12);
    address.writeUInt16LE(addressFamilyNetlink, 0);
    if (libc.bind(descriptor, address, address.length) < 0) {
      const error = failure("the netlink socket cannot be bound");
      libc.close(descriptor);
      throw error;
    }
    return new NetlinkSocket(descriptor);
  }

  /** Sends messages as one datagram. Errors: TRANSACTION_TOO_LARGE, NETLINK_UNAVAILABLE. */
  send(bytes: Buffer): void {
    this.#checkSize(bytes);
    while (libc.send(this.#descriptor, bytes, bytes.length, 0) < 0) {
      if (koffi.errno() !== errnoInterrupted) throw failure(`${bytes.length} bytes cannot be sent to the kernel`);
    }
  }

  /** The same on a thread of its own: the kernel takes some microseconds for each element. */
  async sendOffThread(bytes: Buffer): Promise<void> {
    this.#checkSize(bytes);
    await new Promise<void>((resolve, reject) => {
      libc.send.async(this.#descriptor, bytes, bytes.length, 0, (error: unknown, sent: number | bigint) => {
        if (error !== null || Number(sent) < 0) reject(failure(`${bytes.length} bytes cannot be sent to the kernel`));
        else resolve();
      });
    });
  }

  /** Returns the next datagram, or undefined if there is none. Errors: NETLINK_UNAVAILABLE. */
  receive(): Buffer | undefined {
    const bytes = Buffer.allocUnsafe(readBytes);
    for (;;) {
      const length = Number(libc.receive(this.#descriptor, bytes, bytes.length, dontWait));
      if (length >= 0) return bytes.subarray(0, length);
      if (koffi.errno() === errnoAgain) return undefined;
      if (koffi.errno() !== errnoInterrupted) throw failure("the kernel's answer cannot be read");
    }
  }

  close(): void {
    libc.close(this.#descriptor);
  }

  #setBuffer(option: number, bytes: number): boolean {
    const value = Buffer.alloc(4);
    value.writeInt32LE(bytes);
    return libc.setOption(this.#descriptor, solSocket, option, value, value.length) === 0;
  }

  #checkSize(bytes: Buffer): void {
    if (bytes.length <= this.maxSendBytes) return;
    throw new BackendNftError(
      "TRANSACTION_TOO_LARGE",
      `a transaction of ${bytes.length} bytes exceeds the socket's ${this.maxSendBytes} (sysctl net.core.wmem_max)`,
    );
  }
}

function failure(text: string): BackendNftError {
  return new BackendNftError("NETLINK_UNAVAILABLE", `${text} (errno ${koffi.errno()})`);
}
