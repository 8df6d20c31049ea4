// The rewards' own elements: what somebody changed in their fields, what they returned, the editor beside its results,
// statistics, how a reward model's worker is doing, and files of labels.

/** @import { CorrelationPayload, FunctionPayload, ScoresPayload } from "../../views/payloads.d.ts" */
/** @import { ReturnedPayload, RewardEditorPayload, RewardsPayload } from "../../views/payloads.d.ts" */
/** @import { Call, Handles } from "./payloads.js" */
/** @typedef {{ name: string, text: string, once: string }} FilePayload */
/** @typedef {{ functions: FunctionPayload[], correlations: CorrelationPayload[], slow: string[] }} WatchPayload */

import { download, el, svg } from "../../views/dom.js";
import { NONE, percent, precise } from "../../views/numbers.js";
import { drawNote, LineMark } from "./notes.js";
import { answerOf, follow, rootOf, whileVisible } from "./widget.js";

const STAYS = { __type__: "update" }; // what Gradio takes for: leave this output as it is

/**
 * What somebody changed in the rows' fields, with one more change. Nothing on the server sets this: what is typed stays.
 * @param {string} edits @param {string} key of a row @param {string} field @param {unknown} value
 */
export function edited(edits, key, field, value) {
  held = JSON.parse(edits);
  if (held[key] && held[key][field] === value) return STAYS;
  held = { ...held, [key]: { ...held[key], [field]: value } };
  return JSON.stringify(held);
}

/** @type {Record<string, Record<string, unknown>>} What somebody changed, by the rows' keys. */
let held = {};

/** @param {string} key of a row that is drawn anew: it shows also what was changed while it was on its way. */
function showHeld(key) {
  const row = document.querySelector(`.slot [data-key="${key}"]`)?.closest(".slot");
  const box = /** @type {HTMLInputElement | null} */ (row?.querySelector("[id^=reward-on] input") ?? null);
  const number = /** @type {HTMLInputElement | null} */ (row?.querySelector("[id^=reward-weight] input") ?? null);
  const { on, weight } = held[key] ?? {};
  if (box && on !== undefined && box.checked !== on) box.click();
  if (!number || weight === undefined || number.value === String(weight ?? "")) return;
  number.value = String(weight ?? "");
  number.dispatchEvent(new Event("input", { bubbles: true }));
}

/** @type {Map<string, string>} The names of rows by their keys, also of rows that are gone. */
const names = new Map();
/** @type {[string, string][]} Keys and names of the rows as they were listed last. */
let listed = [];
let wanted = ""; // key of the row that is to be edited once it is drawn

/**
 * @param {string} now The rows there are now: the editor follows its row to the one that took its place, or closes.
 * @param {string} editing key of the row that is to be edited
 */
export function followRow(now, editing) {
  const name = names.get(editing);
  const before = listed;
  listed = JSON.parse(now || "[]");
  for (const [key, called] of listed) names.set(key, called);
  if (!name || listed.some(([key]) => key === editing)) return;
  const place = listed.length === before.length ? before.findIndex(([key]) => key === editing) : -1; // under another name
  wanted = keyOf(name) ?? listed[place]?.[0] ?? "";
  if (wanted) editWanted();
  else document.getElementById("editor-done")?.click();
}

/** @param {string | undefined} name */
const keyOf = (name) => listed.find(([, called]) => called === name)?.[0];

/** @param {string} key of a row whose Edit was pressed. Where another has just taken its place, that is edited. */
export const editRow = (key) => listed.some(([one]) => one === key) ? key : keyOf(names.get(key)) ?? key;

/** Opens the editor of the wanted row, if that is drawn by now. */
function editWanted() {
  const row = wanted && document.querySelector(`.slot [data-key="${wanted}"]`)?.closest(".slot");
  if (!row) return;
  wanted = "";
  /** @type {HTMLElement | null} */ (row.querySelector("[id^=reward-edit]"))?.click();
}

