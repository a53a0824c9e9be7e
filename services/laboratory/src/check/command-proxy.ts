import { NodeProcess } from "../node-process.ts";
import { type State, together } from "../scenario/build.ts";
import type { ProxyProfile } from "../scenario/deviations.ts";
import { bridgeName, podCIDRs } from "../scenario/places.ts";
import type { Settings } from "../scenario/scenario.ts";
import { Marker } from "./marker.ts";
import { mountBpf, NodeCgroup } from "./node-cgroup.ts";
import type { StateSource } from "./states.ts";
import type { TwoNodes } from "./two-nodes.ts";

/** A service proxy as a command, which may be written in any language. */
export interface ProxyCommand {
  /**
   * Command that starts the proxy, with placeholders: those of the source of states; `{node}`, the node's name; `{options}`,
   * kube-proxy's options for the settings of a scenario; `{cgroup}`, the folder of a cgroup with the processes of the
   * node and its pods; `{bpf}`, a folder of a BPF file system, which a command with {cgroup} finds at
   * /sys/fs/bpf, too.
   */
  readonly command: readonly string[];
  /** Shell command that removes everything of the proxy from the node. Default: none. */
  readonly cleanup?: string | undefined;
  /** Shell command that removes the proxy's rules behind its back. Default: none. */
  readonly loseRules?: string | undefined;
  readonly profile: ProxyProfile;
  /** Longest time from a new state to its installed rules, in milliseconds. */
  readonly timeoutMs: number;
  /** Needed if several proxies run at the same time. Default 20000. */
  readonly firstMarkerPort?: number | undefined;
  /** Labels of the Services that it serves. Default: none. */
  readonly labels?: Readonly<Record<string, string>> | undefined;
}

/** Prefix of a command that runs in the present folder, because one that enters namespaces begins at the root. */
const inFolder = ["sh", "-c", 'cd "$1" && shift && exec "$@"', "backend", process.cwd()];

/** Runs a command as a proxy under test on n1. */
export class CommandProxy implements AsyncDisposable {
  readonly command: ProxyCommand;
  readonly states: StateSource;
  readonly #world: TwoNodes;
  readonly #words: Readonly<Record<string, string>>;
  readonly #cgroup: NodeCgroup | undefined;
  readonly #marker: Marker;
  readonly #process: NodeProcess;
  #settings: Settings = {};
  #state: State = { services: [], slices: [] };

