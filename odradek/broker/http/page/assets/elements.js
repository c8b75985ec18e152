// Describes the elements of the document for Preact, which updates only the elements that have changed.
// Strings become text nodes, so data from the broker can never become markup.

// @ts-types="./vendor/preact.d.ts"
import { Component, createElement, Fragment, render } from "./vendor/preact.module.js";

export const h = createElement;
export const Part = Component;
export const Group = Fragment;
export const draw = render;

// The color of each state.
const COLOR = {
  ...{ Ongoing: "wait", PrepareCommit: "wait", PrepareAbort: "wait", CompleteCommit: "good", CompleteAbort: "bad" },
  ...{ Stable: "good", Empty: "", Dead: "bad", NotReady: "bad", Assigning: "wait", Reconciling: "wait" },
  ...{ committed: "good", plain: "", aborted: "bad", open: "wait", control: "doubt" },
  ...{ AVAILABLE: "", ACQUIRED: "wait", TX_PENDING: "doubt", ACKNOWLEDGED: "good", ARCHIVED: "bad" },
  ...{ running: "good", stopped: "bad", crashed: "bad" },
  ...{ ERROR: "bad", CRITICAL: "bad", WARNING: "wait" },
  ...{ ALLOW: "good", DENY: "bad" },
};
export const color = (state) => COLOR[state] ?? "";
export const tag = (text, kind) => h("span", { class: `tag ${kind ?? color(text)}` }, text);

export const title = (text, lead) => [h("h1", {}, text), lead ? h("p", { class: "lead" }, lead) : null];
export const empty = (...words) => h("p", { class: "empty" }, ...words);
export const note = (kind, ...words) => h("div", { class: `note ${kind}` }, ...words);
export const facts = (pairs) =>
  h("dl", { class: "facts" }, pairs.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
