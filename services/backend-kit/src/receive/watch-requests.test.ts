import type { WatchReq } from "@kpng/model/gen/localv1/api_pb.ts";
import type { SyncMark } from "@kpng/model/wire/local-message.ts";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Acknowledgements, maxOutstanding, WatchRequests } from "./watch-requests.ts";

const stop = new AbortController();
let sent: WatchReq[] = [];
let acks: Acknowledgements;
let requests: WatchRequests;
let revision = 0n;

beforeEach(() => {
  vi.useFakeTimers();
  sent = [];
  revision = 0n;
  acks = new Acknowledgements();
  requests = new WatchRequests({ nodeName: "n1", acks });
  void (async () => {
    for await (const request of requests.send(stop.signal)) sent.push(request);
  })();
});

afterEach(() => {
  vi.useRealTimers();
});

/** Requests one batch, which arrives at once. */
async function receive(mark: Partial<SyncMark> = {}): Promise<void> {
  requests.next();
  await vi.advanceTimersByTimeAsync(0);
  revision += 1n;
  requests.received({
    revision,
    instance: "run",
    takesAcks: true,
    takesCounts: true,
    ackIntervalMs: 0,
    digest: undefined,
    position: undefined,
    traceparents: [],
    tracedNodes: 0,
    triggeredAtMs: [],
    storedAtMs: 0,
    ...mark,
  });
  await vi.advanceTimersByTimeAsync(0);
}

function apply(): void {
  acks.settled({ instance: "run", revision } as Parameters<Acknowledgements["settled"]>[0]);
}

describe("requests for batches", () => {
  test("ask for several batches at once, and for more when half of them have arrived", async () => {
    for (let count = 1; count <= 2 * maxOutstanding; count += 1) await receive();
    const half = maxOutstanding / 2;
    expect(sent.map(({ Count, Received }) => [Count, Received])).toEqual([
      [maxOutstanding, 0n],
      [half, BigInt(half)],
      [half, BigInt(2 * half)],
      [half, BigInt(3 * half)],
    ]);
  });

  test("stop while the caller does not ask for a batch", async () => {
    await receive();
    // These were requested before, so they arrive although the caller does not ask.
    for (let count = 1; count < maxOutstanding; count += 1) {
      revision += 1n;
      requests.received({ revision, instance: "run", takesAcks: false, takesCounts: true } as SyncMark);
    }
    await vi.advanceTimersByTimeAsync(0);
    expect(sent).toHaveLength(1);
    requests.next();
    await vi.advanceTimersByTimeAsync(0);
    expect(sent.at(-1)).toMatchObject({ Count: maxOutstanding, Received: BigInt(maxOutstanding) });
  });

  test("ask for one batch each, without new fields, if the watcher does not support counts", async () => {
    for (let count = 1; count <= 3; count += 1) await receive({ takesCounts: false, takesAcks: false });
    requests.next();
    await vi.advanceTimersByTimeAsync(10_000);
    expect(sent.slice(1).map(({ Count, Received }) => [Count, Received])).toEqual([
      [0, 0n],
      [0, 0n],
      [0, 0n],
    ]);
  });
});

describe("acknowledgements", () => {
  test("wait for the watcher's interval, and then contain the age of each applied revision", async () => {
    for (let count = 1; count <= 4; count += 1) {
      await receive({ ackIntervalMs: 2_000 });
      apply();
      await vi.advanceTimersByTimeAsync(100);
    }
    const acks = () => sent.flatMap(({ Ack }) => Ack ?? []);
    expect(acks().map(({ Applied }) => Applied)).toEqual([1n]);
    await vi.advanceTimersByTimeAsync(3_000);
    expect(acks()).toHaveLength(2);
    const { Applied, AgeMicros = 0n, Earlier = [] } = acks()[1] ?? {};
    expect([...Earlier.map((one) => one.Applied), Applied]).toEqual([2n, 3n, 4n]);
    const ages = Earlier.map((one) => Number(one.AgeMicros - AgeMicros) / 1_000);
    expect(ages).toEqual([200, 100]);
  });

  test("are repeated on the next stream, only to the run of the watcher that the revisions belong to", async () => {
    for (let count = 1; count <= 3; count += 1) {
      await receive({ ackIntervalMs: 2_000 });
      apply();
    }
    new WatchRequests({ nodeName: "n1", acks });
    const ack = acks.takeUnsent("run");
    expect(ack).toMatchObject({ Applied: 3n, Earlier: [] });
    expect(acks.takeUnsent("another")).toBeUndefined();
  });
});

describe("the receipt of a batch", () => {
  test("is confirmed by the acknowledgement alone if the batch is applied soon", async () => {
    await receive();
    apply();
    await vi.advanceTimersByTimeAsync(10_000);
    expect(sent.map(({ Ack }) => Ack?.Applied)).toEqual([undefined, 1n]);
  });

  test("is confirmed by a request even if the batch before it was acknowledged meanwhile", async () => {
    await receive();
    apply();
    await vi.advanceTimersByTimeAsync(10);
    await receive();
    apply();
    await receive();
    await vi.advanceTimersByTimeAsync(10_000);
    expect(sent.at(-1)).toMatchObject({ Received: 3n });
    expect(sent.flatMap(({ Ack }) => Ack?.Applied ?? [])).toEqual([1n, 2n]);
  });

  test("is confirmed by a request if applying the batch takes long, after an acknowledgement that none is applied", async () => {
    await receive();
    await vi.advanceTimersByTimeAsync(900);
    expect(sent).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(200);
    expect(sent[1]?.Ack).toMatchObject({ Applied: 0n, Failed: 0n });
    expect(sent[2]).toMatchObject({ Count: 1, Received: 1n });
    await vi.advanceTimersByTimeAsync(10_000);
    expect(sent).toHaveLength(3);
    await receive();
    await vi.advanceTimersByTimeAsync(2_000);
    expect(sent.slice(3).map(({ Ack, Received }) => [Ack, Received])).toEqual([[undefined, 2n]]);
  });
});

test("the first request of a stream tells of a failed attempt on an earlier one, and no other request does", async () => {
  acks.failed({ instance: "earlier run", revision: 7n } as Parameters<Acknowledgements["failed"]>[0], "nft refused", {
    receivedAtMs: 0,
    startedAtMs: 0,
    renderedAtMs: 0,
    endedAtMs: 0,
  });
  requests = new WatchRequests({ nodeName: "n1", acks });
  sent = [];
  void (async () => {
    for await (const request of requests.send(stop.signal)) sent.push(request);
  })();
  for (let count = 1; count <= maxOutstanding; count += 1) await receive();
  await vi.advanceTimersByTimeAsync(2_000);
  expect(sent.map(({ LastFailure }) => LastFailure?.Error)).toEqual(["nft refused", undefined, undefined]);
  // An acknowledgement would end the failure.
  expect(sent.map(({ Ack }) => Ack)).toEqual([undefined, undefined, undefined]);
  acks.settled({ instance: "run", revision: 1n } as Parameters<Acknowledgements["settled"]>[0]);
  expect(acks.lastFailure()).toBeUndefined();
});