  private constructor(world: TwoNodes, states: StateSource, command: ProxyCommand, cgroup?: NodeCgroup, bpf?: string) {
    this.command = command;
    this.states = states;
    this.#world = world;
    this.#cgroup = cgroup;
    this.#words = {
      ...{ ...states.words, node: "n1" },
      ...(cgroup === undefined ? {} : { cgroup: cgroup.folder }),
      ...(bpf === undefined ? {} : { bpf }),
    };
    this.#marker = new Marker(world, command.firstMarkerPort, command.labels);
    this.#process = new NodeProcess(world.laboratory);
  }

  /**
   * Prepares what the command needs, without starting it, and becomes the owner of the source of states. Errors: cgroup
   * version 2 is needed and not mounted, or the caller may not mount a BPF file system; the source is closed then.
   */
  static async open(world: TwoNodes, states: StateSource, command: ProxyCommand): Promise<CommandProxy> {
    try {
      return await CommandProxy.#open(world, states, command);
    } catch (error) {
      await states.close();
      throw error;
    }
  }

  static async #open(world: TwoNodes, states: StateSource, command: ProxyCommand): Promise<CommandProxy> {
    const has = (name: string): boolean => command.command.some((word) => word.includes(`{${name}}`));
    const bpf = has("bpf") || has("cgroup") ? await mountBpf(world.laboratory, "n1") : undefined;
    const cgroup = has("cgroup") ? NodeCgroup.open(world) : undefined;
    return new CommandProxy(world, states, command, cgroup, bpf);
  }

  /** Returns true if the command takes the settings of scenarios. */
  get takesSettings(): boolean {
    return this.command.command.includes("{options}");
  }

  get profile(): ProxyProfile {
    return this.command.profile;
  }

  /** Value of a placeholder. *Shape of `name`:* `cgroup`. */
  word(name: string): string {
    return this.#words[name] ?? "";
  }

  /** Starts the proxy with these settings on this state; resolves when its rules are installed. */
  async start(settings: Settings, state: State): Promise<void> {
    this.#settings = settings;
    await this.stop();
    this.#run();
    await this.apply(state);
  }

  #run(): void {
    const words = this.command.command.flatMap((word) =>
      word === "{options}" ? settingsOptions(this.#settings, this.profile) : [this.#fill(word)],
    );
    const { api, kubeconfig, node = "" } = this.#words;
    this.#process.start([...inFolder, ...words], {
      ...(api === undefined ? {} : { KPNG_API: api }),
      ...(kubeconfig === undefined ? {} : { KUBECONFIG: kubeconfig }),
      KPNG_NODE_NAME: node,
    });
  }

  #fill(text: string): string {
    return text.replaceAll(/\{(\w+)\}/g, (whole, name: string) => this.#words[name] ?? whole);
  }

  /** Changes the state of the cluster; resolves when the rules for it are installed. Errors: timeout; the proxy ends. */
  apply(state: State): Promise<void> {
    return this.#apply(state, this.command.timeoutMs);
  }

  async #apply(state: State, timeoutMs: number): Promise<void> {
    this.#state = state;
    // Otherwise the marker of this state could be seen before its changes.
    if (!this.states.isAtomic) await this.states.apply(together(state, this.#marker.state));
    // Many proxies change one Service after the other, and some attach programs at the end, so a first marker may come
    // before the rest of its state. A second one comes after it, because a proxy begins one sync after the other.
    for (let marker = 0; marker < 2; marker++) {
      await this.states.apply(together(state, this.#marker.next()));
      await this.#marked(timeoutMs);
    }
  }

  async #marked(timeoutMs: number): Promise<void> {
    const failed = this.#process.ended.then((end) => {
      throw new Error(`the proxy has ended with ${end}:\n${this.log()}`);
    });
    await Promise.race([this.#marker.wait(() => this.log(), timeoutMs), failed]);
  }

  /** Restarts the process with the same settings; resolves when it has synced. */
  async restart(signal?: "SIGTERM" | "SIGKILL"): Promise<void> {
    await this.stop(signal);
    this.#run();
    await this.apply(this.#state);
  }

  /** Restarts what serves the states, if that is possible; resolves when the proxy has the state again. */
  async restartStates(): Promise<void> {
    await this.states.restart?.();
    // A client may wait for half a minute before it connects again.
    await this.#apply(this.#state, this.command.timeoutMs + 30_000);
  }

  stop(signal?: "SIGTERM" | "SIGKILL"): Promise<void> {
    return this.#process.stop(signal);
  }

  /** Deletes rules of the proxy from the kernel, as another program could do. */
  async loseRules(): Promise<void> {
    await this.#shell(this.command.loseRules);
  }

  /** Runs the proxy's own cleanup command, and returns its output. The process must have ended. */
  cleanUp(): Promise<string> {
    return this.#shell(this.command.cleanup);
  }

  async #shell(command = ""): Promise<string> {
    const { laboratory } = this.#world;
    const { exitCode, stdout, stderr } = await laboratory.tryRun("n1", [...inFolder, "sh", "-c", this.#fill(command)]);
    if (exitCode !== 0) throw new Error(`${command}: exit status ${exitCode}: ${stdout}${stderr}`);
    return stdout + stderr;
  }

  /** Returns the end of its output and of its source of states, for the message of a failure. */
  log(): string {
    return `${this.#process.log()}\n${this.states.log()}`.trimEnd();
  }

  /** Stops the proxy and its source of states. What the proxy has installed stays. Errors: as {@link NodeProcess.stop}. */
  async close(): Promise<void> {
    try {
      await this.stop();
    } finally {
      await this.states.close();
      this.#cgroup?.[Symbol.dispose]();
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/**
 * Returns settings as options of kube-proxy. Node ports are on all addresses unless the settings name some, also in
 * nftables mode, where kube-proxy's default is one.
 */
function settingsOptions(settings: Settings, profile: ProxyProfile): readonly string[] {
  const { detectLocal = "ClusterCIDR", masqueradeAll } = settings;
  // A proxy that never serves them need not know the option.
  const isOnLocalhost = settings.localhostNodePorts ?? true;
  const wantsOption = !isOnLocalhost && profile.reasonFor("no-loopback-node-ports") === undefined;
  const { nodePortAddresses = ["0.0.0.0/0", "::/0"] } = settings;
  return [
    ...(detectLocal === "none" ? [] : [`--detect-local-mode=${detectLocal}`]),
    ...(detectLocal === "ClusterCIDR" ? [`--cluster-cidr=${podCIDRs.cluster.v4},${podCIDRs.cluster.v6}`] : []),
    ...(detectLocal === "BridgeInterface" ? [`--pod-bridge-interface=${bridgeName}`] : []),
    // Rules see the bridge and not the links of pods, so the prefix is the start of the bridge's name.
    ...(detectLocal === "InterfaceNamePrefix" ? [`--pod-interface-name-prefix=${bridgeName.slice(0, 3)}`] : []),
    ...(masqueradeAll === true ? ["--masquerade-all"] : []),
    ...(wantsOption ? ["--iptables-localhost-nodeports=false"] : []),
    `--nodeport-addresses=${nodePortAddresses.join(",")}`,
  ];
}
