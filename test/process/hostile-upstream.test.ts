import { createServer } from "node:http2";
import { create } from "@bufbuild/protobuf";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { Sets } from "@kpng/model/gen/globalv1/api_pb.ts";
import { type OpItem, OpItemSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { encodeServiceInfo } from "@kpng/model/wire/global-message.ts";
import { service } from "@kpng/source/testing/build.ts";
import { expect, test } from "vitest";
import { freePort, listen } from "../cluster/ports.ts";
import { mebibytes, usageOf } from "../scale/proc.ts";
import { kpngMain, usePrograms } from "./programs.ts";

const programs = usePrograms();

const reset = create(OpItemSchema, { Op: { case: "Reset", value: {} } });
const sync = create(OpItemSchema, { Op: { case: "Sync", value: {} } });

function put(name: string): OpItem {
  const Ref = { Set: SetName.GlobalServiceInfos, Path: `ns|${name}||` };
  // Large, so that the limit is reached soon.
  const annotations = { text: name.padEnd(4_000) };
  const value = { Ref, Bytes: encodeServiceInfo(service({ name, annotations }), true) };
  return create(OpItemSchema, { Op: { case: "Set", value } });
}

/** Starts an upstream watcher that sends batches of Services without end, each with a sync marker. */
async function startUpstream() {
  const server = createServer(
    connectNodeAdapter({
      routes: (router) =>
        router.service(Sets, {
          async *watch() {
            yield reset;
            for (let index = 0; index < 10_000_000; index += 1) {
              yield put(`s${index}`);
              if (index === 0) yield sync;
            }
          },
        }),
    }),
  );
  return { address: `127.0.0.1:${await listen(server)}`, stop: () => server.close() };
}

test("a batch without an end does not end a relay, which serves the state before it", {
  timeout: 180_000,
}, async () => {
  const upstream = await startUpstream();
  const port = await freePort();
  const args = ["api", "--api", upstream.address, "to-api", "--listen", `tcp://127.0.0.1:${port}`];
  const program = programs.start(kpngMain, args, { NODE_OPTIONS: "--max-old-space-size=128" });
  const refusals = (): number => program.stderr().split("[STATE_TOO_LARGE]").length - 1;
  const isRefused = expect.poll(refusals, { timeout: 150_000, interval: 200 }).toBeGreaterThanOrEqual(2);
  // A relay that ends fails the test at once.
  await Promise.race([isRefused, program.ended]);
  expect(refusals(), program.stderr()).toBeGreaterThanOrEqual(2);
  process.stdout.write(
    `RSS ${mebibytes(usageOf(program.pid).rssBytes)}, peak ${mebibytes(usageOf(program.pid).peakRssBytes)}\n`,
  );
  const query = ["get", "services", "--api", `127.0.0.1:${port}`, "-o", "name"];
  const get = programs.start(kpngMain, query);
  expect(await get.ended, get.stderr()).toBe(0);
  expect(get.stdout()).toContain("service/ns/s0");
  upstream.stop();
});
