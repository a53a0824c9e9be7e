/** One line of a panel: what Prometheus is asked, and how its series are called. */
export interface Query {
  readonly expr: string;
  /** *Shape:* Grafana's legend format, e.g. `{{instance}} p99`. */
  readonly legend: string;
}

export interface Panel {
  readonly title: string;
  /** What it shows, and what is in order. */
  readonly description: string;
  /** Of Grafana: "s", "bytes", "Bps", "ops", "short", "bool_on_off", "dateTimeFromNow". */
  readonly unit: string;
  readonly queries: readonly Query[];
  /** A number in place of a graph. */
  readonly isStat?: boolean | undefined;
  /** Where it turns red. */
  readonly redFrom?: number | undefined;
}

export interface Row {
  readonly title: string;
  readonly panels: readonly Panel[];
}
