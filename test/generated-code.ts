import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

// Generates the code of the proto files into a temporary folder and fails if the committed code differs.

const committed = "services/model/src/gen";

function readTree(root: string): Map<string, string> {
  const files = readdirSync(root, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return new Map(
    files.map((entry) => {
      const path = join(entry.parentPath, entry.name);
      return [path.slice(root.length), readFileSync(path, "utf8")];
    }),
  );
}

const folder = mkdtempSync(join(tmpdir(), "kpng-gen-"));
try {
  execFileSync("buf", ["generate", "-o", folder], { stdio: ["ignore", "ignore", "inherit"] });
  const [actual, expected] = [readTree(committed), readTree(join(folder, committed))];
  const different = [...new Set([...actual.keys(), ...expected.keys()])].filter(
    (path) => actual.get(path) !== expected.get(path),
  );
  if (different.length > 0) {
    process.stderr.write(`generated code is out of date: ${different.join(", ")}\n`);
    process.exitCode = 1;
  }
} finally {
  rmSync(folder, { recursive: true });
}
