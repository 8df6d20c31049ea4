// Statistics of the rewards: tables of what the functions give and cost, folded away until asked for.

/** @import { CorrelationPayload, FunctionPayload, ScoresPayload } from "../../views/payloads.d.ts" */
/** @import { Handles } from "./payloads.js" */
/** @typedef {{ functions: FunctionPayload[], correlations: CorrelationPayload[], slow: string[] }} WatchPayload */

import { el, svg, tableOf } from "../../views/dom.js";
import { NONE, percent, precise } from "../../views/numbers.js";
import { follow } from "./widget.js";

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
    typeof column === "object" ? el("th", { scope: "col", title: column.name }, i) : column
  );
  const body = rows.map(([name, ...cells]) => [el("th", { scope: "row", title: name }, name), ...cells]);
  const whole = tableOf({}, heads, body);
  whole.prepend(el("caption", { title: about }, caption));
  return el("div", { class: "scroller" }, whole);
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
