import { X509Certificate } from "node:crypto";
import { createSecureContext, type SecureContextOptions } from "node:tls";
import { isDeepStrictEqual } from "node:util";
import { minTlsVersion, type ReadTls, type ServerTlsFiles } from "@kpng/process/credential-files.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import { Gauge, type Registry } from "prom-client";

/**
 * Rereads the listeners' TLS files regularly, and passes changed files to the servers, so that a renewed certificate
 * needs no restart. Open connections continue until their maximum age, even after a change of the CA.
 *
 * Unusable files are logged once, and the servers keep the previous files. The health part `certificate` reports such
 * files and, from two weeks before its expiry, the certificate's expiry date. Returns the timer, which the caller
 * clears.
 */
export function reloadTls(
  read: ReadTls<ServerTlsFiles>,
  { servers, intervalMs, log, health, expiry }: Reload,
): NodeJS.Timeout {
  let current = read();
  let failure = "";
  const reload = (): void => {
    try {
      const files = read();
      if (!isDeepStrictEqual(files, current)) {
        // This checks the whole chain and the strength of the key.
        createSecureContext({ ...files, minVersion: minTlsVersion });
        for (const server of servers) server.setSecureContext({ ...files, minVersion: minTlsVersion });
        current = files;
        log.info("TLS files reloaded");
      }
      failure = "";
    } catch (error) {
      const reason = reasonOf(error);
      if (reason !== failure) log.error("new TLS files are unusable; the listeners keep the old ones", { reason });
      failure = reason;
    }
    report();
  };
  const report = (): void => {
    // This reads the first certificate of the chain.
    const { validToDate } = new X509Certificate(current.cert);
    expiry.set({ use: "serving" }, validToDate.getTime() / 1000);
    const leftMs = validToDate.getTime() - wallClockMs();
    const reasons = failure === "" ? [] : [`new TLS files are unusable: ${failure}`];
    if (leftMs < warnMs) reasons.push(`${leftMs < 0 ? "expired" : "expires"} at ${validToDate.toISOString()}`);
    health.set("certificate", { isHealthy: leftMs >= 0, isReady: true, reason: reasons.join("; ") });
  };
  report();
  return setInterval(reload, intervalMs).unref();
}

/**
 * Time before its expiry from which a certificate is reported, in milliseconds. The alert KpngCertificateExpires uses
 * the same time.
 */
const warnMs = 14 * 86_400_000;

interface Reload {
  readonly servers: readonly { setSecureContext(options: SecureContextOptions): void }[];
  /** Interval between two reads, in milliseconds. A mounted Secret itself is updated up to a minute late. */
  readonly intervalMs: number;
  readonly log: Log;
  readonly health: Health;
  readonly expiry: Gauge<"use">;
}

/**
 * Registers the metric of the expiry of the listeners' certificate. Without a certificate, the metric has no series.
 */
export function makeCertificateExpiry(registry: Registry): Gauge<"use"> {
  return new Gauge({
    name: "kpng_certificate_expiry_timestamp_seconds",
    help: "When the certificate in use expires, by what it is used for; serving: the listeners show it to clients",
    labelNames: ["use"],
    registers: [registry],
  });
}
