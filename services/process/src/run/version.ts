/**
 * Returns the version text of a program, e.g. "kpng 0.1.0 (Node.js v24.21.0, linux/x64)". `runBackendCommand` prints it
 * for `--version`, and `kpng version` too; it is here, so that all programs print the same form.
 */
export function formatVersion(program: string, version: string): string {
  return `${program} ${version} (Node.js ${process.version}, ${process.platform}/${process.arch})`;
}
