/** A query of a panel, and the legend of its series. */
export interface Query {
  readonly expr: string;
  /** *Shape:* Grafana's legend format, e.g. `{{instance}} p99`. */
  readonly legend: string;
}

export interface Panel {
  readonly title: string;
  /** Explains what the panel shows, and which values are normal. */
  readonly description: string;
  /** Grafana's unit: "s", "bytes", "Bps", "ops", "short", "bool_on_off", "dateTimeFromNow". */
  readonly unit: string;
  readonly queries: readonly Query[];
  /** True for a number instead of a graph. Default false. */
  readonly isStat?: boolean | undefined;
  /** Threshold from which a value is red. */
  readonly redFrom?: number | undefined;
}

export interface Row {
  readonly title: string;
  readonly panels: readonly Panel[];
}
