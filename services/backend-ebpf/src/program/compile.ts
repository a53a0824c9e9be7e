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

/** Compiles the programs. Needs clang and the headers of the C library. Errors: clang's error message. */
export function compile(): Buffer {
  const output = mkdtempSync(join(tmpdir(), "kpng-bpf-"));
  try {
    const path = join(output, "lb.bpf.o");
    const machine = process.arch === "arm64" ? "aarch64" : "x86_64";
    const args = ["-O2", "-target", "bpf", "-mcpu=v3", `-I/usr/include/${machine}-linux-gnu`, "-Wall", "-Werror"];
    // clang is run in the source's own folder, because the object file contains the name of the source.
    const run = spawnSync("clang", [...args, "-c", "lb.bpf.c", "-o", path], { cwd: folder, encoding: "utf8" });
    if (run.status !== 0) throw new Error(`clang failed: ${run.stderr}`);
    return readFileSync(path);
  } finally {
    rmSync(output, { recursive: true });
  }
}

/** Returns a digest of the source, which shows, without clang, whether the object file was made from it. */
export function digestSource(): string {
  const hash = createHash("sha256");
  for (const name of ["lb.bpf.c", "kernel.h"]) hash.update(readFileSync(join(folder, name)));
  return hash.digest("hex");
}

// `node compile.ts` replaces the committed object file.
if (import.meta.main) {
  const text = gzipSync(compile(), { level: 9 }).toString("base64");
  const lines = [
    '// The object file of lb.bpf.c, compressed with gzip, in base64. Made by "node compile.ts". It is text so that bundled',
    "// programs include it.",
    "/** Compressed object file with the programs; `object-file.test.ts` compiles it again. */",
    `export const objectFile =\n  "${text}";`,
    "",
    "/** Result of `digestSource` for the source from which the object file was made. */",
    `export const sourceDigest = "${digestSource()}";`,
  ];
  writeFileSync(join(folder, "object.ts"), `${lines.join("\n")}\n`);
}
