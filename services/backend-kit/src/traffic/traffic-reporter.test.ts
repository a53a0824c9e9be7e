import { create, toBinary } from "@bufbuild/protobuf";
import { WatchReqSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { expect, test } from "vitest";
import { otherServices, type ServiceCounts } from "./service-counts.ts";
import { TrafficReporter } from "./traffic-reporter.ts";

function counts(connections: number, bytesToClients: number): ServiceCounts {
  return { connections, packetsFromClients: 0, bytesFromClients: 0, packetsToClients: 2 * connections, bytesToClients };
}

test("a report has the counters of each Service, and its rates since the previous report", () => {
  const all = new Map([["a/web", counts(1, 100)]]);
  const reporter = new TrafficReporter(() => all);
  expect(reporter.next(true, 0)?.Services).toMatchObject([
    { Service: "a/web", Connections: 1n, PacketsToClients: 2n, BytesToClients: 100n, BytesPerSecond: 0n },
  ]);
  all.set("a/web", counts(6, 1_100));
  expect(reporter.next(false, 10_000)?.Services).toMatchObject([
    { Connections: 6n, BytesToClients: 1_100n, MilliConnectionsPerSecond: 500n, BytesPerSecond: 100n },
  ]);
  // The counters began again.
  all.set("a/web", counts(1, 10));
  expect(reporter.next(false, 20_000)?.Services).toMatchObject([{ Connections: 1n, BytesPerSecond: 0n }]);
});

test("counters that are older than the process have no rate in the first report", () => {
  let all: ReadonlyMap<string, ServiceCounts> | undefined;
  const reporter = new TrafficReporter(() => all);
  expect(reporter.next(true, 0)).toBeUndefined();
  all = new Map([["a/web", counts(1_000, 0)]]);
  expect(reporter.next(false, 10_000)?.Services).toMatchObject([
    { Connections: 1_000n, MilliConnectionsPerSecond: 0n },
  ]);
});

test("a watcher that knows that there is no traffic gets no report", () => {
  const all = new Map([["a/web", counts(1, 100)]]);
  const reporter = new TrafficReporter(() => all);
  expect(reporter.next(true, 0)).toBeDefined();
  expect(reporter.next(false, 10_000)).toBeUndefined();
  // Another watcher knows nothing.
  expect(reporter.next(true, 20_000)?.Services).toHaveLength(1);
  all.set("a/web", counts(2, 200));
  expect(reporter.next(false, 30_000)).toBeDefined();
  // The rates are 0 again.
  expect(reporter.next(false, 40_000)?.Services).toMatchObject([{ BytesPerSecond: 0n }]);
  expect(reporter.next(false, 50_000)).toBeUndefined();
});

test("a report names the 100 Services with the most bytes since the previous one, and sums up all others", () => {
  const all = new Map<string, ServiceCounts>([[otherServices, counts(7, 7)]]);
  for (let index = 0; index < 1_000; index += 1) all.set(`a/s${index}`, counts(1, 1_000));
  const reporter = new TrafficReporter(() => all);
  reporter.next(true, 0);
  all.set("a/s999", counts(2, 2_000));
  const services = reporter.next(false, 1_000)?.Services ?? [];
  expect(services).toHaveLength(101);
  expect(services[0]).toMatchObject({ Service: "a/s999", BytesPerSecond: 1_000n });
  expect(services[100]).toMatchObject({ Service: "", Connections: 907n, BytesToClients: 900_007n });
});

test.each(["s", "\u4e2d"])("a report about names of many letters %s fits into a request", (letter) => {
  const most = 2 ** 53;
  const all = new Map<string, ServiceCounts>();
  for (let index = 0; index < 1_000; index += 1) {
    const name = `${index}`.padStart(253, letter);
    all.set(`${letter.repeat(253)}/${name}`, {
      ...counts(most, most),
      packetsFromClients: most,
      bytesFromClients: most,
    });
  }
  const report = new TrafficReporter(() => all).next(true, 0);
  expect(report?.Services.at(-1)?.Connections).toBeGreaterThan(most);
  const request = create(WatchReqSchema, report === undefined ? {} : { Traffic: report });
  expect(toBinary(WatchReqSchema, request).length).toBeLessThan(64 * 1024);
});
