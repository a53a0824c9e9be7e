import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, lstatSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Health } from "@kpng/process/health/health.ts";
import { afterEach, beforeEach, expect, test } from "vitest";
import { createReadableLog } from "../testing/steps.ts";
import { lockRules } from "./rules-lock.ts";

const holder = join(import.meta.dirname, "../testing/hold-rules-lock.ts");
const isRoot = process.geteuid?.() === 0;
const stranger = 65_534;

/** Like /var/lib: others can enter, and not write. */
let parent: string;
let folder: string;
const children: ChildProcess[] = [];

beforeEach(() => {
  parent = mkdtempSync(join(tmpdir(), "kpng-locks-"));
  chmodSync(parent, 0o755);
  folder = join(parent, "locks");
});
afterEach(() => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
  rmSync(parent, { recursive: true, force: true });
});

/** Starts a process that takes the lock; `held` counts the processes that have it. */
function start(name = "test", prefix: readonly string[] = []): ChildProcess {
  const [command = "", ...args] = [...prefix, process.execPath, holder, name, folder];
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "inherit"] });
  children.push(child);
  return child;
}

function says(child: ChildProcess): Promise<unknown> {
  return child.stdout === null ? Promise.reject(new Error("no output")) : once(child.stdout, "data");
}

/** Takes the lock at once, or returns undefined. */
async function take(name = "test", folders: readonly string[] = [folder]) {
  const { log, lines } = createReadableLog();
  const health = new Health();
  const aborting = new AbortController();
  health.onChange(() => {
    if (health.parts.get("rules-lock")?.isReady === false) aborting.abort();
  }, aborting.signal);
  const lock = await lockRules({ name, log, health, folders }, aborting.signal);
  return { isHeld: lock !== undefined, lines, [Symbol.dispose]: () => lock?.[Symbol.dispose]() };
}

/** Runs JavaScript as another user; returns what it prints. */
async function runAs(uid: number, code: string): Promise<string> {
  const options = { uid, gid: uid, stdio: ["ignore", "pipe", "inherit"] as ["ignore", "pipe", "inherit"] };
  const child = spawn(process.execPath, ["--input-type=module", "--eval", code], options);
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (part: string) => {
    text += part;
  });
  await once(child, "close");
  return text.trim();
}

test("of processes that start together one has the lock, and another one gets it when that is killed", async () => {
  // Each listens from its start: the next one may have the lock before the exit of the one before is noticed.
  const waiting = new Map(
    Array.from({ length: 3 }, () => start()).map((child) => [child, says(child).then(() => child)]),
  );
  while (waiting.size > 0) {
    const first = await Promise.race(waiting.values());
    waiting.delete(first);
    using other = await take();
    expect(other.isHeld).toBe(false);
    first.kill("SIGKILL");
    await once(first, "exit");
  }
  using last = await take();
  expect(last.isHeld).toBe(true);
});

test("a process may have the locks of several rules, and waits for its own", async () => {
  using one = await take("one");
  using two = await take("two");
  using again = await take("one");
  expect([one.isHeld, two.isHeld, again.isHeld]).toEqual([true, true, false]);
  const other = start("one");
  let isHeld = false;
  void says(other).then(() => {
    isHeld = true;
  });
  using third = await take("two");
  expect([third.isHeld, isHeld]).toEqual([false, false]);
});

test.skipIf(!isRoot)("another network namespace has locks of its own", async () => {
  using mine = await take();
  expect(mine.isHeld).toBe(true);
  await says(start("test", ["unshare", "--net"]));
});

test.skipIf(!isRoot)("no other user can hold the lock, nor keep it from its holder", async () => {
  using mine = await take();
  expect(mine.isHeld).toBe(true);
  const attempts = await runAs(
    stranger,
    `import { DatabaseSync } from "node:sqlite";
     import { createServer } from "node:net";
     import fs from "node:fs";
     const parent = ${JSON.stringify(parent)}, folder = ${JSON.stringify(folder)};
     const done = [];
     const attempt = (name, work) => { try { work(); done.push(name); } catch {} };
     attempt("list", () => fs.readdirSync(folder));
     attempt("create", () => fs.writeFileSync(folder + "/test@1", ""));
     attempt("rename", () => fs.renameSync(folder, parent + "/other"));
     attempt("link", () => fs.symlinkSync("/tmp", parent + "/link"));
     attempt("chmod", () => fs.chmodSync(folder, 0o777));
     const file = "test@" + fs.readlinkSync("/proc/self/ns/net").replace(/\\D/g, "");
     attempt("open", () => fs.openSync(folder + "/" + file, "r"));
     attempt("lock", () => new DatabaseSync(folder + "/" + file).exec("BEGIN EXCLUSIVE"));
     process.stdout.write(JSON.stringify(done));`,
  );
  expect(attempts).toBe("[]");
});

test.skipIf(!isRoot)(
  "a process of another user at the names of earlier locks does not keep a proxy from starting",
  async () => {
    const squatter = spawn(
      process.execPath,
      [
        "--input-type=module",
        "--eval",
        `(await import("node:net")).createServer().listen("\\0kpng/rules/test", () => process.stdout.write("held"))`,
      ],
      { uid: stranger, gid: stranger, stdio: ["ignore", "pipe", "inherit"] },
    );
    children.push(squatter);
    await says(squatter);
    using mine = await take();
    expect([mine.isHeld, mine.lines.length]).toEqual([true, 0]);
  },
);

test.skipIf(!isRoot).each([
  {
    name: "a folder of another user",
    make: () => {
      mkdirSync(folder, { mode: 0o777 });
      chownSync(folder, stranger, stranger);
    },
  },
  {
    name: "a link to a folder of another user",
    make: () => {
      const target = join(parent, "target");
      mkdirSync(target, { mode: 0o777 });
      chownSync(target, stranger, stranger);
      symlinkSync(target, folder);
    },
  },
])("$name is not used: the rules are managed, and the log says that the lock is missing", async ({ make }) => {
  make();
  using mine = await take();
  expect(mine.isHeld).toBe(true);
  expect(mine.lines.map(({ level, reason }) => [level, String(reason)])).toEqual([
    ["error", expect.stringContaining("not a folder of this user")],
  ]);
});

test("a folder that others can enter is closed, and the next folder is used where the first one cannot be", async () => {
  mkdirSync(folder, { mode: 0o755 });
  using mine = await take("test", ["/proc/kpng", folder]);
  expect([mine.isHeld, mine.lines.length]).toEqual([true, 0]);
  expect(lstatSync(folder).mode & 0o777).toBe(0o700);
  using other = await take("test", ["/proc/kpng", folder]);
  expect(other.isHeld).toBe(false);
});

test.skipIf(!isRoot)("on a read-only file system, the log says that the lock is missing", async () => {
  {
    using before = await take();
    expect([before.isHeld, before.lines.length]).toEqual([true, 0]);
  }
  execFileSync("mount", ["--bind", folder, folder]);
  try {
    execFileSync("mount", ["-o", "remount,bind,ro", folder]);
    using mine = await take();
    expect(mine.isHeld).toBe(true);
    expect(mine.lines.map(({ level, reason }) => [level, String(reason)])).toEqual([
      ["error", expect.stringContaining("readonly")],
    ]);
  } finally {
    execFileSync("umount", [folder]);
  }
});

test("no journal is left in the folder", async () => {
  const child = start();
  await says(child);
  child.kill("SIGKILL");
  await once(child, "exit");
  using mine = await take();
  expect(mine.isHeld).toBe(true);
  expect(readdirSync(folder)).toHaveLength(1);
});
