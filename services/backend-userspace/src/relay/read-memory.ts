import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

const size = 65_536;

/**
 * The memory that all connections to endpoints read into. A connection reads, and writes to its client at once. Only if
 * the client's kernel buffer did not take everything, the memory stays with that write, and the next read gets new
 * memory. So the usual read allocates nothing.
 */
export class ReadBuffer {
  #buffer = Buffer.allocUnsafeSlow(size);

  /** The memory for the next read. */
  readonly current = (): Buffer => this.#buffer;

  /** Says that a write still refers to the current memory. */
  replace(): void {
    this.#buffer = Buffer.allocUnsafeSlow(size);
  }
}

const collectAfterBytes = 4 * 1_048_576;

/** The function `gc` of V8 (`--expose-gc`). */
type Collect = (options: { readonly type: "minor" }) => void;

/**
 * The memory of data from clients, which becomes garbage as soon as it is written. Collects it after each 4 MiB, by a
 * collection of V8's young generation alone.
 *
 * Node.js reads an accepted socket into 64 KiB of new memory each time, outside of V8's heap. Its young generation
 * holds only the small objects that own the memory and therefore never fills up; instead, V8 collects the whole heap
 * after each 40 MiB, which took more than a third of the CPU time of an upload
 * ([0079](../../../../docs/decisions/0079-garbage-of-an-upload.md)).
 *
 * Where V8 has no function `gc`, or it fails, V8 is left to itself: uploads are slower, and nothing else changes.
 */
export class ReadGarbage {
  #collect = findCollect();
  #bytes = 0;

  /** Notes that so many bytes were read into memory of their own. */
  add(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes < collectAfterBytes) return;
    this.#bytes = 0;
    try {
      this.#collect?.({ type: "minor" });
    } catch {
      this.#collect = undefined;
    }
  }
}

/** Returns V8's function `gc`; undefined if it has none. The context of this process does not get it. */
function findCollect(): Collect | undefined {
  // The function is defined in contexts that are created after the flag is set.
  setFlagsFromString("--expose-gc");
  return runInNewContext("typeof gc === 'function' ? gc : undefined");
}
