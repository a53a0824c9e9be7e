import { tmpdir } from "node:os";

/**
 * Folders to try for the files and pipes of a run, in order: /dev/shm is usually writable in a container whose root is
 * read-only.
 */
export const temporaryFolders = (): readonly string[] => [tmpdir(), "/dev/shm"];