/** @type {RewardsPayload} What was said last; of a row that could not be scored since, what it returned before. */
let said = { rows: {}, editor: null };
/** @type {Set<() => boolean>} Draw it in an element of the list or the editor; false once that is gone. */
const places = new Set();

/** @param {Handles} handles Holds what the rewards returned, for the elements that show it. */
export function rewardsSaid(handles) {
  follow(handles, (_, /** @type {RewardsPayload | null} */ value) => {
    if (!value) return;
    said = { rows: { ...said.rows, ...value.rows }, editor: value.editor };
    for (const draw of places) if (!draw()) places.delete(draw);
  });
}

/** @param {HTMLElement} element @param {() => void} draw */
function whenSaid(element, draw) {
  const place = () => {
    if (element.isConnected) draw();
    return element.isConnected;
  };
  places.add(place);
  place();
}

/** @param {Handles} handles @param {{ key: string }} row What a reward returned, under its row. */
export function rewardSaid(handles, { key }) {
  whenSaid(handles.element, () => drawNote(rootOf(handles), said.rows[key] ?? null));
  rootOf(handles).dataset.key = key;
  setTimeout(() => { // once Gradio has put it into its row
    showHeld(key);
    editWanted();
  });
}

/** @param {Handles} handles @param {{ key: string }} row Above the code: what it returned, or what is wrong at which line. */
export function rewardSentence(handles, { key }) {
  const mark = new LineMark();
  rootOf(handles).dataset.key = key;
  /** @type {string | null} */
  let opened = null;
  setTimeout(() => { // on a phone it opens far below the row
    if (handles.element.getBoundingClientRect().top > innerHeight / 2) handles.element.scrollIntoView();
  });
  whenSaid(handles.element, () => {
    const editor = said.editor?.key === key ? said.editor : null;
    mark.set("reward-code", editor?.wrong?.line ?? 0);
    if (!editor) return drawNote(rootOf(handles), null);
    if (editor.wrong) return drawNote(rootOf(handles), editor.wrong);
    const now = scoresOf(editor);
    opened ??= JSON.stringify(now);
    const before = JSON.parse(opened);
    const changed = now.filter((score, i) => score !== before[i]).length;
    const since = changed ? `${changed} changed since you opened it` : "none changed";
    drawNote(rootOf(handles), { text: `${editor.said}; ${since}`, level: "said", line: null, detail: "" });
  });
}

/** @param {RewardEditorPayload} editor */
const scoresOf = ({ rollouts }) => rollouts.flatMap(({ steps }) => steps.map(([, score]) => score));

/** @param {Handles} handles @param {{ key: string }} row Beside the code: what it returned for each step, and printed. */
export function rewardResults(handles, { key }) {
  const root = rootOf(handles);
  root.tabIndex = 0;
  root.setAttribute("role", "region");
  root.setAttribute("aria-label", "What it returned");
  whenSaid(handles.element, () => {
    const editor = said.editor;
    if (editor?.key !== key) return;
    root.classList.toggle("is-stale", Boolean(editor.wrong));
    const all = editor.printed
      ? [el("h3", {}, "Printed, for all rollouts at once"), el("pre", {}, editor.printed)]
      : [];
    const rollouts = editor.wrong ? editor.rollouts.toReversed() : editor.rollouts; // the one that failed comes first
    const now = [...all, ...rollouts.flatMap(resultsOf)];
    if (!editor.wrong) return root.replaceChildren(...now);
    const before = [...root.querySelectorAll(":scope > :not(.before-error)")];
    const printed = now.length
      ? [el("div", { class: "before-error" }, el("p", {}, "Printed before the error"), ...now)]
      : [];
    root.replaceChildren(...printed, ...before);
  });
}

