import { readFileSync } from "node:fs";
import { createSecureServer, createServer, type Http2Server } from "node:http2";
import { dial } from "@kpng/process/connection/dial.ts";
import { failureHint } from "@kpng/process/connection/failure-hint.ts";
import { readClientTls } from "@kpng/process/credential-files.ts";
import { makeCertificates } from "@kpng/process/testing/certificates.ts";
import { afterAll, expect, onTestFinished, test } from "vitest";
import { freePort, listen } from "../../../../test/cluster/ports.ts";
import { inspectClient, withRequestErrors } from "./client.ts";

const certificates = makeCertificates(afterAll);

const tlsServer = (): Http2Server => {
  const { key, crt } = certificates.server;
  const files = { key: readFileSync(key), cert: readFileSync(crt), ca: readFileSync(certificates.ca) };
  return createSecureServer({ ...files, requestCert: true });
};

async function failure(api: string, ca?: string): Promise<string> {
  const tls = readClientTls({ key: undefined, crt: undefined, ca });
  const client = inspectClient(dial({ api, tls }));
  const asked = withRequestErrors(api, new AbortController().signal, () => client.getStatus({}));
  return asked.then(
    () => "no failure",
    (error: Error) => `${error.message}\nHint: ${failureHint(error.message)}`,
  );
}

test.each([
  ["plain text to a server with TLS", tlsServer, "", undefined, "\nHint: if the watcher expects TLS"],
  ["TLS to a server without it", createServer, "https://", undefined, "\nHint: no TLS is spoken there"],
  ["a certificate of an unknown CA", tlsServer, "https://", undefined, "--tls-ca"],
  ["a server that wants a client certificate", tlsServer, "https://", certificates.ca, "--tls-crt"],
] as const)("%s", async (_name, makeServer, scheme, ca, hint) => {
  const server = makeServer().on("sessionError", () => undefined);
  onTestFinished(() => void server.close());
  expect(await failure(`${scheme}127.0.0.1:${await listen(server)}`, ca)).toContain(hint);
});

test("nothing listens", async () => {
  expect(await failure(`127.0.0.1:${await freePort()}`)).toContain("\nHint: nothing listens there");
  expect(await failure("unix:///tmp/kpng-no-such.sock")).toContain("\nHint: there is no such socket");
});

test("an API server that is down is not called a watcher", () => {
  const hint = failureHint("source/kube/services: cannot watch services: connect ECONNREFUSED 127.0.0.1:1");
  expect(hint).toContain("API server");
});

test.each([
  { reason: 'certificate "n1", issued by "ca", is not accepted: it has expired', says: "renew" },
  { reason: 'certificate "n1", issued by "ca", is not accepted: no CA of the watcher', says: "--listen-tls-ca" },
  { reason: "source/kube/services: cannot list services: self-signed certificate", says: "kubeconfig" },
  { reason: "self-signed certificate in certificate chain", says: "--tls-ca" },
])("$reason: $says", ({ reason, says }) => {
  expect(failureHint(reason)).toContain(says);
});
