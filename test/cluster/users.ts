import { writeFileSync } from "node:fs";

/** Users of the test's API server, with static tokens. `admin` has all rights, `kpng` the rights of rbac.yaml. */
export type User = "admin" | "kpng" | "kpng-rotated";

export const tokens: Readonly<Record<User, string>> = {
  admin: "admin-token",
  kpng: "kpng-token",
  "kpng-rotated": "kpng-rotated-token",
};

/** Name of both kpng users in the API server: the ServiceAccount of the watcher. */
const kpngUserName = "system:serviceaccount:kube-system:kpng-watcher";

/** Writes the file for --token-auth-file, which the API server reads when it starts: `token,user,uid,"groups"`. */
export function writeTokenFile(path: string, users: readonly User[] = ["admin", "kpng", "kpng-rotated"]): void {
  const lines = users.map((user, index) =>
    user === "admin"
      ? `${tokens.admin},admin,${index},"system:masters"`
      : `${tokens[user]},${kpngUserName},${index},"system:serviceaccounts"`,
  );
  writeFileSync(path, `${lines.join("\n")}\n`);
}

/** Returns a kubeconfig for the user. It refers to `tokenFile` if given, so that a test can rotate the token. */
export function makeKubeconfig(options: {
  readonly server: string;
  readonly caFile: string;
  readonly user: User;
  readonly tokenFile?: string | undefined;
}): string {
  const { server, caFile, user, tokenFile } = options;
  const config = {
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: "test", cluster: { server, "certificate-authority": caFile } }],
    users: [{ name: user, user: tokenFile === undefined ? { token: tokens[user] } : { tokenFile } }],
    contexts: [{ name: "test", context: { cluster: "test", user } }],
    "current-context": "test",
  };
  return JSON.stringify(config, undefined, 2);
}
