import type { WatchReq } from "@kpng/model/gen/localv1/api_pb.ts";
import type { SyncMark } from "@kpng/model/wire/decode-local.ts";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Acknowledgements } from "./acknowledgements.ts";
import { maxAhead, Requests } from "./requests.ts";

const stop = new AbortController();
let sent: WatchReq[] = [];
let acks: Acknowledgements;
let requests: Requests;
let revision = 0n;

beforeEach(() => {
  vi.useFakeTimers();
  sent = [];
  revision = 0n;
  acks = new Acknowledgements();
  requests = new Requests({ transport: undefined as never, nodeName: "n1", acks });
  void (async () => {
    for await (const request of requests.send(stop.signal)) sent.push(request);
  })();
});

afterEach(() => {
  vi.useRealTimers();
});

/** One batch is wanted and comes. */
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

describe("what a stream asks for", () => {
  test("is several batches at once, and more when half of them have come", async () => {
    for (let count = 1; count <= 2 * maxAhead; count += 1) await receive();
    const half = maxAhead / 2;
    expect(sent.map(({ Count, Received }) => [Count, Received])).toEqual([
      [maxAhead, 0n],
      [half, BigInt(half)],
      [half, BigInt(2 * half)],
      [half, BigInt(3 * half)],
    ]);
  });

  test("is never more than a reader wants who has stopped", async () => {
    await receive();
    // They were asked for before and come without the reader.
    for (let count = 1; count < maxAhead; count += 1) {
      revision += 1n;
      requests.received({ revision, instance: "run", takesAcks: false, takesCounts: true } as SyncMark);
    }
    await vi.advanceTimersByTimeAsync(0);
    expect(sent).toHaveLength(1);
    requests.next();
    await vi.advanceTimersByTimeAsync(0);
    expect(sent.at(-1)).toMatchObject({ Count: maxAhead, Received: BigInt(maxAhead) });
  });

  test("is one for each batch from a watcher that knows nothing else, without a word that it does not know", async () => {
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
  test("wait for the interval that the watcher names, and then tell when each was applied", async () => {
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

  test("of a run of the watcher that is over are not told to the next one", async () => {
    for (let count = 1; count <= 3; count += 1) {
      await receive({ ackIntervalMs: 2_000 });
      apply();
    }
    acks.repeat();
    const ack = acks.take("run");
    expect(ack).toMatchObject({ Applied: 3n, Earlier: [] });
    expect(acks.take("another")).toBeUndefined();
  });
});

describe("what the watcher knows of a batch", () => {
  test("is that it is applied, by the acknowledgement alone", async () => {
    await receive();
    apply();
    await vi.advanceTimersByTimeAsync(10_000);
    expect(sent.map(({ Ack }) => Ack?.Applied)).toEqual([undefined, 1n]);
  });

  test("is that it was received, also if what came before it was applied meanwhile", async () => {
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

  test("is that it was received, where it takes long to apply it", async () => {
    await receive();
    await vi.advanceTimersByTimeAsync(900);
    expect(sent).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(200);
    expect(sent[1]).toMatchObject({ Count: 1, Received: 1n });
    await vi.advanceTimersByTimeAsync(10_000);
    expect(sent).toHaveLength(2);
  });
});
