import { X509Certificate } from "node:crypto";
import { createSecureContext, type SecureContextOptions } from "node:tls";
import { isDeepStrictEqual } from "node:util";
import { minTlsVersion, type ReadTls, type ServerTlsFiles } from "@kpng/process/credential-files.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { Gauge, type Registry } from "prom-client";

/**
 * Reads the TLS files of the listeners now and then, and gives changed ones to the servers, so that a renewed
 * certificate needs no restart. Open connections continue, also after a change of the CA, until their maximum age.
 *
 * Files that cannot be used are logged once, and the servers keep the last ones. Returns the timer, which the caller
 * clears.
 */
export function reloadTls(read: ReadTls<ServerTlsFiles>, { servers, intervalMs, log, expiry }: Reload): NodeJS.Timeout {
  let current = read();
  setExpiry(expiry, current.cert);
  let failure = "";
  const reload = (): void => {
    let files: ServerTlsFiles;
    try {
      files = read();
      if (isDeepStrictEqual(files, current)) {
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
    current = files;
    for (const server of servers) server.setSecureContext({ ...files, minVersion: minTlsVersion });
    setExpiry(expiry, files.cert);
    log.info("TLS files reloaded");
  };
  return setInterval(reload, intervalMs).unref();
}

interface Reload {
  readonly servers: readonly { setSecureContext(options: SecureContextOptions): void }[];
  /** Interval between two reads, in milliseconds. A mounted Secret itself changes up to a minute late. */
  readonly intervalMs: number;
  readonly log: Log;
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

/** `certificate` is in PEM form; the first of a chain counts. */
function setExpiry(expiry: Gauge<"use">, certificate: Buffer): void {
  expiry.set({ use: "serving" }, new X509Certificate(certificate).validToDate.getTime() / 1000);
}
