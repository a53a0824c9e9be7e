import { X509Certificate } from "node:crypto";
import { Gauge, type Registry } from "prom-client";

/**
 * Metrics of the certificate that the listeners show. `serve` registers them, also without TLS; `reloadTls` updates
 * them. Separate, so that `npm run docs` can list them without a server.
 */
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
