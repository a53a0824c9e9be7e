import { X509Certificate } from "node:crypto";
import { createSecureContext, type SecureContextOptions } from "node:tls";
import { minTlsVersion, type ReadTls, type ServerTlsFiles } from "@kpng/process/credential-files.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { Gauge, type Registry } from "prom-client";
import type { LoopClock } from "../../connection/loop-clock.ts";

/** Interval between two reads of the files, in milliseconds. A mounted Secret itself changes up to a minute late. */
export const standardReloadMs = 10_000;

/**
 * Reads the TLS files of the listeners now and then, and gives changed ones to the servers, so that a renewed
 * certificate needs no restart. Open connections continue. If the CA changed, `onNewCa` is called: a client whose
 * certificate the new CA did not issue must not keep its stream.
 *
 * Files that cannot be used are logged once, and the servers keep the last ones. It ends when the clock stops.
 */
export function reloadTls(
  read: ReadTls<ServerTlsFiles>,
  { servers, clock, intervalMs, onNewCa, log, metrics }: Reload,
): void {
  let current = read();
  metrics.use(current.cert);
  let failure = "";
  const reload = (): void => {
    clock.after(intervalMs, reload);
    let files: ServerTlsFiles;
    try {
      files = read();
      if (isSame(files, current)) {
        failure = "";
        return;
      }
      // Checks the whole chain, and the strength of the key.
      createSecureContext({ ...files, minVersion: minTlsVersion });
    } catch (error) {
      const reason = reasonOf(error);
      if (reason !== failure) log.error("new TLS files are unusable; the listeners keep the old ones", { reason });
      failure = reason;
      return;
    }
    failure = "";
    const hasNewCa = !isEqual(files.ca, current.ca);
    current = files;
    for (const server of servers) server.setSecureContext({ ...files, minVersion: minTlsVersion });
    metrics.use(files.cert);
    log.info("TLS files reloaded", { hasNewCa });
    if (hasNewCa) onNewCa();
  };
  clock.after(intervalMs, reload);
}

function isSame(a: ServerTlsFiles, b: ServerTlsFiles): boolean {
  return isEqual(a.key, b.key) && isEqual(a.cert, b.cert) && isEqual(a.ca, b.ca);
}

function isEqual(a: Buffer | undefined, b: Buffer | undefined): boolean {
  return a === undefined || b === undefined ? a === b : a.equals(b);
}

interface Reload {
  readonly servers: readonly { setSecureContext(options: SecureContextOptions): void }[];
  readonly clock: LoopClock;
  readonly intervalMs: number;
  readonly onNewCa: () => void;
  readonly log: Log;
  readonly metrics: CertificateMetrics;
}

/** Metrics of the certificate that the listeners show. */
export interface CertificateMetrics {
  /** Records a certificate that the listeners begin to use, in PEM form; the first of a chain counts. */
  use(certificate: Buffer): void;
}

/** Registers the metrics. Without a certificate there is no series. */
export function makeCertificateMetrics(registry: Registry): CertificateMetrics {
  const expiry = new Gauge({
    name: "kpng_certificate_expiry_timestamp_seconds",
    help: "When the certificate in use expires, by what it is used for; serving: the listeners show it to clients",
    labelNames: ["use"],
    registers: [registry],
  });
  return {
    use: (certificate) => expiry.set({ use: "serving" }, new X509Certificate(certificate).validToDate.getTime() / 1000),
  };
}
