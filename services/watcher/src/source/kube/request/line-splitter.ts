const newline = 0x0a;

/**
 * Cuts a stream of bytes into lines.
 *
 * Holds at most one unfinished line; one of more than `maxBytes` is refused, so that a stream without newlines cannot
 * fill the memory.
 */
export class LineCutter {
  readonly #maxBytes: number;
  #unfinished: Buffer[] = [];
  #unfinishedBytes = 0;

  /** `maxBytes` by default 16 MiB: the API server's own limit for an object is near 3 MiB. */
  constructor(maxBytes = 16 << 20) {
    this.#maxBytes = maxBytes;
  }

  /** Returns the lines that `bytes` completes, without empty ones; undefined if the unfinished one is too long. */
  cut(bytes: Buffer): readonly string[] | undefined {
    const lines: string[] = [];
    let start = 0;
    for (let at = bytes.indexOf(newline); at >= 0; at = bytes.indexOf(newline, start)) {
      this.#keep(bytes.subarray(start, at));
      const line = this.#finish();
      if (line !== "") lines.push(line);
      start = at + 1;
    }
    this.#keep(bytes.subarray(start));
    return this.#unfinishedBytes > this.#maxBytes ? undefined : lines;
  }

  #keep(part: Buffer): void {
    if (part.length === 0) return;
    this.#unfinished.push(part);
    this.#unfinishedBytes += part.length;
  }

  #finish(): string {
    const line = Buffer.concat(this.#unfinished).toString("utf8");
    this.#unfinished = [];
    this.#unfinishedBytes = 0;
    return line;
  }
}
