import { expect, test } from "vitest";
import { makeKpng } from "../kpng.ts";
import { kubectlWords } from "./kubectl-words.ts";

const program = makeKpng(new AbortController().signal);

test.each([
  ["get svc/web", "get services web"],
  ["get service/shop/web", "get services shop/web"],
  ["get svc/web svc/db", "get services web db"],
  ["get -n shop svc/web -o yaml", "get services -n shop web -o yaml"],
  ["get -n shop services web", "get services -n shop web"],
  ["get --namespace=shop -o yaml services", "get services --namespace=shop -o yaml"],
  ["get -w nodes", "get nodes -w"],
  ["-n shop get svc web", "get services -n shop web"],
  ["--namespace=shop -A get svc", "get services --namespace=shop -A"],
  ["-n shop trace web", "trace -n shop web"],
  ["get services.v1 web", "get services web"],
  ["get endpointslices.discovery.k8s.io", "get endpoints"],
  ["file -i get get svc/web", "file -i get get services web"],
  ["file -i state.yaml get -n shop services", "file -i state.yaml get services -n shop"],
])("%s means %s", (words, result) => {
  expect(kubectlWords(words.split(" "), program).join(" ")).toBe(result);
});

test.each([
  "get services node/web",
  "get pods",
  "--version",
  "--kubeconfig a get svc",
  "get shop/web",
  "get",
  "get --help",
  "explain --node n1 svc/web",
  "local to-json --node-name get",
  "file -i state.yaml to-local to-json --node-name n1",
])("%s stays as it is", (words) => {
  expect(kubectlWords(words.split(" "), program).join(" ")).toBe(words);
});
