import { silence, startFakeWatcher } from "@kpng/backend-kit/testing/fake-watcher.ts";
import { pack, putService, reset, sync } from "@kpng/backend-kit/testing/ops.ts";
import type { OpItem } from "@kpng/model/gen/localv1/api_pb.ts";
import { expect, test } from "vitest";
import { usePrograms } from "./programs.ts";

// Watchers that try to exhaust the memory of a backend with a small heap.
const programs = usePrograms();

function* endless(hasSync: boolean): Generator<OpItem> {
  yield reset;
  for (let batch = 0; ; batch++) {
    yield pack(Array.from({ length: 5_000 }, (_, index) => putService(`a/s${batch * 5_000 + index}`)));
    if (hasSync) yield sync(BigInt(batch + 1), "i");
  }
}

test.each([
  { name: "operations without end and without a sync marker do", hasSync: false },
  { name: "a view that grows without end does", hasSync: true },
])("$name not end a backend, which follows the next watcher", { timeout: 180_000 }, async ({ hasSync }) => {
  await using watcher = await startFakeWatcher((request) => {
    if (request.index > 0) return silence(request);
    return request.stream < 2 ? endless(hasSync) : [reset, putService("a/good"), sync(1n, "j")];
  });
  const args = ["--api", watcher.address, "--node-name", "n1", "--error-delay", "10ms"];
  const program = programs.start("services/backend-json/src/main.ts", args, {
    // Without a small semi-space, the memory limit would be twice the old space, where views are.
    NODE_OPTIONS: "--max-old-space-size=128 --max-semi-space-size=4",
  });
  const isServed = expect.poll(() => program.stdout(), { timeout: 150_000 }).toContain('"Name":"good"');
  // A backend that ends fails the test at once.
  await Promise.race([isServed, program.ended]);
  expect(program.stdout(), program.stderr()).toContain('"Name":"good"');
  expect(program.stderr()).toContain("[VIEW_TOO_LARGE]");
});
