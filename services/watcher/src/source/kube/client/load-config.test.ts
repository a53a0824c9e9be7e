import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished, test } from "vitest";
import { loadConfig } from "./load-config.ts";

/** Writes a kubeconfig with one user into a folder of its own. */
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

test("a user's tokenFile is read again and again, and is relative to the kubeconfig", async () => {
  const kubeconfig = writeKubeconfig({ tokenFile: "token" });
  writeFileSync(join(kubeconfig, "..", "token"), "first");
  const request = { headers: {} as Record<string, string> };
  await loadConfig({ kubeconfig }).applyToHTTPSOptions(request);
  assert.equal(request.headers.Authorization, "Bearer first");
});

test("a token in the kubeconfig goes before its tokenFile", async () => {
  const kubeconfig = writeKubeconfig({ token: "given", tokenFile: "/nonexistent" });
  const request = { headers: {} as Record<string, string> };
  await loadConfig({ kubeconfig }).applyToHTTPSOptions(request);
  assert.equal(request.headers.Authorization, "Bearer given");
});

test("--server takes the place of the kubeconfig's, and its credentials stay", () => {
  const kubeconfig = writeKubeconfig({ token: "given" });
  const config = loadConfig({ kubeconfig, server: "https://192.0.2.9/" });
  assert.equal(config.getCurrentCluster()?.server, "https://192.0.2.9");
  assert.equal(config.getCurrentUser()?.token, "given");
});

test("--server alone is used without credentials, over plain HTTP too (kubectl proxy)", async () => {
  const config = loadConfig({ server: "http://127.0.0.1:8001" });
  const request = { headers: {} as Record<string, string> };
  await config.applyToHTTPSOptions(request);
  assert.equal(request.headers.Authorization, undefined);
});

test.each(["u:secret@host", "ftp://u:secret@host", "https://u:secret@host:99999", "http://u:sec@ret@["])(
  "a server at no URL is refused without what may be a password: %s",
  (server) => {
    assert.throws(
      () => loadConfig({ server }),
      /^ProcessError: \[BAD_OPTION\] --server, "[a-z:/]*\*\*\*@(?!.*(u:|sec))/,
    );
    assert.throws(
      () => loadConfig({ kubeconfig: writeKubeconfig({}, server) }),
      /cluster c, "[a-z:/]*\*\*\*@(?!.*(u:|sec))/,
    );
  },
);

test("a kubeconfig that is not there is refused with its name", () => {
  assert.throws(() => loadConfig({ kubeconfig: "/nonexistent/config" }), /\[BAD_OPTION\] .*\/nonexistent\/config/);
});
