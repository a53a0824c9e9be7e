import { describe, expect, test } from "vitest";
import { Html, html } from "./html.ts";

describe("the template tag html", () => {
  test.each([
    ["text", html`<b>${"<script>"}</b>`, "<b>&lt;script&gt;</b>"],
    ["an attribute", html`<a href="${`" onclick='x'`}">`, `<a href="&quot; onclick=&#39;x&#39;">`],
    ["an ampersand", html`${"a&lt;b"}`, "a&amp;lt;b"],
    ["a list", html`${["<a>", "<b>"]}`, "&lt;a&gt;&lt;b&gt;"],
    ["a number", html`${1.5}`, "1.5"],
    ["an object that looks like a template", html`${String({ text: "<b>" })}`, "[object Object]"],
  ])("escapes %s", (_case, { text }, expected) => {
    expect(text).toBe(expected);
  });

  test("keeps the results of other templates, alone and in lists", () => {
    expect(html`<ul>${["<", ">"].map((one) => html`<li>${one}</li>`)}</ul>`.text).toBe(
      "<ul><li>&lt;</li><li>&gt;</li></ul>",
    );
    expect(html`${new Html("<hr>")}`.text).toBe("<hr>");
  });

  test("shows nothing for undefined and false, and zero as a number", () => {
    expect(html`${undefined}${false}${0}`.text).toBe("0");
  });
});
