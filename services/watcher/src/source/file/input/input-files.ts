import { createHash } from "node:crypto";
import { constants, createReadStream, openSync } from "node:fs";
import { readdir, stat } from "node:fs/promises";
import { Socket } from "node:net";
import { join } from "node:path";
import { addAbortSignal, Readable } from "node:stream";
import { reasonOf } from "@kpng/process/log.ts";

/** Name of standard input among inputs, as in most tools. */
export const standardInput = "-";

/** A file that is to be read, and what tells that it changed. */
export interface InputFile {
  /** As given, or folder and name; "-" for standard input. */
  readonly file: string;
  /** Differs if the file was changed, replaced or made anew; "" for a stream. */
  readonly stamp: string;
  /** True for standard input, a pipe or a device: it can be read only once. */
  readonly isStream: boolean;
}

/** The text of one file. */
export interface InputText {
  readonly file: string;
  readonly text: string;
}

/** An input that could not be read. */
export interface InputFailure {
  readonly file: string;
  readonly problem: string;
}

export interface InputFilesOptions {
  /** Largest file, in bytes. Default 256 MiB: a text of more than 512 MiB is no string in Node.js. */
  readonly maxBytes?: number | undefined;
  /** Default process.stdin. */
  readonly standardInput?: AsyncIterable<Uint8Array> | undefined;
  /** Ends the reading of a pipe that nobody writes to, or never stops writing to. */
  readonly signal?: AbortSignal | undefined;
  /** Contents of the streams that were read before, by file; this reading adds its own. Default none. */
  readonly streams?: Map<string, Uint8Array> | undefined;
}

const defaultMaxBytes = 256 * 1_048_576;

/**
 * The files that the inputs mean: each file itself, and of each folder those ending in .yaml, .yml or .json, by name,
 * without its folders and dot files (a ConfigMap's `..data`). A file that is named twice is read once.
 */
export async function listInputFiles(
  inputs: readonly string[],
): Promise<{ readonly files: readonly InputFile[]; readonly failures: readonly InputFailure[] }> {
  const files = new Map<string, InputFile>();
  const failures: InputFailure[] = [];
  const add = async (file: string, isGiven: boolean): Promise<void> => {
    if (file === standardInput) {
      files.set(file, { file, stamp: "", isStream: true });
      return;
    }
    try {
      const stats = await stat(file, { bigint: true });
      if (!stats.isDirectory()) {
        const isStream = !stats.isFile();
        const stamp = isStream ? "" : [stats.dev, stats.ino, stats.size, stats.mtimeNs, stats.ctimeNs].join(" ");
        files.set(file, { file, stamp, isStream });
      } else if (isGiven) {
        const names = (await readdir(file)).filter((name) => /^[^.].*\.(?:ya?ml|json)$/.test(name)).sort();
        for (const name of names) await add(join(file, name), false);
      }
    } catch (error) {
      failures.push({ file, problem: `it cannot be read: ${reasonOf(error)}` });
    }
  };
  for (const input of inputs) await add(input, true);
  return { files: [...files.values()], failures };
}

/** Reads files as UTF-8. One that is too large, unreadable or no UTF-8 is a failure. */
export async function readInputFiles(
  files: readonly InputFile[],
  options: InputFilesOptions,
): Promise<{
  readonly texts: readonly InputText[];
  readonly failures: readonly InputFailure[];
  /** Of the names and contents of all files. */
  readonly digest: string;
}> {
  const texts: InputText[] = [];
  const failures: InputFailure[] = [];
  const digest = createHash("sha256");
  for (const file of files) {
    try {
      const content = await readContent(file, options);
      digest.update(`${file.file}\0${content.length}\0`).update(content);
      texts.push({ file: file.file, text: new TextDecoder("utf-8", { fatal: true }).decode(content) });
    } catch (error) {
      const problem = error instanceof TypeError ? "it is no UTF-8 text" : `it cannot be read: ${reasonOf(error)}`;
      failures.push({ file: file.file, problem });
      digest.update(`${file.file}\0${problem}\0`);
    }
  }
  return { texts, failures, digest: digest.digest("hex") };
}

async function readContent({ file, isStream }: InputFile, options: InputFilesOptions): Promise<Uint8Array> {
  const before = options.streams?.get(file);
  if (before !== undefined) return before;
  const chunks: Uint8Array[] = [];
  const maxBytes = options.maxBytes ?? defaultMaxBytes;
  let size = 0;
  // Counted while it is read: the size that stat gives is 0 for a pipe, and old for a file that grows.
  const stream = await openInput(file, options);
  if (options.signal !== undefined) addAbortSignal(options.signal, stream);
  for await (const chunk of stream as AsyncIterable<Uint8Array>) {
    size += chunk.length;
    if (size > maxBytes) throw new Error(`it has more than ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  const content = Buffer.concat(chunks);
  if (isStream) options.streams?.set(file, content);
  return content;
}

async function openInput(file: string, options: InputFilesOptions): Promise<Readable> {
  if (file === standardInput) {
    const given = options.standardInput ?? process.stdin;
    return given instanceof Readable ? given : Readable.from(given);
  }
  if (!(await stat(file)).isFIFO()) return createReadStream(file);
  // A file stream waits for a writer in a thread of the process, which cannot end before one comes.
  const fd = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
  return new Socket({ fd, readable: true, writable: false });
}
