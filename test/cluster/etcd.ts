import { join } from "node:path";
import { Child } from "./child.ts";
import { until } from "./until.ts";

/** A one-member etcd on the loopback address, without TLS; its data ends with the test, so it never waits for a disk. */
export class Etcd {
  readonly url: string;
  readonly child: Child;

  constructor(path: string, folder: string, clientPort: number, peerPort: number) {
    this.url = `http://127.0.0.1:${clientPort}`;
    const peerUrl = `http://127.0.0.1:${peerPort}`;
    const args = [
      `--data-dir=${join(folder, "etcd")}`,
      `--listen-client-urls=${this.url}`,
      `--advertise-client-urls=${this.url}`,
      `--listen-peer-urls=${peerUrl}`,
      `--initial-advertise-peer-urls=${peerUrl}`,
      `--initial-cluster=default=${peerUrl}`,
      "--unsafe-no-fsync",
    ];
    this.child = new Child("etcd", path, args, join(folder, "etcd.log"));
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

  /** Forgets all history before now, so that a watch from an older resourceVersion is answered 410 Gone. */
  async compact(): Promise<void> {
    const status = await this.#call("maintenance/status", {});
    const { revision } = status.header;
    await this.#call("kv/compaction", { revision, physical: true });
  }

  async #call(path: string, body: unknown): Promise<{ readonly header: { readonly revision: string } }> {
    const response = await fetch(`${this.url}/v3/${path}`, { method: "POST", body: JSON.stringify(body) });
    const text = await response.text();
    if (!response.ok) throw new Error(`etcd ${path}: ${response.status} ${text}`);
    return JSON.parse(text) as { readonly header: { readonly revision: string } };
  }
}
