import type { ServiceView } from "@kpng/model/node-view.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import type { RunTool } from "../read/run-tool.ts";

/** Annotation that chooses the scheduler of a Service. */
export const schedulerAnnotation = "kpng.io/ipvs-scheduler";

/** True for a text that may be the name of a scheduler of IPVS. *Shape:* `rr`, `lblcr`. */
export function isSchedulerName(text: string): boolean {
  return /^[a-z][a-z0-9]{1,14}$/.test(text);
}

/** A virtual server that exists only while a scheduler is tried, at an address that no host has (RFC 5737). */
const trialServer = "-u 192.0.2.0:9";

const noName = "it is not the name of a scheduler";

/** True for a reason that holds until the next start: the kernel has no such module. */
function isLasting(reason: string): boolean {
  return reason === noName || reason.includes("not found");
}

interface SchedulersOptions {
  readonly runTool: RunTool;
  /** Scheduler of Services without annotation. *Shape:* `rr`. */
  readonly standard: string;
  readonly log: Log;
  /** Whether schedulers may be tried in the kernel; otherwise the kernel is assumed to have all of them. */
  readonly mayTry: boolean;
}

/**
 * Chooses the IPVS scheduler (load-balancing algorithm) of each Service. Each name is tried in the kernel, which then
 * loads its module, and not again if the kernel has it or lacks it: a virtual server with an unknown scheduler would
 * fail a whole sync, so an annotation could stop all updates of a node.
 *
 * The backend creates one object and checks the standard scheduler with `faultOf`. Separate from `IpvsRuleSet`, because
 * the rule sets of both families share the object; they call `schedulerOf` for each Service.
 */
export class Schedulers {
  readonly #options: SchedulersOptions;
  readonly #faults = new Map<string, Promise<string | undefined>>();
  /** The last trial; never rejects. Both families ask at the same time, and there is one virtual server for trials. */
  #lastTrial: Promise<unknown> = Promise.resolve();

  constructor(options: SchedulersOptions) {
    this.#options = options;
  }

  /**
   * Returns the scheduler of a Service: that of its annotation, or the standard one if there is none or the kernel
   * lacks it, which is logged once.
   */
  async schedulerOf(view: ServiceView | undefined): Promise<string> {
    const { standard } = this.#options;
    const asked = view?.service.annotations[schedulerAnnotation];
    if (asked === undefined || asked === standard) return standard;
    return (await this.faultOf(asked)) === undefined ? asked : standard;
  }

  /** Returns why a scheduler cannot be used; undefined if it can. */
  faultOf(name: string): Promise<string | undefined> {
    const known = this.#faults.get(name);
    if (known !== undefined) return known;
    const trial = this.#lastTrial.then(() => this.#try(name));
    this.#lastTrial = trial;
    const fault = trial.then((reason) => {
      const { log, standard } = this.#options;
      if (reason !== undefined)
        log.error("scheduler not available: its Services use another one", { scheduler: name, used: standard, reason });
      return reason;
    });
    // Users choose the annotations, so the number of remembered names is bounded.
    if (this.#faults.size < 1_000) this.#faults.set(name, fault);
    // Any other failure may pass, e.g. a lack of memory.
    void fault.then((reason) => reason !== undefined && !isLasting(reason) && this.#faults.delete(name));
    return fault;
  }

  async #try(name: string): Promise<string | undefined> {
    const { runTool, mayTry } = this.#options;
    if (!isSchedulerName(name)) return noName;
    if (!mayTry) return undefined;
    // A run that was killed may have left its trial.
    await this.#deleteTrial();
    try {
      await runTool.write(["ipvsadm", "-R"], [`-A ${trialServer} -s ${name}`]);
    } catch (error) {
      const reason = reasonOf(error);
      // Another instance tries a scheduler at this moment.
      return reason.includes("already exists") ? undefined : reason;
    }
    await this.#deleteTrial();
    return undefined;
  }

  async #deleteTrial(): Promise<void> {
    await this.#options.runTool.write(["ipvsadm", "-R"], [`-D ${trialServer}`]).catch(() => undefined);
  }
}
