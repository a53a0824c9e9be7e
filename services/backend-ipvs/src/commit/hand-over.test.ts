import { createLog } from "@kpng/process/log.ts";
import { expect, test } from "vitest";
import { RunTool } from "../read/run-tool.ts";
import { objectNames } from "../render/object-names.ts";
import { useTools } from "../testing/use-tools.ts";
import { handOver } from "./hand-over.ts";

const options = { names: objectNames(""), runTool: new RunTool(30_000), log: createLog("error", () => undefined) };
const ipset = '[ "$1" != save ] || echo "create KPNGIPVS-RECORD hash:ip family inet comment"';

test.each([
  { name: "all addresses", theirs: "", adds: ["link add kube-ipvs0 type dummy", "10.96.0.1/32", "fd00:10:96::1/128"] },
  { name: "the rest after a run that ended early", theirs: "10.96.0.1/32", adds: ["fd00:10:96::1/128"] },
])(
  "$name: kube-proxy's interface has them before ours goes, and the hand-over is recorded",
  async ({ theirs, adds }) => {
    const links = theirs === "" ? "" : "5: kube-ipvs0: <BROADCAST,NOARP> mtu 1500";
    const ip = `case "$*" in
*link*) echo "4: kpng-ipvs0: <BROADCAST,NOARP,UP> mtu 1500\n${links}" ;;
*address*) echo "4: kpng-ipvs0    inet 10.96.0.1/32 scope host kpng-ipvs0
4: kpng-ipvs0    inet6 fd00:10:96::1/128 scope global deprecated
4: kpng-ipvs0    inet6 fe80::1/64 scope link
5: kube-ipvs0    inet ${theirs}" ;; esac`;
    const tools = useTools({ ip, ipset });
    await handOver(options);
    expect(tools.readInputs()).toEqual([
      ...adds.map((add) => (add.startsWith("link") ? add : `address add ${add} dev kube-ipvs0`)),
      'add KPNGIPVS-RECORD 0.0.0.1 comment "handed-over"',
      "link delete kpng-ipvs0",
    ]);
  },
);

test("without our interface, nothing is handed over", async () => {
  const tools = useTools({ ip: 'echo "5: kube-ipvs0: <BROADCAST,NOARP> mtu 1500"', ipset });
  await handOver(options);
  expect(tools.readInputs()).toEqual([]);
});
