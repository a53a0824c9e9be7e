import { generateKeyPairSync } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Child } from "./child.ts";
import { writeTokenFile } from "./users.ts";

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
    this.child = new Child("kube-apiserver", path, args, join(folder, "kube-apiserver.log"));
  }

  /** Starts or restarts the server with the data in etcd; resolves when it is ready. */
  async start(): Promise<void> {
    this.child.start();
    await this.#isReady();
  }

  /** Stops the server gracefully, with SIGTERM: it ends its watches itself. */
  async stop(): Promise<void> {
    await this.child.stop();
  }

  /** Kills the server, like a crash. */
  async kill(): Promise<void> {
    await this.child.kill();
  }
}
