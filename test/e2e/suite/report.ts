/** Outcome of one of Kubernetes' tests. */
export type Outcome =
  | { readonly kind: "passed" }
  /** `message`: the first line of the failure. */
  | { readonly kind: "failed"; readonly message: string }
  | { readonly kind: "skipped"; readonly reason: string };

/** A test and how it ended. */
export interface TestResult {
  /** Full name without labels for the area: "Services should serve a basic endpoint from pods [Conformance]". */
  readonly name: string;
  readonly outcome: Outcome;
  readonly durationMs: number;
}

/** Tests that are chosen by their names, as Ginkgo does it. */
export interface Selection {
  readonly focus: RegExp;
  /** Tests that are not run although they are in focus; each entry says why. */
  readonly excluded: readonly { readonly pattern: RegExp; readonly reason: string }[];
}

/** The parts of Ginkgo's report that we read, for each test. */
interface SpecReport {
  readonly ContainerHierarchyTexts: readonly string[] | null;
  readonly LeafNodeType: string;
  readonly LeafNodeText: string;
  readonly State: string;
  readonly RunTime: number;
  readonly Failure?: { readonly Message?: string } | undefined;
}

/**
 * Returns the results of the tests in focus from Ginkgo's JSON report, sorted by name. Excluded tests are among them,
 * as skipped ones.
 *
 * Errors: text that is not such a report.
 */
export function readReport(text: string, selection: Selection): TestResult[] {
  const suites = JSON.parse(text) as readonly { readonly SpecReports: readonly SpecReport[] | null }[];
  const specs = suites.flatMap(({ SpecReports }) => SpecReports ?? []);
  return specs
    .filter(({ LeafNodeType }) => LeafNodeType === "It")
    .map((spec) => ({ spec, fullName: [...(spec.ContainerHierarchyTexts ?? []), spec.LeafNodeText].join(" ") }))
    .filter(({ fullName }) => selection.focus.test(fullName))
    .map(({ spec, fullName }) => ({
      name: fullName.replace(/^\[sig-network\] /, ""),
      outcome: outcomeOf(spec, fullName, selection),
      durationMs: spec.RunTime / 1e6,
    }))
    .toSorted((a, b) => a.name.localeCompare(b.name, "en"));
}

function outcomeOf(spec: SpecReport, fullName: string, selection: Selection): Outcome {
  const message = spec.Failure?.Message?.split("\n")[0] ?? "";
  switch (spec.State) {
    case "passed":
      return { kind: "passed" };
    case "skipped":
    case "pending": {
      const exclusion = selection.excluded.find(({ pattern }) => pattern.test(fullName));
      return { kind: "skipped", reason: exclusion?.reason ?? (message === "" ? spec.State : message) };
    }
    default:
      return { kind: "failed", message: message === "" ? spec.State : message };
  }
}
