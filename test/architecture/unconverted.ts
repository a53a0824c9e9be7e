/**
 * Folders that do not follow a rule yet; the folders inside them are listed on their own.
 *
 * The commit that converts a folder deletes its line, and a test fails for a line that is no longer needed. A line is
 * added only where files move to a new folder before they are converted.
 */

/**
 * Folders whose prose still has phrases of `phrases.ts` or wide comments.
 *
 * `node test/architecture/list-phrases.ts FOLDER` prints what is left, `wrap-comments.ts` wraps wide comments.
 */
export const foldersNotRewritten: readonly string[] = [];

/** Folders that import against the order of `folder-order.ts`. */
export const foldersOutOfOrder: readonly string[] = [];

/** Folders whose files import each other in a circle. */
export const foldersWithCycles: readonly string[] = [];

/** Folders with too many source files. */
export const foldersTooLarge: readonly string[] = [];
