import { X509Certificate } from "node:crypto";
import { createSecureContext, type SecureContextOptions } from "node:tls";
import { isDeepStrictEqual } from "node:util";
import { minTlsVersion, type ReadTls, type ServerTlsFiles } from "@kpng/process/credential-files.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import { Gauge, type Registry } from "prom-client";

/**
 * Reads the TLS files of the listeners now and then, and gives changed ones to the servers, so that a renewed
 * certificate needs no restart. Open connections continue, also after a change of the CA, until their maximum age.
 *
 * Files that cannot be used are logged once, and the servers keep the last ones. The health part `certificate` says so,
 * and when the certificate expires, from two weeks before. Returns the timer, which the caller clears.
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
        // Checks the whole chain, and the strength of the key.
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
    // The first certificate of a chain counts.
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

/** How long before its expiry a certificate is reported, in milliseconds: as in the alert KpngCertificateExpires. */
const warnMs = 14 * 86_400_000;

interface Reload {
  readonly servers: readonly { setSecureContext(options: SecureContextOptions): void }[];
  /** Interval between two reads, in milliseconds. A mounted Secret itself changes up to a minute late. */
  readonly intervalMs: number;
  readonly log: Log;
  readonly health: Health;
  readonly expiry: Gauge<"use">;
}

/** Registers the metric of the certificate that the listeners show. Without a certificate there is no series. */
export function makeCertificateExpiry(registry: Registry): Gauge<"use"> {
  return new Gauge({
    name: "kpng_certificate_expiry_timestamp_seconds",
    help: "When the certificate in use expires, by what it is used for; serving: the listeners show it to clients",
    labelNames: ["use"],
    registers: [registry],
  });
}
