/**
 * Response header of a watcher whose state may be out of date, because its own server does not answer. Its value is
 * "1". A node that finds it looks for another watcher. `makeFastWatch` sets it, and the `dialWatchers` of a backend
 * reads it; it is in this package because both import it.
 */
export const staleHeader = "kpng-stale";
