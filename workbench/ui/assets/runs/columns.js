// The table's columns, and which runs it shows in which order. Pure functions.
// @ts-check

import { duration } from "../train/state.js";

/** @import { RunRow } from "../../../views/payloads.d.ts" */

export const NONE = "–";
const orNone = (/** @type {any} */ value, /** @type {(value: any) => string} */ text) =>
  value === null || value === undefined ? NONE : text(value);
const percent = (/** @type {number} */ value) => `${(100 * value).toFixed(0)} %`;
export const when = (/** @type {number | null | undefined} */ seconds) =>
  seconds ? new Date(seconds * 1000).toLocaleString([], { dateStyle: "short", timeStyle: "short" }) : NONE;
export const plural = (/** @type {number} */ count, /** @type {string} */ word) =>
  `${count} ${word}${count === 1 ? "" : "s"}`;

const BEST_REWARD =
  "The highest mean reward of a training step: of whole completions, or of steps where a run has no outcome reward.";

/**
 * A column: its key in a row, heading, how it is shown, and whether it is a number (right-aligned, largest first).
 * @typedef {{key: keyof RunRow, title: string, numeric: boolean, about?: string, text: (run: RunRow) => string}} Column
 */
const text = (/** @type {keyof RunRow} */ key, /** @type {string} */ title) => /** @type {Column} */ ({
  key,
  title,
  numeric: false,
  text: (run) => orNone(run[key], String),
});
const number = (
  /** @type {keyof RunRow} */ key,
  /** @type {string} */ title,
  /** @type {(value: any) => string} */ shown,
  about = "",
) => /** @type {Column} */ ({ key, title, numeric: true, about, text: (run) => orNone(run[key], shown) });

export const COLUMNS = [
  text("state", "State"),
  text("name", "Run"),
  text("task", "Task"),
  text("scheme", "Credit"),
  number("seed", "Seed", String),
  number("reward", "Best reward", (value) => value.toPrecision(3), BEST_REWARD),
  number("accuracy_best", "Best accuracy", percent, "The highest share of held-out answers that were right."),
  number("accuracy_last", "Last", percent, "The held-out accuracy measured last."),
  {
    ...number("step", "Steps", String),
    text: (/** @type {RunRow} */ run) => run.total ? `${run.step} of ${run.total}` : NONE,
  },
  number("seconds", "Time", duration, "Time spent training."),
  number("created", "Created", when),
  text("policy", "Policy"),
  { ...text("tags", "Tags"), text: (/** @type {RunRow} */ run) => run.tags.join(", ") || NONE },
  { ...text("note", "Note"), text: (/** @type {RunRow} */ run) => run.note.split("\n")[0] || NONE },
];

const AT_FIRST = ["policy", "tags", "note"]; // columns that are hidden until somebody shows them
const FIXED = ["state", "name"];
/** Columns that may be hidden. */
export const OPTIONAL = COLUMNS.filter(({ key }) => !FIXED.includes(key));
const HIDDEN = "workbench-runs-hidden"; // in the browser's storage

/** The keys of the columns that are hidden. @returns {Set<string>} */
export function hiddenColumns() {
  try {
    const stored = JSON.parse(localStorage.getItem(HIDDEN) ?? "null");
    return new Set(Array.isArray(stored) ? stored.filter((key) => OPTIONAL.some((one) => one.key === key)) : AT_FIRST);
  } catch {
    return new Set(AT_FIRST); // no storage, or another page's value
  }
}

/** @param {Set<string>} hidden */
export function keepHidden(hidden) {
  try {
    localStorage.setItem(HIDDEN, JSON.stringify([...hidden]));
  } catch { /* the choice lasts until reload */ }
}

/** @typedef {{key: string, down: boolean}} Sort */
const NEWEST = { key: "created", down: true };

/** What an address says the table is sorted by. @param {string | null} text @returns {Sort} */
export function readSort(text) {
  const key = (text ?? "").replace("-", "");
  return COLUMNS.some((column) => column.key === key) ? { key, down: (text ?? "").startsWith("-") } : NEWEST;
}

/** The same as text; "" for the newest first. @param {Sort} sort */
export const writeSort = ({ key, down }) => key === NEWEST.key && down ? "" : `${down ? "-" : ""}${key}`;

/** The runs that have every word of `filter`, sorted; those without a value come last, whichever way the rest is sorted.
 * `words` are more of a row that is searched.
 * @param {(RunRow & {words?: string})[]} runs @param {Sort} sort @param {string} filter */
export function shownRuns(runs, { key, down }, filter) {
  const column = /** @type {Column} */ (COLUMNS.find((candidate) => candidate.key === key));
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const matching = runs.filter((run) => {
    const { name, task, scheme, state, policy, reason, words: more, note, tags = [] } = run;
    const searched = [name, task, scheme, state, policy, reason, more, note, ...tags].join(" ").toLowerCase();
    return words.every((word) => searched.includes(word));
  });
  return matching.sort((a, b) => {
    const [x, y] = /** @type {any[]} */ ([a[column.key] ?? null, b[column.key] ?? null]);
    if (x === null || y === null) return Number(x === null) - Number(y === null);
    const order = column.numeric ? x - y : `${x}`.localeCompare(`${y}`, undefined, { numeric: true });
    return down ? -order : order;
  });
}

/**
 * Gives each configuration the colour it has, or the first that is free. `colours` is by key and is brought up to date.
 * @param {Map<string, number>} colours @param {string[]} keys
 */
export function giveColours(colours, keys) {
  for (const key of [...colours.keys()]) if (!keys.includes(key)) colours.delete(key);
  for (const key of keys) {
    const taken = new Set(colours.values());
    let free = 0;
    while (taken.has(free)) free++;
    if (!colours.has(key)) colours.set(key, free);
  }
}