/** @param {ReturnedPayload} rollout */
function resultsOf({ name, verdict, steps, printed }) {
  const mark = { right: "✓ right", wrong: "⊘ wrong" }[verdict] ?? "";
  const rows = steps.map(([text, score, wrong], k) =>
    el(
      "tr",
      { class: wrong ? "wrong" : "" },
      el("td", {}, wrong ? `✕ ${k + 1}` : k + 1),
      el("td", { title: text }, text),
      el("td", {}, score === null ? NONE : precise(score)),
    )
  );
  return [
    el("h3", {}, name, el("span", {}, mark)),
    el("table", {}, el("tbody", {}, ...rows)),
    ...(printed ? [el("pre", { title: "printed" }, printed)] : []),
  ];
}

const SCORES = "All scores of the group on screen; p50 and p99 are of the calls since the code last changed";
const STRONGEST = 28; // percent of colour behind the largest number of a row
const WIDTH = 32; // pixels of a histogram
const HEIGHT = 16;

/** @param {number | null} seconds */
const milliseconds = (seconds) => precise(seconds === null ? null : 1000 * seconds);

/** @param {(number | null)[]} values */
const largestOf = (values) => Math.max(...values.map((value) => Math.abs(value ?? 0)));

/** @param {Handles} handles Tables of what the functions give and cost, folded away until asked for. */
export function watch(handles) {
  const slow = el("div", { class: "slow", role: "status" });
  const body = el("div", { class: "watch-body" });
  const details = el("details", { class: "fold-details" }, el("summary", {}, "Reward statistics"), body);
  follow(handles, (root, /** @type {WatchPayload | null} */ value) => {
    if (!root.hasChildNodes()) root.append(slow, details);
    root.hidden = !value?.functions.length;
    if (!value || root.hidden) return;
    slow.replaceChildren(...value.slow.map((text) => el("p", {}, text)));
    body.replaceChildren(...tablesOf(value));
  });
}

/** @param {WatchPayload} value */
function tablesOf({ functions, correlations }) {
  const steps = functions.filter(({ positions }) => positions.length);
  return [
    scoresTable(functions),
    ...(steps.length ? [positionsTable(steps)] : []),
    ...(functions.length > 1 ? [correlationsTable(functions, correlations)] : []),
    rolloutsTable(functions),
  ];
}

/**
 * @typedef {string | number | FunctionPayload} Head a text, or a function: that is numbered as in the first table
 * @param {string} caption @param {string} about @param {Head[]} head
 * @param {[string, ...(Node | string | number)[]][]} rows
 */
function table(caption, about, head, rows) {
  const heads = head.map((column, i) =>
    typeof column === "object" ? el("th", { scope: "col", title: column.name }, i) : el("th", { scope: "col" }, column)
  );
  const cell = (/** @type {Node | string | number} */ content) =>
    content instanceof HTMLTableCellElement ? content : el("td", {}, content);
  const body = rows.map(([name, ...cells]) =>
    el("tr", {}, el("th", { scope: "row", title: name }, name), ...cells.map(cell))
  );
  return el(
    "div",
    { class: "scroller" },
    el(
      "table",
      {},
      el("caption", { title: about }, caption),
      el("thead", {}, el("tr", {}, ...heads)),
      el("tbody", {}, ...body),
    ),
  );
}

/** @param {FunctionPayload} reward @param {number} i */
const numbered = ({ name }, i) => `${i + 1} ${name}`;

/** @param {FunctionPayload[]} functions */
function scoresTable(functions) {
  const unscored = functions.some(({ scores }) => scores.unscored);
  const head = ["", "", "mean", "sd", "zero", ...(unscored ? ["none"] : []), "p50", "p99"];
  return table(
    "Scores, and milliseconds a call",
    SCORES,
    head,
    functions.map((reward, i) => [
      numbered(reward, i),
      histogram(reward.scores),
      precise(reward.scores.mean),
      precise(reward.scores.std),
      percent(reward.scores.zeros),
      ...(unscored ? [reward.scores.unscored] : []),
      milliseconds(reward.p50),
      milliseconds(reward.p99),
    ]),
  );
}

