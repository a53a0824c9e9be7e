import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { describe, expect, test } from "vitest";
import { findCgroup } from "./datapath.ts";

describe("findCgroup", () => {
  const only =
    (...folders: readonly string[]) =>
    (folder: string): boolean =>
      folders.includes(folder);
  const hybrid = "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\ncgroup2 /nowhere/unified cgroup2 rw 0 0\n";

  test("the root cgroup is where version 2 is mounted, also beside version 1", () => {
    expect(findCgroup(undefined, hybrid, only("/nowhere/unified"))).toBe("/nowhere/unified");
  });

  test("a folder with controllers of version 1 stands for version 2 beside them", () => {
    expect(findCgroup("/nowhere", "", only("/nowhere/unified"))).toBe("/nowhere/unified");
    expect(findCgroup("/nowhere", "", only("/nowhere"))).toBe("/nowhere");
  });

  test("a machine without version 2 is rejected, with what to do", () => {
    const onlyVersion1 = "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\n";
    expect(() => findCgroup(undefined, onlyVersion1)).toThrow(
      /\[BPF_UNSUPPORTED\].*unified_cgroup_hierarchy=1.*--cgroup/,
    );
    expect(() => findCgroup("/tmp", onlyVersion1)).toThrow(
      /\[BPF_UNSUPPORTED\] \/tmp is not .*unified_cgroup_hierarchy=1/,
    );
  });

  test("the cgroup of a container is not taken for the node's, unless it is asked for", () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, "cgroup.type"), "domain\n");
    const mounts = `cgroup2 ${folder} cgroup2 rw 0 0\n`;
    expect(() => findCgroup(undefined, mounts, only(folder))).toThrow(/\[BPF_UNSUPPORTED\].*of this container/);
    expect(findCgroup(folder, mounts, only(folder))).toBe(folder);
  });
});
