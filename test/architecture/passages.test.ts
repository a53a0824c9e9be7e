import { describe, expect, test } from "vitest";
import { splitPassages } from "./passages.ts";

function textsOf(file: string, text: string): string[] {
  return splitPassages({ file, text })
    .map((passage) => passage.text)
    .filter((line) => line !== "");
}

describe("splitPassages", () => {
  test("joins the lines of a docstring up to an empty one", () => {
    const text = "/**\n * One\n * two.\n *\n * Three.\n */\nconst a = 1;\n";
    expect(textsOf("a.ts", text)).toEqual(["/** One two.", "*", "* Three.", "*/", "const a = 1;"]);
  });

  test("joins line comments, and no lines of code", () => {
    expect(textsOf("a.ts", "// One\n// two.\nfoo();\nbar();\n")).toEqual(["// One two.", "foo();", "bar();"]);
  });

  test("joins the comments of YAML", () => {
    expect(textsOf("a.yaml", "# One\n# two.\nkey: 1\n")).toEqual(["# One two.", "key: 1"]);
  });

  test("joins the lines of a paragraph in a document, and neither lists nor tables", () => {
    const text = "One\ntwo.\n\n- Three\n  four.\n- Five.\n| a | b |\n| c | d |\n";
    expect(textsOf("a.md", text)).toEqual(["One two.", "- Three four.", "- Five.", "| a | b |", "| c | d |"]);
  });

  test("knows the line of each character", () => {
    const [passage] = splitPassages({ file: "a.md", text: "One\ntwo\nthree" });
    expect([0, 3, 4, 8, 12].map((index) => passage?.lineAt(index))).toEqual([1, 1, 2, 3, 3]);
  });
});