/** @param {FunctionPayload[]} functions */
function positionsTable(functions) {
  const longest = Math.max(...functions.map(({ positions }) => positions.length));
  const head = ["", ...Array.from({ length: longest }, (_, k) => k + 1)];
  return table(
    "Mean by step",
    "Mean score of each completion's k-th step",
    head,
    functions.map(({ name, positions }) => {
      const means = Array.from({ length: longest }, (_, k) => positions[k] ?? null);
      return [name, ...means.map((mean) => shaded(mean, largestOf(means)))];
    }),
  );
}

/** @param {FunctionPayload[]} functions @param {CorrelationPayload[]} pairs */
function correlationsTable(functions, pairs) {
  const others = functions.slice(0, -1);
  const r = (/** @type {string} */ first, /** @type {string} */ second) =>
    pairs.find((pair) => pair.first === first && pair.second === second)?.r ?? null;
  return table(
    "Correlation",
    "Pearson's r between two functions, completion by completion",
    ["", ...others],
    functions.map((reward, i) => [
      numbered(reward, i),
      ...others.map((other, j) => (j < i ? shaded(r(other.name, reward.name), 1) : el("td", {}))),
    ]),
  );
}

/** @param {FunctionPayload[]} functions */
function rolloutsTable(functions) {
  return table(
    "By rollout",
    "A step function's mean over the rollout's steps",
    ["", ...functions],
    functions[0].rows.map((_, g) => [
      `rollout ${g + 1}`,
      ...functions.map(({ rows }) => shaded(rows[g], largestOf(rows))),
    ]),
  );
}

/** @param {number | null} value @param {number} largest The larger, the stronger; the number is there too. */
function shaded(value, largest) {
  if (value === null) return el("td", { class: "none" }, NONE);
  const strength = largest ? Math.round((STRONGEST * Math.abs(value)) / largest) : 0;
  return el("td", { style: `--strength: ${strength}%`, class: value < 0 ? "negative" : "positive" }, precise(value));
}

/** @param {number[]} counts Places and sizes of a histogram's bars. */
export function barsOf(counts) {
  const each = WIDTH / Math.max(counts.length, 1);
  const most = Math.max(...counts, 1);
  return counts.map((count, i) => {
    const height = count ? Math.max(1, (HEIGHT * count) / most) : 0;
    return { x: i * each, y: HEIGHT - height, width: Math.max(1, each - 1), height };
  });
}

/** @param {ScoresPayload} scores A histogram; its title says what it holds, because a picture this small cannot. */
function histogram({ count, low, high, counts }) {
  const label = count ? `${count} scores from ${precise(low)} to ${precise(high)}` : "no scores";
  const bars = barsOf(counts).map((bar) => svg("rect", bar));
  const box = { width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label };
  return svg("svg", box, svg("title", {}, label), ...bars);
}

/**
 * What the worker of reward models and those of judges are doing.
 * @param {Handles<{ model_status: Call<{}, string>, cancel_judges: Call<{}, boolean> }>} handles
 */
export function modelStatus(handles) {
  const root = rootOf(handles);
  root.setAttribute("role", "status");
  const said = el("span");
  const cancel = el("button", { type: "button", class: "link" }, "Cancel");
  cancel.addEventListener("click", () => void answerOf(handles.server.cancel_judges({})).catch(() => {}));
  const busy = el("p", { class: "busy", hidden: true }, said, cancel);
  root.replaceChildren(busy);
  whileVisible(handles.element, async () => {
    let text = "";
    if (document.querySelector(".slot.asks")) { // only while a row is one
      try {
        text = await answerOf(handles.server.model_status({}));
      } catch { /* the header says that the connection is gone */ }
    }
    said.textContent = text;
    busy.hidden = !text;
    cancel.hidden = !/(^|, )judge /.test(text); // a reward model scores to its end
  }, () => 1000);
}

/** @param {Handles} handles Saves each value as a file. */
export function saveFile(handles) {
  follow(handles, (root, /** @type {FilePayload | null} */ value) => {
    if (!value || root.dataset.saved === value.once) return;
    root.dataset.saved = value.once;
    download(value.name, new Blob([value.text], { type: "application/jsonl" }));
  });
}
