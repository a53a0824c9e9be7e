import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type ServiceTrafficSchema, TrafficReportSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { expect, test } from "vitest";
import { ReportedTraffic, trafficFields, trafficIntervalFor } from "./reported-traffic.ts";

const read = (Services: MessageInitShape<typeof ServiceTrafficSchema>[]): ReportedTraffic =>
  new ReportedTraffic(create(TrafficReportSchema, { Services }), (key) => key.startsWith("ns/"));

test("names of Services that the cluster does not have count as others, and a repeated name counts once", () => {
  const reported = read([
    { Service: "ns/web", Connections: 3n },
    { Service: "ns/web", Connections: 4n },
    { Service: "made/up", Connections: 5n },
    { Service: "x".repeat(60_000), Connections: 6n },
    { Service: "", Connections: 7n },
  ]);
  expect(reported.services).toEqual(["ns/web", ""]);
  expect([reported.values[0], reported.values[trafficFields.length]]).toEqual([3, 18]);
});

test("numbers beyond those that can be added up are limited", () => {
  const most = 2n ** 64n - 1n;
  const { values } = read([{ Service: "ns/web", Connections: most, BytesPerSecond: most }]);
  expect([values[0], values[6]]).toEqual([Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER]);
});

test("all nodes together report a hundred times a second", () => {
  expect([1, 200, 5_000].map(trafficIntervalFor)).toEqual([2_000, 2_000, 50_000]);
});
