/**
 * An address as it may be printed: what stands before an `@` in it, or in a list of them, may be somebody's password and
 * is left out.
 *
 * *Example:* `http://user:secret@host:80` is `http://***@host:80`.
 */
export function withoutCredentials(address: string): string {
  // From the scheme on to the last @: a password may hold what is not allowed in one, slashes and commas too.
  return address.replace(/^([a-z0-9+.-]+:\/\/)?.*@/is, "$1***@");
}
