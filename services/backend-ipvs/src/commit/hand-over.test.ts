import { createLog } from "@kpng/process/log.ts";
import { expect, test } from "vitest";
import { RunTool } from "../read/run-tool.ts";
import { objectNames } from "../render/object-names.ts";
import { useTools } from "../testing/use-tools.ts";
import { handOver } from "./hand-over.ts";

const options = { names: objectNames(""), runTool: new RunTool(30_000), log: createLog("error", () => undefined) };
const ipset = saving("create KPNGIPVS-SERVERS hash:ip,port family inet", "create KPNGIPVS-RECORD hash:ip family inet");
const ours = "4: kpng-ipvs0: <BROADCAST,NOARP,UP> mtu 1500";
const handedOver = 'add KPNGIPVS-RECORD 0.0.0.1 comment "handed-over"';
const recordCreation = "create KPNGIPVS-RECORD hash:ip family inet maxelem 1048576 comment";

function saving(...lines: readonly string[]): string {
  return `if [ "$1" = save ]; then cat << 'E'\n${lines.join("\n")}\nE\nfi`;
}

function linking(...lines: readonly string[]): string {
  return `case "$*" in *link*) echo "${lines.join("\n")}" ;; esac`;
}

test.each([
  { name: "all addresses", theirs: "", adds: ["link add kube-ipvs0 type dummy", "10.96.0.1/32", "fd00:10:96::1/128"] },
  { name: "the rest after a run that ended early", theirs: "10.96.0.1/32", adds: ["fd00:10:96::1/128"] },
])(
  "$name: kube-proxy's interface has them before ours goes, and the hand-over is recorded",
  async ({ theirs, adds }) => {
    const links = theirs === "" ? "" : "5: kube-ipvs0: <BROADCAST,NOARP> mtu 1500";
    const ip = `case "$*" in
*link*) echo "${ours}\n${links}" ;;
*address*) echo "4: kpng-ipvs0    inet 10.96.0.1/32 scope host kpng-ipvs0
4: kpng-ipvs0    inet6 fd00:10:96::1/128 scope global deprecated
4: kpng-ipvs0    inet6 fe80::1/64 scope link
5: kube-ipvs0    inet ${theirs}" ;; esac`;
    const tools = useTools({ ip, ipset });
    await handOver(options);
    expect(tools.readInputs()).toEqual([
      ...adds.map((add) => (add.startsWith("link") ? add : `address add ${add} dev kube-ipvs0`)),
      handedOver,
      "link delete kpng-ipvs0",
    ]);
  },
);

const servers = "create KPNGIPVS-SERVERS hash:ip,port family inet";
const moved = ["link add kube-ipvs0 type dummy", "link delete kpng-ipvs0"];

test.each([
  {
    what: "without the ipset of the record, it is created",
    links: [ours],
    sets: [servers],
    inputs: [moved[0], recordCreation, handedOver, moved[1]],
    says: "handed over to kube-proxy: the next cleanup leaves virtual servers at addresses",
  },
  {
    what: "without our interface, the virtual servers are recorded as handed over",
    links: [],
    sets: [servers],
    inputs: [recordCreation, handedOver],
    says: "handed over to kube-proxy: the next cleanup leaves virtual servers at addresses",
  },
  {
    what: "without our ipsets, the log says that nothing is recorded",
    links: [ours],
    sets: [],
    inputs: moved,
    says: "addresses handed over to kube-proxy: no ipset has our virtual servers, so every cleanup leaves all",
  },
  {
    what: "a second run says that nothing is left",
    links: [],
    sets: [servers, recordCreation, handedOver],
    inputs: [],
    says: "nothing left to hand over: an earlier run has done it",
  },
  {
    what: "without our interface and ipsets, there is nothing to hand over",
    links: [],
    sets: [],
    inputs: [],
    says: "nothing to hand over: kpng-ipvs has neither addresses nor ipsets on this node",
  },
])("$what", async ({ links, sets, inputs, says }) => {
  const tools = useTools({ ip: linking(...links), ipset: saving(...sets) });
  const lines: string[] = [];
  await handOver({ ...options, log: createLog("info", (line) => void lines.push(line)) });
  expect(tools.readInputs()).toEqual(inputs);
  expect(lines.map((line) => JSON.parse(line).msg)).toEqual([says]);
});

test("nothing is changed if the ipsets cannot be read", async () => {
  const tools = useTools({ ip: linking(ours), ipset: "exit 1" });
  await expect(handOver(options)).rejects.toMatchObject({ code: "READ_FAILED" });
  expect(tools.readInputs()).toEqual([]);
});
