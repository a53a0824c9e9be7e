import { once } from "node:events";
import { resolve } from "node:path";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { describePackets } from "./describe-packets.ts";

describePackets("a restart of kpng-userspace by SIGUSR2", () => {
  let laboratory: Laboratory;
  beforeAll(async () => {
    laboratory = await Laboratory.open();
  });
  afterAll(() => laboratory?.close());

  // test/process/userspace-handover.test.ts has --entry map.
  test.each([
    ["redirect", 0],
    ["redirect", 2],
    ["address", 0],
    ["address", 2],
  ])(
    "refuses and breaks no connection to a cluster IP with --entry %s --workers %d",
    {
      timeout: 240_000,
    },
    async (entry, workers) => {
      const name = `${entry}-${workers}`;
      await laboratory.add(name);
      const driver = resolve(import.meta.dirname, "userspace-handover.ts");
      // `run` has a time limit that a busy machine may exceed.
      const child = laboratory.start(name, [process.execPath, driver, laboratory.folder, entry, String(workers)]);
      const ended = once(child, "close");
      const [text, errors] = await Promise.all([child.stdout, child.stderr].map((stream) => stream?.toArray()));
      await ended;
      const { answered, ...seen } = JSON.parse((text ?? []).join("") || "{}");
      if (answered === undefined) throw new Error((errors ?? []).join(""));
      expect(seen).toEqual({ failures: [], old: "after", status: 0, left: "" });
      expect(answered).toBeGreaterThan(60);
    },
  );
});
