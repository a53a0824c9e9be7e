import { expect, test } from "vitest";
import { ebpfBackend } from "./backend.ts";

test("--service-traffic is refused, because conntrack does not see connections made at sockets", () => {
  const context = { serviceProxyName: "" } as Parameters<typeof ebpfBackend.makeTask>[1];
  expect(() => ebpfBackend.makeTask({ serviceTraffic: true }, context)).toThrow(
    /\[BAD_OPTION\] --service-traffic is not supported by kpng-ebpf: .*conntrack/,
  );
});
