import { expect, test } from "vitest";
import { makeKpng } from "../kpng.ts";
import { findRefusedHabit } from "./refuse-habits.ts";
import { refusedHabits } from "./refused-habits.ts";

const program = makeKpng(new AbortController().signal);

test.each(refusedHabits.flatMap((habit) => habit.words.map((word) => ({ word, habit }))))(
  "$word is refused with the hint of its own row",
  ({ word, habit }) => {
    const command = word.startsWith("-o ") ? "get services" : "describe service";
    const line = word.startsWith("-") ? `${command} ${word}` : word;
    expect(findRefusedHabit(line.split(" "), program)).toMatchObject({ habit, word });
  },
);

test.each([
  ["delete svc web", "delete"],
  ["get -n shop pods", "get pods"],
  ["get pods/web-1", "get pods"],
  ["file -i state.yaml get pods", "get pods"],
  ["service list", "service"],
  ["endpoint list", "endpoint"],
  ["bpf lb list", "bpf"],
  ["connectivity test", "connectivity"],
  ["get -L app svc", "-L"],
  ["get svc --context=prod", "--context"],
  ["get svc --output=go-template={{.}}", "-o go-template"],
  ["get svc -o go-template={{.}}", "-o go-template"],
  ["get svc -ogo-template={{.}}", "-o go-template"],
  ["get svc -o=go-template={{.}}", "-o go-template"],
  ["get svc,ep", "get KIND,KIND"],
  ["get -n shop svc/web,svc/db", "get KIND,KIND"],
  ["get svc/web no/n1", "get KIND,KIND"],
  ["get ingresses.networking.k8s.io", "get ingresses"],
  ["-n shop get pods", "get pods"],
  ["get svc --v=9", "--v"],
  ["analyze state.yaml", "analyze WORD"],
  ["describe svc -A", "-A"],
  ["--cleanup", "--cleanup"],
  ["kubectl get svc", "kubectl"],
  ["kubectl get pods", "get pods"],
  ["kubectl plugin list", "plugin"],
  ["hubble observe --follow", "observe"],
  ["auth whoami", "auth"],
])("%s is refused as %s", (words, word) => {
  expect(findRefusedHabit(words.split(" "), program)?.word).toBe(word);
});

test.each([
  ["analyze -n shop state.yaml", "analyze state.yaml"],
  ["get -n shop svc,ep", "get svc,ep"],
  ["describe svc/web no/n1", "describe svc/web no/n1"],
])("the refusal of %s shows %j", (words, typed) => {
  expect(findRefusedHabit(words.split(" "), program)?.typed).toBe(typed);
});

test.each([
  ["an argument", "get services delete"],
  ["a value", "explain --node logs shop/web"],
  ["a value of an option of a source", "file -i delete get services"],
  ["a file for the output", "record -o logs"],
  ["an option of a program on the PATH", "local to-mine --context x"],
  ["a word to complete", "__complete -- get svc --context"],
  ["the short name of a kind", "describe svc web"],
  ["a namespace that is called as a kind", "get svc node/web"],
  ["two names of one kind", "get svc/web service/db"],
  ["a value that follows its option directly", "get svc -ojson"],
  ["an unknown word that no other tool has", "frobnicate"],
  ["an unknown command of a group of ours", "certificates create"],
])("%s is no habit: %s", (_name, words) => {
  expect(findRefusedHabit(words.split(" "), program)).toBeUndefined();
});
