/**
 * Returns an address, or a list of addresses, in a form that may be printed: everything before the last `@` is hidden,
 * because it may contain a password. The parsers of addresses here, in backend-kit and in the watcher share it, for
 * their errors and logs.
 *
 * *Example:* `http://user:secret@host:80` is `http://***@host:80`.
 */
export function withoutCredentials(address: string): string {
  // Up to the last @: a password may contain characters that are not allowed in one, such as slashes and commas.
  return address.replace(/^([a-z0-9+.-]+:\/\/)?.*@/is, "$1***@");
}
