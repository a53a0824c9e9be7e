import { generateKeyPairSync } from "node:crypto";
import { cpSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Child } from "./child.ts";
import { until } from "./until.ts";
import { writeTokenFile } from "./users.ts";

/** One-member etcd on the loopback address, without TLS. Its data is temporary, so it does not sync to disk. */
export class Etcd {
  readonly url: string;
  readonly child: Child;
  readonly #dataFolder: string;

  constructor(path: string, folder: string, clientPort: number, peerPort: number) {
    this.url = `http://127.0.0.1:${clientPort}`;
    const peerUrl = `http://127.0.0.1:${peerPort}`;
    this.#dataFolder = join(folder, "etcd");
    const args = [
      `--data-dir=${this.#dataFolder}`,
      `--listen-client-urls=${this.url}`,
      `--advertise-client-urls=${this.url}`,
      `--listen-peer-urls=${peerUrl}`,
      `--initial-advertise-peer-urls=${peerUrl}`,
      `--initial-cluster=default=${peerUrl}`,
      "--unsafe-no-fsync",
    ];
    this.child = new Child("etcd", [path, ...args], join(folder, "etcd.log"));
  }

  async start(): Promise<void> {
    this.child.start();
    await until(
      "etcd is healthy",
      async () => (await fetch(`${this.url}/health`)).ok,
      15_000,
      () => this.child.tail(),
    );
  }

  /** Compacts the history, so that a watch from an older resourceVersion gets 410 Gone. */
  async compact(): Promise<void> {
    const status = await this.#call("maintenance/status", {});
    const { revision } = status.header;
    await this.#call("kv/compaction", { revision, physical: true });
  }

  /** Restarts etcd without its data, as after the loss of a disk. */
  async empty(): Promise<void> {
    await this.child.kill();
    rmSync(this.#dataFolder, { recursive: true, force: true });
    await this.start();
  }

  /** Keeps a copy of the data, as a backup does. Restarts etcd. */
  async save(): Promise<void> {
    await this.child.kill();
    cpSync(this.#dataFolder, `${this.#dataFolder}.saved`, { recursive: true });
    await this.start();
  }

  /** Restarts etcd with the data of {@link save}: its revisions go back. The API server must be restarted as well. */
  async restore(): Promise<void> {
    await this.child.kill();
    rmSync(this.#dataFolder, { recursive: true, force: true });
    cpSync(`${this.#dataFolder}.saved`, this.#dataFolder, { recursive: true });
    await this.start();
  }

  async #call(path: string, body: unknown): Promise<{ readonly header: { readonly revision: string } }> {
    const response = await fetch(`${this.url}/v3/${path}`, { method: "POST", body: JSON.stringify(body) });
    const text = await response.text();
    if (!response.ok) throw new Error(`etcd ${path}: ${response.status} ${text}`);
    return JSON.parse(text) as { readonly header: { readonly revision: string } };
  }
}

/** kube-apiserver on the loopback address, with RBAC, both address families and a self-signed certificate. */
export class ApiServer {
  readonly url: string;
  /** Self-signed certificate, also used as CA; exists after the start. */
  readonly caFile: string;
  /** Tokens and their users; the server reads the file when it starts. */
  readonly tokenFile: string;
  readonly child: Child;
  #isReady: () => Promise<void>;

  constructor(options: {
    readonly path: string;
    readonly folder: string;
    readonly port: number;
    readonly etcdUrl: string;
    /** Resolves when the server is ready. */
    readonly isReady: () => Promise<void>;
  }) {
    const { path, folder, port, etcdUrl } = options;
    this.url = `https://127.0.0.1:${port}`;
    this.caFile = join(folder, "certs", "apiserver.crt");
    this.#isReady = options.isReady;
    const keyFile = join(folder, "service-account.key");
    this.tokenFile = join(folder, "tokens.csv");
    const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
    writeFileSync(keyFile, privateKey.export({ type: "pkcs8", format: "pem" }));
    writeTokenFile(this.tokenFile);
    const args = [
      `--etcd-servers=${etcdUrl}`,
      `--cert-dir=${join(folder, "certs")}`,
      "--bind-address=127.0.0.1",
      // The certificate has this address, too, at which pods of test/manifests reach the server.
      "--advertise-address=10.0.0.10",
      `--secure-port=${port}`,
      "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/108",
      "--authorization-mode=Node,RBAC",
      `--token-auth-file=${this.tokenFile}`,
      `--service-account-key-file=${keyFile}`,
      `--service-account-signing-key-file=${keyFile}`,
      "--service-account-issuer=https://kubernetes.default.svc",
      "--endpoint-reconciler-type=none",
      // Tests create Pods without a kubelet, so they need no ServiceAccount.
      "--disable-admission-plugins=ServiceAccount",
    ];
    this.child = new Child("kube-apiserver", [path, ...args], join(folder, "kube-apiserver.log"));
  }

  /** Starts or restarts the server with the data in etcd; resolves when it is ready. */
  async start(): Promise<void> {
    this.child.start();
    await this.#isReady();
  }

  /** Kills the server, like a crash. */
  async kill(): Promise<void> {
    await this.child.kill();
  }
}
