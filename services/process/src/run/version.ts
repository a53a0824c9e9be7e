/** How a program names itself and what it runs on: "kpng 0.1.0 (Node.js v24.21.0, linux/x64)". */
export function formatVersion(program: string, version: string): string {
  return `${program} ${version} (Node.js ${process.version}, ${process.platform}/${process.arch})`;
}
