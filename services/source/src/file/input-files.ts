import { constants, createReadStream, openSync } from "node:fs";
import { readdir, stat } from "node:fs/promises";
import { Socket } from "node:net";
import { join } from "node:path";
import { addAbortSignal, Readable } from "node:stream";
import { reasonOf } from "@kpng/process/log.ts";
import type { InputProblem } from "./input-content.ts";

/** Name that stands for standard input. */
const standardInputName = "-";

/** A file to read, with a stamp for detecting changes. */
interface InputFile {
  /** Path as given, or folder and file name; "-" for standard input. */
  readonly file: string;
  /** Changes when the file is changed, replaced or recreated; "" for a stream. */
  readonly stamp: string;
  /** True for standard input, pipes and devices, which can be read only once. */
  readonly isStream: boolean;
}

interface InputText {
  readonly file: string;
  readonly text: string;
}

export interface InputFilesOptions {
  /** Size limit per file, in bytes. Default 256 MiB, because Node.js strings are limited to 512 MiB. */
  readonly maxBytes?: number | undefined;
  /** Source of the content of "-". Default process.stdin. */
  readonly standardInput?: AsyncIterable<Uint8Array> | undefined;
  /** Ends the reading of pipes that have no writer, or whose writer never stops. */
  readonly signal?: AbortSignal | undefined;
  /** Contents of previously read streams, by file. Newly read streams are added. Default none. */
  readonly streams?: Map<string, Uint8Array> | undefined;
}

const defaultMaxBytes = 256 * 1_048_576;

/**
 * Lists the files of the inputs: each file once and, for each folder, its .yaml, .yml and .json files in order of name.
 * Subfolders and dot files (such as a ConfigMap's `..data`) are ignored.
 */
export async function listInputFiles(
  inputs: readonly string[],
): Promise<{ readonly files: readonly InputFile[]; readonly failures: InputProblem[] }> {
  const files = new Map<string, InputFile>();
  const failures: InputProblem[] = [];
  const add = async (file: string, mayBeFolder: boolean): Promise<void> => {
    if (file === standardInputName) {
      files.set(file, { file, stamp: "", isStream: true });
      return;
    }
    try {
      const stats = await stat(file, { bigint: true });
      if (!stats.isDirectory()) {
        const isStream = !stats.isFile();
        const stamp = isStream ? "" : [stats.dev, stats.ino, stats.size, stats.mtimeNs, stats.ctimeNs].join(" ");
        files.set(file, { file, stamp, isStream });
      } else if (mayBeFolder) {
        const names = (await readdir(file)).filter((name) => /^[^.].*\.(?:ya?ml|json)$/.test(name)).sort();
        for (const name of names) await add(join(file, name), false);
      }
    } catch (error) {
      failures.push({ at: file, problem: `cannot be read: ${reasonOf(error)}` });
    }
  };
  for (const input of inputs) await add(input, true);
  return { files: [...files.values()], failures };
}

/** The contents of all inputs, not yet parsed. */
export interface LoadedInput {
  readonly fileCount: number;
  readonly texts: readonly InputText[];
  /** Files that are missing, unreadable, too large or not UTF-8. */
  readonly failures: readonly InputProblem[];
}

/** Loads the contents of all inputs: files, folders and standard input ("-"). */
export async function loadInput(inputs: readonly string[], options: InputFilesOptions): Promise<LoadedInput> {
  const { files, failures } = await listInputFiles(inputs);
  const texts: InputText[] = [];
  for (const file of files) {
    try {
      const content = await readContent(file, options);
      texts.push({ file: file.file, text: new TextDecoder("utf-8", { fatal: true }).decode(content) });
    } catch (error) {
      // A TextDecoder throws a TypeError.
      const problem = error instanceof TypeError ? "not UTF-8 text" : `cannot be read: ${reasonOf(error)}`;
      failures.push({ at: file.file, problem });
    }
  }
  return { fileCount: files.length, texts, failures };
}

async function readContent({ file, isStream }: InputFile, options: InputFilesOptions): Promise<Uint8Array> {
  const before = options.streams?.get(file);
  if (before !== undefined) return before;
  const chunks: Uint8Array[] = [];
  const maxBytes = options.maxBytes ?? defaultMaxBytes;
  let size = 0;
  // The size is counted while reading, because stat returns 0 for a pipe and an outdated size for a growing file.
  const stream = await openInput(file, options);
  if (options.signal !== undefined) addAbortSignal(options.signal, stream);
  for await (const chunk of stream as AsyncIterable<Uint8Array>) {
    size += chunk.length;
    if (size > maxBytes) throw new Error(`larger than ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  const content = Buffer.concat(chunks);
  if (isStream) options.streams?.set(file, content);
  return content;
}

async function openInput(file: string, options: InputFilesOptions): Promise<Readable> {
  if (file === standardInputName) {
    const given = options.standardInput ?? process.stdin;
    return given instanceof Readable ? given : Readable.from(given);
  }
  if (!(await stat(file)).isFIFO()) return createReadStream(file);
  // Opening a pipe as a file stream would block a thread until a writer opens it, and the process could not exit.
  const fd = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
  return new Socket({ fd, readable: true, writable: false });
}
