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
  test.each(["redirect", "address"])(
    "refuses and breaks no connection to a cluster IP with --entry %s",
    {
      timeout: 240_000,
    },
    async (entry) => {
      await laboratory.add(entry);
      const driver = resolve(import.meta.dirname, "userspace-handover.ts");
      // `run` has a time limit that a busy machine may exceed.
      const child = laboratory.start(entry, [process.execPath, driver, laboratory.folder, entry]);
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
