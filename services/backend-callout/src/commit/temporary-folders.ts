import { tmpdir } from "node:os";

/**
 * Folders to try for the files and pipes of a run, in order: /dev/shm is usually writable in a container whose root is
 * read-only. `openErrorPipe` and `openUnlinkedFile` share the list, hence a file of its own.
 */
export const temporaryFolders = (): readonly string[] => [tmpdir(), "/dev/shm"];
