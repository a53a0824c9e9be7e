const newline = 0x0a;

/**
 * Splits the byte stream of a watch into lines. Buffers at most one unfinished line, of at most `maxBytes`, so that a
 * stream without newlines cannot exhaust memory.
 *
 * `watchOnce` parses each line as one event. Separate from it, because it knows only bytes. A list is one JSON text
 * instead, which `ListSplitter` splits.
 */
export class LineSplitter {
  readonly #maxBytes: number;
  #unfinished: Buffer[] = [];
  #unfinishedBytes = 0;

  /** `maxBytes` defaults to 16 MiB: the API server limits objects to about 3 MiB. */
  constructor(maxBytes = 16 << 20) {
    this.#maxBytes = maxBytes;
  }

  /** Returns the non-empty lines that `bytes` completes, or undefined if the unfinished line exceeds the limit. */
  split(bytes: Buffer): readonly string[] | undefined {
    const lines: string[] = [];
    let start = 0;
    for (let end = bytes.indexOf(newline); end >= 0; end = bytes.indexOf(newline, start)) {
      this.#keep(bytes.subarray(start, end));
      const line = this.#finish();
      if (line !== "") lines.push(line);
      start = end + 1;
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
