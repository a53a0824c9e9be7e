import type { Position } from "@kpng/model/forward/position.ts";
import { openOwnFile } from "@kpng/process/regular-file.ts";
import { decodeHeader } from "./view-header.ts";
import { viewPath } from "./view-keeper.ts";

/** Longest header of a saved view, in bytes. */
const maxHeaderBytes = 4_096;

/**
 * Returns the position of the view that this node saved in an earlier run; undefined if there is none. A backend that
 * starts refuses older states than this one, even if it does not use the saved view. `backendTask` calls it at its
 * start. Separate from `loadView`, because it reads only the first line of the file, whatever the age of the view.
 */
export async function readSavedPosition(
  folder: string | undefined,
  nodeName: string,
  serviceProxyName: string,
): Promise<Position | undefined> {
  if (folder === undefined) return undefined;
  try {
    const file = await openOwnFile(viewPath(folder, serviceProxyName), Number.POSITIVE_INFINITY);
    try {
      const { bytesRead, buffer } = await file.read(Buffer.alloc(maxHeaderBytes), 0, maxHeaderBytes, 0);
      const text = buffer.toString("utf8", 0, bytesRead);
      const header = decodeHeader(text.slice(0, text.indexOf("\n")));
      return header.nodeName === nodeName ? header.position : undefined;
    } finally {
      await file.close();
    }
  } catch {
    // It only protects against older states; `loadView` reports what is wrong with the file.
    return undefined;
  }
}
