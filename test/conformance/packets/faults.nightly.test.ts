import { expect, test, vi } from "vitest";
import { describeWhere } from "../../cluster/describe-where.ts";
import { ownProxies } from "../../kernel/backend/kpng-proxy.ts";
import { whyNoPackets } from "../../kernel/describe-packets.ts";
import { faults } from "./faults.ts";
import { runPackets } from "./run-packets.ts";

vi.setConfig({ testTimeout: 120_000 });

const program = [process.execPath, "test/conformance/packets/faulty-proxy.ts"];

describeWhere("kpng conformance packets", whyNoPackets, () => {
  test.for(Object.entries(faults))("a proxy that %s is found", async ([name, { cases }]) => {
    const { command, exceptions } = ownProxies.nft;
    const faulty = {
      command: [...program, name, ...command.slice(2)],
      cleanup: [...program, `'${name}'`, "--cleanup"].join(" "),
      loseRules: "true",
      exceptions,
    };
    const { code, results, stderr } = await runPackets(faulty, [cases], ["--timeout", "5s"]);
    const failed = [...results.values()].filter(({ kind }) => kind === "failed");
    expect({ code, stderr }).toEqual({ code: 1, stderr: "" });
    expect(failed.length, JSON.stringify([...results.values()])).toBeGreaterThan(0);
    // The state was applied: packets found the fault, and not a proxy that does not start.
    expect(failed[0]?.reason).not.toMatch(/not synced|has ended/);
  });
});
