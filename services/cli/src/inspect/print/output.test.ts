import { create } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { ChangeSchema } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import { NodeSchema, Protocol, ServiceSchema, TrafficPolicy } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { ApplyState } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { expect, onTestFinished, test, vi } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { changeTable } from "../changes.ts";
import { endpointTable } from "../endpoints.ts";
import { serviceTable } from "../services.ts";
import {
  loadYaml,
  type OutputOptions,
  parseOutputFormat,
  printMessage,
  printRows,
  readOutputOptions,
  watchPrinter,
} from "./output.ts";
import { terminalText } from "./text.ts";

const formatYaml = await loadYaml();
const web = create(ServiceSchema, { namespace: "default", name: "web", type: "ClusterIP", clusterIps: ["10.96.0.1"] });
const dns = create(ServiceSchema, { namespace: "kube-system", name: "dns", isHeadless: true });

/** Returns what `print` writes in this format, sorted by this field. */
function written(format: string, print: (output: OutputOptions) => void, sortBy?: string): string {
  let text = "";
  const write = (part: string): void => {
    text += terminalText(part);
  };
  print({ format: parseOutputFormat(format), formatYaml: format === "yaml" ? formatYaml : undefined, sortBy, write });
  return text;
}

const printed = (format: string, rows = [web, dns], sortBy?: string): string =>
  written(format, (output) => printRows(serviceTable, rows, output), sortBy);

test("a table has columns as wide as their widest cell, and a dash for an empty cell", () => {
  expect(printed("table")).toBe(
    [
      "NAMESPACE     NAME   TYPE        CLUSTER-IP   EXTERNAL-IP   PORTS   READY",
      "default       web    ClusterIP   10.96.0.1    -             -       0/0",
      "kube-system   dns    headless    -            -             -       0/0",
      "",
    ].join("\n"),
  );
  expect(printed("wide").split("\n")[0]).toContain("POLICY");
  expect(printed("table", [])).toBe("");
});

test("json prints one array, yaml one document per row, with every field", () => {
  const expected = { name: "web", clusterIps: ["10.96.0.1"], sourceRanges: [], affinitySeconds: 0 };
  expect(JSON.parse(printed("json")).items[0]).toMatchObject(expected);
  expect(JSON.parse(printed("json", []))).toEqual({ kind: "List", items: [] });
  expect(parseAllDocuments(printed("yaml")).map((document) => document.toJS().name)).toEqual(["web", "dns"]);
  expect(parse(printed("yaml", [web]))).toMatchObject(expected);
});

test("a watch prints the event of each row, the headers once, and aligned columns", () => {
  const text = written("table", (output) => {
    const print = watchPrinter(serviceTable, output);
    print({ rows: [dns], deleted: [] });
    print({ rows: [web], deleted: ["default/old"] });
  });
  const [headers, first, second, third] = text.split("\n");
  expect(headers).toMatch(/^EVENT +NAMESPACE/);
  expect(second?.indexOf("web")).toBe(first?.indexOf("dns"));
  expect(third).toBe("delete   default/old");
});

test("a watch prints puts and deletes as JSON objects", () => {
  const text = written("json", (output) =>
    watchPrinter(serviceTable, output)({ rows: [web], deleted: ["default/old"] }),
  );
  const lines = text.trim().split("\n");
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    { event: "put", row: { name: "web" } },
    { event: "delete", key: "default/old" },
  ]);
});

test("no format passes escape sequences and bidirectional marks on to a terminal", async () => {
  const name = "web\u001b[2J\u009b1m\u202eexe\u2028";
  const hostile = create(ServiceSchema, { namespace: "default", name });
  const stdout = vi.spyOn(process.stdout, "write").mockReturnValue(true);
  onTestFinished(() => stdout.mockRestore());
  for (const format of ["table", "wide", "json", "yaml", "name"]) {
    const output = await readOutputOptions({ output: format });
    printRows(serviceTable, [hostile], output);
    watchPrinter(serviceTable, output)({ rows: [hostile], deleted: [`default/${name}`] });
  }
  const text = stdout.mock.calls.join("");
  expect(text).toContain("web");
  for (const unsafe of ["\u001b", "\u009b", "\u202e", "\u2028"]) expect(text).not.toContain(unsafe);
  expect(terminalText(`a\tb\n${name}`)).toBe("a\tb\nweb [2J 1m exe ");
});

test("counts are numbers, and enums are words: those of Kubernetes in its spelling, ours in lower case", () => {
  const service = create(ServiceSchema, {
    ports: [{ port: 80, protocol: Protocol.TCP }],
    internalTrafficPolicy: TrafficPolicy.LOCAL,
  });
  expect(JSON.parse(printed("json", [service])).items[0]).toMatchObject({
    ports: [{ port: 80, protocol: "TCP" }],
    internalTrafficPolicy: "Local",
    externalTrafficPolicy: "",
  });
  const node = create(NodeSchema, { state: ApplyState.FAILING, appliedRevision: 7n });
  const text = written("json", (output) => printMessage(NodeSchema, node, output));
  expect(JSON.parse(text)).toMatchObject({ state: "failing", appliedRevision: 7 });
});

test("names can be passed to the next command, and rows without names say so", () => {
  expect(printed("name")).toBe("service/default/web\nservice/kube-system/dns\n");
  expect(() => written("name", (output) => printRows(endpointTable, [], output))).toThrow("no names");
});

test("rows are sorted by a field of their JSON, and an unknown field is refused", () => {
  const sorted = (sortBy: string): string => printed("name", [web, dns], sortBy);
  expect(sorted(".isHeadless")).toBe(printed("name"));
  expect(sorted(".name").split("\n")[0]).toBe("service/kube-system/dns");
  expect(sorted("{.clusterIps[0]}").split("\n")[0]).toBe("service/kube-system/dns");
  expect(() => sorted(".nothing")).toThrow('--sort-by ".nothing": no row has this field');
});

test("durations are sorted by value", () => {
  const change = (revision: bigint, ms: number) =>
    create(ChangeSchema, { revision, stages: { total: { max: durationFromMs(ms) } } });
  const rows = [change(1n, 12_000), change(2n, 3_000), create(ChangeSchema, { revision: 3n })];
  const text = written("json", (output) => printRows(changeTable, rows, output), ".stages.total.max");
  expect(JSON.parse(text).items.map((item: { revision: number }) => item.revision)).toEqual([3, 2, 1]);
});
