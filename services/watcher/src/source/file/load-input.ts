import type { DecodeOptions } from "../decode/decode-options.ts";
import { type InputFilesOptions, listInputFiles, readInputFiles } from "./input/input-files.ts";
import type { InputResult } from "./input-result.ts";
import { readTexts } from "./read-texts.ts";

/** Options of {@link loadInput}. */
interface LoadInputOptions extends InputFilesOptions {
  readonly decode: DecodeOptions;
  /** True to leave out invalid objects. Default false. */
  readonly skipsBad?: boolean | undefined;
}

/** The contents of all files, loaded but not yet parsed. */
export interface LoadedInput {
  readonly fileCount: number;
  /** Equal for the same files with the same contents. */
  readonly digest: string;
  /** True if a file is empty, or there is no file. Inputs that are being written often look like this for a moment. */
  readonly isEmptied: boolean;
  /** Parses and decodes the inputs. */
  read(): InputResult;
}

/**
 * Loads the contents of all inputs: files, folders and standard input ("-"). Problems are part of the result of `read`,
 * not errors. Without `skipsBad`, one problem makes the whole input invalid, because part of a cluster must not be
 * served.
 *
 * `fileSource` calls it at the start and after each change of its inputs. It compares the digest, and calls `read` only
 * if the contents changed.
 *
 * Separate from `fileSource`, which decides when to read, and from `readTexts`, which touches no files.
 */
export async function loadInput(inputs: readonly string[], options: LoadInputOptions): Promise<LoadedInput> {
  const listed = await listInputFiles(inputs);
  const loaded = await readInputFiles(listed.files, options);
  const failures = [...listed.failures, ...loaded.failures];
  return {
    fileCount: listed.files.length,
    digest: JSON.stringify([loaded.digest, listed.failures]),
    isEmptied: listed.files.length === 0 || loaded.texts.some(({ text }) => text === ""),
    read: () => {
      const result = readTexts(loaded.texts, options.decode, options.skipsBad);
      if (failures.length === 0) return result;
      return { kind: "bad", problems: [...failures, ...(result.kind === "bad" ? result.problems : [])] };
    },
  };
}
