/** Returns the version text of a program, e.g. "kpng 0.1.0 (Node.js v24.21.0, linux/x64)". Printed by `--version`. */
export function formatVersion(program: string, version: string): string {
  return `${program} ${version} (Node.js ${process.version}, ${process.platform}/${process.arch})`;
}
