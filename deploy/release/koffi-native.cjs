// Replaces the package with koffi's native module in the executable `kpng`. The dynamic linker loads only files, so the
// module is written to a temporary folder, of this user alone, and removed as soon as it is loaded.
const { mkdtempSync, rmSync, writeFileSync } = require("node:fs");
const { tmpdir } = require("node:os");
const { join } = require("node:path");
const { getRawAsset } = require("node:sea");

const folder = mkdtempSync(join(tmpdir(), "kpng-koffi-"));
try {
  const file = join(folder, "koffi.node");
  writeFileSync(file, Buffer.from(getRawAsset("koffi.node")));
  process.dlopen(module, file);
} finally {
  rmSync(folder, { recursive: true });
}
