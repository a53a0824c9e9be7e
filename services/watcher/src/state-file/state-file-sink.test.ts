import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmod, lstat, readdir, readFile, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { beforeEach, test } from "vitest";
import { writeFileAtomically } from "./state-file-sink.ts";

let folder = "";
beforeEach(() => {
  folder = temporaryFolder();
});

test("a file is created, and when it is replaced, it keeps its mode and no temporary file is left", async () => {
  const path = join(folder, "state.yaml");
  await writeFileAtomically(path, "old");
  await chmod(path, 0o640);
  await writeFileAtomically(path, "new");
  assert.equal(await readFile(path, "utf8"), "new");
  assert.equal((await stat(path)).mode & 0o777, 0o640);
  assert.deepEqual(await readdir(folder), ["state.yaml"]);
});

test("a symbolic link is kept, and its target is replaced", async () => {
  await writeFile(join(folder, "target"), "old");
  await symlink("target", join(folder, "state.yaml"));
  await writeFileAtomically(join(folder, "state.yaml"), "new");
  assert.ok((await lstat(join(folder, "state.yaml"))).isSymbolicLink());
  assert.equal(await readFile(join(folder, "target"), "utf8"), "new");
});

test("a target that is not a regular file, such as a device, is not replaced", async () => {
  const path = join(folder, "pipe");
  execFileSync("mkfifo", [path]);
  await assert.rejects(
    writeFileAtomically(path, "a: 1\n"),
    /\[WRITE_FAILED\] .*pipe.*it exists and is not a regular file/,
  );
  assert.ok((await lstat(path)).isFIFO());
  assert.deepEqual(await readdir(folder), ["pipe"]);
});

test("a failed write gives an error with the path", async () => {
  const path = join(folder, "none", "state.yaml");
  await assert.rejects(writeFileAtomically(path, "new"), /\[WRITE_FAILED\] .*none\/state\.yaml/);
});
