import type { DecodeOptions } from "../decode/decode-options.ts";
import { type InputFilesOptions, listInputFiles, readInputFiles } from "./input/input-files.ts";
import type { InputResult } from "./input-result.ts";
import { readTexts } from "./read-texts.ts";

export interface ReadInputOptions extends InputFilesOptions {
  readonly decode: DecodeOptions;
}

/** Inputs that were loaded but not yet read. */
export interface LoadedInput {
  readonly fileCount: number;
  /** The same for the same files with the same content. */
  readonly digest: string;
  /** True if a file has no bytes, or there is no file: what is being written often looks so for a moment. */
  readonly isEmptied: boolean;
  read(): InputResult;
}

/** Loads the bytes of all inputs. Never rejects for what is in or with the files. */
export async function loadInput(inputs: readonly string[], options: ReadInputOptions): Promise<LoadedInput> {
  const listed = await listInputFiles(inputs);
  const loaded = await readInputFiles(listed.files, options);
  const failures = [...listed.failures, ...loaded.failures];
  return {
    fileCount: listed.files.length,
    digest: JSON.stringify([loaded.digest, listed.failures]),
    isEmptied: listed.files.length === 0 || loaded.texts.some(({ text }) => text === ""),
    read: () => {
      const result = readTexts(loaded.texts, options.decode);
      if (failures.length === 0) return result;
      return { kind: "bad", problems: [...failures, ...(result.kind === "bad" ? result.problems : [])] };
    },
  };
}

/**
 * Reads the cluster's objects from files, folders and standard input ("-"): Kubernetes manifests, lists as `kubectl get
 * -o yaml` and `-o json` give them, and state files of KPNG, in any mixture.
 *
 * One problem anywhere makes the whole input bad: half a cluster must never be served. Never rejects for what is in or
 * with the files.
 */
export async function readInput(inputs: readonly string[], options: ReadInputOptions): Promise<InputResult> {
  return (await loadInput(inputs, options)).read();
}
