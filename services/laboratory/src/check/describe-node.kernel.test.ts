import { existsSync } from "node:fs";
import { expect, test } from "vitest";
import { describeWhere } from "../../../../test/cluster/describe-where.ts";
import { whyNoPackets } from "../../../../test/kernel/describe-packets.ts";
import { Laboratory } from "../laboratory.ts";
import { whyNotSeen } from "./describe-node.ts";

const [tool, file] = ["/usr/sbin/ipset", "/sys/module/ip_set"];
const isHere = existsSync(tool) && existsSync(file);

describeWhere("a description of a node", whyNoPackets ?? (isHere ? undefined : `no ${tool} or ${file}`), () => {
  test("ipsets that the kernel has cannot be seen without their tool", async () => {
    await using laboratory = await Laboratory.open();
    await laboratory.add("n1");
    expect(await whyNotSeen({ laboratory })).toBeUndefined();
    await laboratory.run("n1", ["mount", "--bind", "/dev/null", tool]);
    expect(await whyNotSeen({ laboratory })).toBe("ipset is not installed, so ipsets cannot be seen");
  });
});
