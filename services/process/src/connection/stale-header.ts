/**
 * Response header of a watcher whose state may be out of date, because its own server does not answer. Its value is
 * "1". A node that finds it looks for another watcher.
 */
export const staleHeader = "kpng-stale";
