import type { Frame } from "../../items/frames.ts";

/**
 * Joins the frames (encoded messages) of a batch into fewer writes.
 *
 * *Bound:* {@link joinedBytes} and one frame.
 *
 * Each `WatchStream` has one. Separate from it because joining does not depend on the state of the stream.
 */
export class FrameJoiner {
  readonly #write: (frames: Frame) => void;
  #frames: Frame[] | undefined;
  #heldBytes = 0;
  #writtenBytes = 0;

  constructor(write: (frames: Frame) => void) {
    this.#write = write;
  }

  /** Size of all frames since {@link reset}, in bytes. */
  get byteCount(): number {
    return this.#writtenBytes + this.#heldBytes;
  }

  /** Adds a frame, and writes the frames before it if it is large. True if the caller should write now. */
  add(frame: Frame): boolean {
    const isLarge = frame.length >= largeFrameBytes;
    if (isLarge || this.#heldBytes >= joinedBytes) this.write();
    // Not an empty array to push to: it would have capacity for many frames, at each batch of each stream.
    if (this.#frames === undefined) this.#frames = [frame];
    else this.#frames.push(frame);
    this.#heldBytes += frame.length;
    return isLarge || this.#heldBytes >= joinedBytes;
  }

  /** Writes the frames that were added since the last write. */
  write(): void {
    const held = this.#frames;
    const first = held?.[0];
    if (held === undefined || first === undefined) return;
    const frames = held.length === 1 ? first : Buffer.concat(held, this.#heldBytes);
    this.#writtenBytes += this.#heldBytes;
    this.#frames = undefined;
    this.#heldBytes = 0;
    this.#write(frames);
  }

  /** Discards the frames that were not written. */
  reset(): void {
    this.#frames = undefined;
    this.#heldBytes = 0;
    this.#writtenBytes = 0;
  }
}

/** Frames are joined up to this size, in bytes: a write costs more than a copy of this length. */
export const joinedBytes = 16 * 1024;

/** A frame of at least this size is written alone, in bytes: many streams share it, and a copy would belong to one. */
const largeFrameBytes = 4 * 1024;
