import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const folder = fileURLToPath(new URL(".", import.meta.url));

/** Returns the major version of clang; undefined if it is not installed. */
export function compilerVersion(): number | undefined {
  const { stdout } = spawnSync("clang", ["--version"], { encoding: "utf8" });
  const version = /clang version (\d+)/.exec(stdout ?? "")?.[1];
  return version === undefined ? undefined : Number(version);
}

/** Compiles the programs. Needs clang and the headers of the C library. Errors: clang's own words. */
export function compile(): Buffer {
  const output = mkdtempSync(join(tmpdir(), "kpng-bpf-"));
  try {
    const path = join(output, "lb.bpf.o");
    const machine = process.arch === "arm64" ? "aarch64" : "x86_64";
    const args = ["-O2", "-target", "bpf", "-mcpu=v3", `-I/usr/include/${machine}-linux-gnu`, "-Wall", "-Werror"];
    // From its own folder, because the object contains the name of the source.
    const run = spawnSync("clang", [...args, "-c", "lb.bpf.c", "-o", path], { cwd: folder, encoding: "utf8" });
    if (run.status !== 0) throw new Error(`clang failed: ${run.stderr}`);
    return readFileSync(path);
  } finally {
    rmSync(output, { recursive: true });
  }
}

/** Digest of the source, by which a machine without clang finds an object file of another source. */
export function digestSource(): string {
  const hash = createHash("sha256");
  for (const name of ["lb.bpf.c", "kernel.h"]) hash.update(readFileSync(join(folder, name)));
  return hash.digest("hex");
}

// `node compile.ts` replaces the committed object file.
if (import.meta.main) {
  const text = gzipSync(compile(), { level: 9 }).toString("base64");
  const lines = [
    '// The object file of lb.bpf.c, compressed by gzip, in base64. Made by "node compile.ts". Text, so that it is a part of',
    "// bundled programs, too.",
    "/** Compressed object file with the programs; `object-file.test.ts` compiles it again. */",
    `export const objectFile =\n  "${text}";`,
    "",
    "/** `digestSource` of the source that it was made from. */",
    `export const sourceDigest = "${digestSource()}";`,
  ];
  writeFileSync(join(folder, "object.ts"), `${lines.join("\n")}\n`);
}
