import { expect, test } from "vitest";
import { describePackets } from "../../../../test/kernel/describe-packets.ts";
import { Laboratory } from "../laboratory.ts";
import { serveSctp } from "./sctp.ts";

describePackets("responders of SCTP", () => {
  test("one that ends before it is ready is an error with its own words", async () => {
    await using laboratory = await Laboratory.open();
    // Pods without addresses, to which nothing can be bound.
    for (const name of ["a", "b", "c", "d"]) await laboratory.add(name);
    await expect(serveSctp(laboratory, [8080])).rejects.toThrow(
      /python3: exit status 1 before it was ready: [\s\S]*OSError: /,
    );
  });
});
