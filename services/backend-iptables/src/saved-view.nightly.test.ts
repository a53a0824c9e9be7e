import { writeFileSync } from "node:fs";
import { copyFile, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { until } from "../../../test/cluster/until.ts";
import { describeProgram, main } from "./testing/describe-program.ts";

describeProgram("kpng-iptables with a saved view", (node) => {
  const { run, start, put, startWatcher, command, rules, serves, ask, folder } = node;
  let savedView: Buffer | undefined;

  /** Runs a command as if the machine had restarted: with another boot id. */
  const afterReboot = (words: readonly string[]): readonly string[] => {
    const file = join(folder(), "boot-id");
    writeFileSync(file, "11111111-2222-3333-4444-555555555555\n");
    const script = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"';
    return ["unshare", "--mount", "sh", "-c", script, file, ...words];
  };

  test("without a watcher, rules of this boot stay, and the saved view is installed where no packet reaches any", async () => {
    await put({ web: "10.0.1.1" });
    const watcher = startWatcher();
    const state = join(folder(), "state");
    const first = start(command("--state-dir", state));
    await serves("10.0.1.1");
    await until("the view is saved", () => readFile(join(state, "view")));
    await copyFile(join(state, "view"), join(folder(), "old-view"));
    await put({ web: "10.0.1.2" });
    await serves("10.0.1.2");
    await Promise.all([first.stop(), watcher.stop()]);
    const nat = await run(["iptables-save", "-t", "nat"]);

    // The saved view is older than the rules.
    await copyFile(join(folder(), "old-view"), join(state, "view"));
    const before = await rules();
    const older = start(command("--state-dir", state));
    await older.says(/rules of an earlier run stay/);
    expect(await rules()).toBe(before);
    await run(["sh", "-c", "iptables -t nat -F PREROUTING"]);
    await serves("10.0.1.1");
    await older.stop();

    // Rules of an earlier boot, which another program has restored, make way for the saved view.
    await run(["iptables-restore", "-T", "nat"], nat);
    expect(await rules()).toContain("10.0.1.2");
    const rebooted = start(afterReboot(command("--state-dir", state)));
    await rebooted.says(/installing the saved view/);
    await serves("10.0.1.1");
    expect(await rules()).not.toContain("10.0.1.2");
  });

  const unfit: readonly { readonly name: string; readonly spoil: (view: Buffer) => Buffer; readonly says: RegExp }[] = [
    {
      name: "that is truncated",
      spoil: (view) => view.subarray(0, view.length - 40),
      says: /the checksum does not match/,
    },
    { name: "that is another file", spoil: () => Buffer.from("hello"), says: /is not a valid saved view/ },
    { name: "that is empty", spoil: () => Buffer.alloc(0), says: /is not a valid saved view/ },
  ];
  test.each(unfit)(
    "a saved view $name is logged and not used, and the watcher replaces it",
    async ({ spoil, says }) => {
      await put({ web: "10.0.1.1" });
      const state = join(folder(), "state");
      await saveView(state);
      const good = await readFile(join(state, "view"));
      await writeFile(join(state, "view"), spoil(good));
      const backend = start(command("--state-dir", state));
      await backend.says(says);
      expect(await rules()).toBe("");
      expect((await ask("/readyz")).status).toBe(503);
      expect((await ask("/livez")).status).toBe(200);
      startWatcher();
      await serves("10.0.1.1");
      await until(
        "the view is replaced",
        async () => (await readFile(join(state, "view"))).length === good.length,
        20_000,
      );
    },
  );

  test("a saved view of another node is not used", async () => {
    await put({ web: "10.0.1.1" });
    const state = join(folder(), "state");
    await saveView(state);
    const backend = start([...command("--state-dir", state), "--node-name", "n2"]);
    await backend.says(
      /"ignoring the saved view".*it is for node n1, not n2|it is for node n1, not n2.*"ignoring the saved view"/,
    );
    expect(await rules()).toBe("");
  });

  /** Saves the view of node n1 in the folder `state`, as a backend does; leaves no rules. */
  async function saveView(state: string): Promise<void> {
    if (savedView === undefined) {
      const watcher = startWatcher();
      const backend = start(command("--state-dir", state));
      await serves("10.0.1.1");
      await Promise.all([backend.stop(), watcher.stop()]);
      await run([process.execPath, main, "--cleanup"]);
      savedView = await readFile(join(state, "view"));
    } else {
      await mkdir(state);
      await writeFile(join(state, "view"), savedView);
    }
  }

  test.each([
    { name: "full", mount: "size=4k", fill: 'dd if=/dev/zero of="$0/fill" bs=4k count=1 2>/dev/null;' },
    { name: "read-only", mount: "size=1m,ro", fill: "" },
  ])(
    "with a disk that is $name, the view is not saved, which is logged once, and rules are installed",
    async ({ mount, fill }) => {
      await put({ web: "10.0.1.1" });
      startWatcher();
      const state = join(folder(), "state");
      await mkdir(state);
      const script = `mount -t tmpfs -o ${mount} none "$0" && ${fill} exec "$@"`;
      const backend = start(["unshare", "--mount", "sh", "-c", script, state, ...command("--state-dir", state)]);
      await serves("10.0.1.1");
      await backend.says(/"view not saved: trying again"/);
      await put({ web: "10.0.1.2" });
      await serves("10.0.1.2");
      expect(backend.said().match(/"view not saved: trying again"/g)).toHaveLength(1);
      expect((await ask("/healthz")).status).toBe(200);
      expect((await ask("/metrics")).body).toMatch(/kpng_backend_view_writes_total\{result="failed"\} [1-9]/);
    },
  );
});
