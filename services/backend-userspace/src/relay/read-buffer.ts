const size = 65_536;

/**
 * The memory that all connections to endpoints read into. A connection reads, and writes to its client at once. Only if
 * the client's kernel buffer did not take everything, the memory stays with that write, and the next read gets new
 * memory. So the usual read allocates nothing.
 *
 * `UserspaceRuntime` creates one, and each `Connection` reads into it. Separate from `Connection`, because all share
 * it.
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
