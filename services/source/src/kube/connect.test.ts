import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { expect, onTestFinished, test, vi } from "vitest";
import { listen } from "../../../../test/cluster/ports.ts";
import { connectKube, loadConfig } from "./connect.ts";
import { readBody, readJson } from "./connection.ts";

const request = { verb: "watch", resource: "services" } as const;

test("a response that is closed before its end neither ends the process nor closes the next one's connection", async () => {
  const server = createServer((incoming, response) => {
    if (incoming.url === "/expired") response.end("gone\n");
    else setTimeout(() => response.end("{}"), 5);
  });
  let connectionCount = 0;
  server.on("connection", () => connectionCount++);
  const connection = connectKube({ server: `http://127.0.0.1:${await listen(server)}` });
  const { signal } = new AbortController();
  try {
    for (let round = 0; round < 50; round += 1) {
      // As a watch does that ends with an ERROR event: it does not read the end.
      for await (const chunk of readBody(connection, { request, path: "/expired", silenceMs: 10_000 }, signal)) {
        expect(Buffer.isBuffer(chunk)).toBe(true);
        if (chunk.toString() === "gone\n") break;
      }
      const next = await readJson(connection, { request, path: "/list", silenceMs: 10_000 }, signal);
      expect(next).toEqual({ kind: "object", object: {} });
    }
    const before = connectionCount;
    await readJson(connection, { request, path: "/list", silenceMs: 10_000 }, signal);
    expect(connectionCount, "pages of a list share a connection").toBe(before);
  } finally {
    connection.close();
    server.close();
  }
});

/** Writes a kubeconfig with one user into a new folder. */
function writeKubeconfig(user: unknown, server = "https://192.0.2.1:6443"): string {
  const config = {
    clusters: [{ name: "c", cluster: { server } }],
    users: [{ name: "u", user }],
    contexts: [{ name: "x", context: { cluster: "c", user: "u" } }],
    "current-context": "x",
  };
  const path = join(temporaryFolder(), "config");
  writeFileSync(path, JSON.stringify(config));
  return path;
}

/** Server and credentials of the requests with these options. */
async function sent(options: Parameters<typeof loadConfig>[0]) {
  const request = { headers: {} as Record<string, string> };
  const config = loadConfig(options);
  await config.applyToHTTPSOptions(request);
  return [config.getCurrentCluster()?.server, request.headers.Authorization];
}

test("the tokenFile of a user is relative to the kubeconfig", async () => {
  const kubeconfig = writeKubeconfig({ tokenFile: "token" });
  writeFileSync(join(kubeconfig, "..", "token"), "first");
  assert.deepEqual(await sent({ kubeconfig }), ["https://192.0.2.1:6443", "Bearer first"]);
});

test("--server overrides the server of the kubeconfig, whose token takes precedence over a tokenFile", async () => {
  const kubeconfig = writeKubeconfig({ token: "given", tokenFile: "/nonexistent" });
  assert.deepEqual(await sent({ kubeconfig, server: "https://192.0.2.9/" }), ["https://192.0.2.9", "Bearer given"]);
});

test("--server without a kubeconfig has the pod's ServiceAccount, but sends no credentials over plain HTTP", async () => {
  const podRoot = temporaryFolder();
  const account = join(podRoot, "var/run/secrets/kubernetes.io/serviceaccount");
  mkdirSync(account, { recursive: true });
  writeFileSync(join(account, "token"), "of-the-pod");
  writeFileSync(join(account, "ca.crt"), "");
  vi.stubEnv("KUBERNETES_SERVICE_HOST", "10.96.0.1");
  vi.stubEnv("KUBERNETES_SERVICE_PORT", "443");
  onTestFinished(() => void vi.unstubAllEnvs());
  for (const [server, credentials] of [
    ["https://192.0.2.9:6443", "Bearer of-the-pod"],
    ["http://192.0.2.9:8080", undefined],
  ] as const) {
    assert.deepEqual(await sent({ server, podRoot }), [server, credentials]);
  }
});

test.each(["u:secret@host", "ftp://u:secret@host", "https://u:secret@host:99999", "http://u:sec@ret@["])(
  "an invalid server URL is rejected, and the error hides a possible password: %s",
  (server) => {
    assert.throws(
      () => loadConfig({ server }),
      /^ProcessError: \[BAD_OPTION\] --server: invalid URL "[a-z:/]*\*\*\*@(?!.*(u:|sec))/,
    );
    assert.throws(
      () => loadConfig({ kubeconfig: writeKubeconfig({}, server) }),
      /cluster c: invalid URL "[a-z:/]*\*\*\*@(?!.*(u:|sec))/,
    );
  },
);

test("a missing kubeconfig is rejected with its path", () => {
  assert.throws(() => loadConfig({ kubeconfig: "/nonexistent/config" }), /\[BAD_OPTION\] .*\/nonexistent\/config/);
});
