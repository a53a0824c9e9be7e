import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { connectKube, loadConfig } from "./connect.ts";
import { readBody, readJson } from "./connection.ts";

const request = { verb: "watch", resource: "services" } as const;

test("a response that is closed before its end neither ends the process nor closes the next one's connection", async () => {
  const server = createServer((incoming, response) => {
    if (incoming.url === "/expired") response.end("gone\n");
    else setTimeout(() => response.end("{}"), 5);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const connection = connectKube({ server: `http://127.0.0.1:${port}` });
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
  } finally {
    connection.close();
    server.close();
  }
});

import assert from "node:assert/strict";

/** Writes a kubeconfig with one user into a new folder. */
function writeKubeconfig(user: unknown, server = "https://192.0.2.1:6443"): string {
  const folder = mkdtempSync(join(tmpdir(), "kpng-kubeconfig-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const config = {
    clusters: [{ name: "c", cluster: { server } }],
    users: [{ name: "u", user }],
    contexts: [{ name: "x", context: { cluster: "c", user: "u" } }],
    "current-context": "x",
  };
  const path = join(folder, "config");
  writeFileSync(path, JSON.stringify(config));
  return path;
}

test("the tokenFile of a user is relative to the kubeconfig, and is reread", async () => {
  const kubeconfig = writeKubeconfig({ tokenFile: "token" });
  writeFileSync(join(kubeconfig, "..", "token"), "first");
  const request = { headers: {} as Record<string, string> };
  await loadConfig({ kubeconfig }).applyToHTTPSOptions(request);
  assert.equal(request.headers.Authorization, "Bearer first");
});

test("a token in the kubeconfig takes precedence over a tokenFile", async () => {
  const kubeconfig = writeKubeconfig({ token: "given", tokenFile: "/nonexistent" });
  const request = { headers: {} as Record<string, string> };
  await loadConfig({ kubeconfig }).applyToHTTPSOptions(request);
  assert.equal(request.headers.Authorization, "Bearer given");
});

test("--server overrides the server of the kubeconfig and keeps its credentials", () => {
  const kubeconfig = writeKubeconfig({ token: "given" });
  const config = loadConfig({ kubeconfig, server: "https://192.0.2.9/" });
  assert.equal(config.getCurrentCluster()?.server, "https://192.0.2.9");
  assert.equal(config.getCurrentUser()?.token, "given");
});

test("--server without a kubeconfig sends no credentials, and may be plain HTTP (kubectl proxy)", async () => {
  const config = loadConfig({ server: "http://127.0.0.1:8001" });
  const request = { headers: {} as Record<string, string> };
  await config.applyToHTTPSOptions(request);
  assert.equal(request.headers.Authorization, undefined);
});

test("--server in a pod is used with the pod's ServiceAccount, but not over plain HTTP", async () => {
  const podRoot = mkdtempSync(join(tmpdir(), "kpng-pod-"));
  const account = join(podRoot, "var/run/secrets/kubernetes.io/serviceaccount");
  mkdirSync(account, { recursive: true });
  writeFileSync(join(account, "token"), "of-the-pod");
  writeFileSync(join(account, "ca.crt"), "");
  vi.stubEnv("KUBERNETES_SERVICE_HOST", "10.96.0.1");
  vi.stubEnv("KUBERNETES_SERVICE_PORT", "443");
  onTestFinished(() => {
    vi.unstubAllEnvs();
    rmSync(podRoot, { recursive: true });
  });
  const sent = async (server: string) => {
    const request = { headers: {} as Record<string, string> };
    const config = loadConfig({ server, podRoot });
    await config.applyToHTTPSOptions(request);
    return { server: config.getCurrentCluster()?.server, authorization: request.headers.Authorization };
  };
  assert.deepEqual(await sent("https://192.0.2.9:6443"), {
    server: "https://192.0.2.9:6443",
    authorization: "Bearer of-the-pod",
  });
  assert.equal((await sent("http://192.0.2.9:8080")).authorization, undefined);
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
