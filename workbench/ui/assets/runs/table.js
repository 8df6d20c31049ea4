// The table of runs: its columns, which runs it shows in which order, and its rows, which keep their place in the
// document, so that focus and scrolling stay.

/** @import { RunRow } from "../../../views/payloads.d.ts" */
/** @import { Item } from "../menu.js" */
/**
 * @typedef {Object} TableActions What the table does.
 * @property {(names: string[]) => void} choose
 * @property {(name: string, on: boolean) => void} toggle
 * @property {(name: string) => void} open
 * @property {(run: RunRow) => Item[]} items of a run's menu
 * @property {(column: Column) => void} sort
 */
/**
 * @typedef {Object} Drawn A row.
 * @property {HTMLElement} node
 * @property {HTMLInputElement} box
 * @property {HTMLElement} named
 * @property {HTMLElement} swatch
 * @property {HTMLElement} tags
 * @property {HTMLElement} badge
 * @property {HTMLElement[]} cells
 * @property {RunRow} run
 */

import { colour, sparkline } from "../../../views/curves.js";
import { el, once, setText } from "../../../views/dom.js";
import { percent } from "../../../views/numbers.js";
import { openMenu } from "../menu.js";
import { duration } from "../train/state.js";
import { link } from "../widget.js";

export const NONE = "–";
const orNone = (/** @type {any} */ value, /** @type {(value: any) => string} */ text) =>
  value === null || value === undefined ? NONE : text(value);
export const when = (/** @type {number | null | undefined} */ seconds) =>
  seconds ? new Date(seconds * 1000).toLocaleString([], { dateStyle: "short", timeStyle: "short" }) : NONE;
export const plural = (/** @type {number} */ count, /** @type {string} */ word) =>
  `${count} ${word}${count === 1 ? "" : "s"}`;

const BEST_REWARD =
  "The highest mean reward of a training step: of whole completions, or of steps where a run has no outcome reward.";
const COURSE = "Held-out accuracy over the run; the height is 0 to 100 % in every row.";

/**
 * A column: its key in a row, heading, how it is shown, and whether it is a number (right-aligned, largest first).
 * @typedef {Object} Column
 * @property {keyof RunRow} key
 * @property {string} title
 * @property {boolean} numeric
 * @property {string} [about]
 * @property {(run: RunRow) => string} text
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

/** @param {RunRow} run Held-out accuracy before training and now. */
const accuracy = ({ accuracy_first: first, accuracy_last: last }) =>
  first === last ? orNone(last, percent) : `${orNone(first, percent)} → ${orNone(last, percent)}`;

export const COLUMNS = [
  text("state", "State"),
  text("name", "Run"),
  text("task", "Task"),
  {
    ...text("scheme", "Method"),
    text: (/** @type {RunRow} */ { method, scheme }) =>
      method && method !== scheme ? `${method} · ${scheme}` : scheme ?? NONE,
  },
  number("seed", "Seed", String),
  { ...number("accuracy_last", "Accuracy", percent, "Held-out accuracy before training and now."), text: accuracy },
  { ...text("course", "Course"), about: COURSE, text: () => "" },
  {
    ...number("warnings", "Warnings", String, "What to look at in the run."),
    text: (/** @type {RunRow} */ { alarms }) => alarms?.length ? `${alarms.length} to check` : NONE,
  },
  number("accuracy_best", "Best accuracy", percent, "The highest share of held-out answers that were right."),
  number("reward", "Best reward", (value) => value.toPrecision(3), BEST_REWARD),
  {
    ...number("step", "Steps", String),
    text: (/** @type {RunRow} */ run) => run.total_steps ? `${run.step} of ${run.total_steps}` : NONE,
  },
  number("seconds", "Time", duration, "Time spent training."),
  number("created", "Created", when),
  text("policy", "Policy"),
  { ...text("tags", "Tags"), text: (/** @type {RunRow} */ run) => run.tags.join(", ") || NONE },
  { ...text("note", "Note"), text: (/** @type {RunRow} */ run) => run.note.split("\n")[0] || NONE },
];

const WIDE = ["task", "scheme", "seed", "course", "warnings", "step", "seconds", "created"];
const NARROW = globalThis.innerWidth < 600 ? WIDE : []; // a phone has no room for these
const AT_FIRST = ["policy", "tags", "note", "accuracy_best", "reward", ...NARROW]; // hidden until somebody shows them
const FIXED = ["state", "name"];
/** Columns that may be hidden. */
export const OPTIONAL = COLUMNS.filter(({ key }) => !FIXED.includes(key));
const HIDDEN = "workbench-runs-hidden-2"; // in the browser's storage

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
    const { name, task, method, scheme, state, policy, reason, words: more, note, tags = [] } = run;
    const searched = [name, task, method, scheme, state, policy, reason, more, note, ...tags].join(" ").toLowerCase();
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

/**
 * A configuration's colour on a swatch; hidden for one that has none.
 * @param {HTMLElement} swatch @param {number | undefined} number
 */
export function paint(swatch, number) {
  swatch.className = "swatch";
  swatch.hidden = number === undefined;
  swatch.style.color = number === undefined ? "" : colour(number);
  return swatch;
}

export class RunTable {
  /** @param {TableActions} on */
  constructor(on) {
    this.on = on;
    /** @type {Map<string, Drawn>} by the runs' names */
    this.rows = new Map();
    this.hidden = hiddenColumns();
    /** @type {RunRow[]} the runs in sight */
    this.shown = [];
    /** @type {HTMLInputElement} */
    this.all = el("input", {
      type: "checkbox",
      "aria-label": "Choose all runs shown",
      onchange: () => on.choose(this.all.checked ? this.shown.map((run) => run.name) : []),
    });
    this.heads = COLUMNS.map((column) => {
      const button = el("button", { type: "button", onclick: () => on.sort(column) }, column.title);
      return el("th", { scope: "col", class: column.numeric ? "number" : null, title: column.about || null }, button);
    });
    this.body = el("tbody");
    const actions = el("th", { scope: "col" }, el("span", { class: "unseen" }, "Actions"));
    const head = el("tr", {}, el("th", { scope: "col", class: "choose" }, this.all), ...this.heads, actions);
    const table = el("table", {}, el("thead", {}, head), this.body);
    this.node = el(
      "div",
      { class: "scroller", tabindex: 0, role: "region", "aria-label": "Runs", hidden: true },
      table,
    );
  }

  /**
   * @param {RunRow[]} rows those in sight in their order
   * @param {{ sort: Sort, chosen: Set<string>, colourOf: Map<string, number> }} how
   */
  draw(rows, { sort, chosen, colourOf }) {
    this.shown = rows;
    COLUMNS.forEach((column, i) => {
      this.heads[i].hidden = this.hidden.has(column.key);
      if (sort.key === column.key) this.heads[i].setAttribute("aria-sort", sort.down ? "descending" : "ascending");
      else this.heads[i].removeAttribute("aria-sort");
    });
    const names = new Set(rows.map(({ name }) => name));
    for (const name of [...this.rows.keys()]) if (!names.has(name)) this.rows.delete(name);
    rows.forEach((shown, i) => {
      const row = this.rows.get(shown.name) ?? this.newRow(shown);
      this.fill(row, shown, chosen.has(shown.name));
      if (this.body.children[i] !== row.node) this.body.insertBefore(row.node, this.body.children[i] ?? null);
    });
    while (this.body.children.length > rows.length) this.body.lastElementChild?.remove();
    this.all.checked = this.shown.length > 0 && this.shown.every((run) => chosen.has(run.name));
    this.all.indeterminate = !this.all.checked && chosen.size > 0;
    this.paint(chosen, colourOf);
  }

  /** @param {() => void} changed What chooses the columns. */
  chooser(changed) {
    const boxes = OPTIONAL.map(({ key, title }) => {
      const flip = () => {
        if (!this.hidden.delete(key)) this.hidden.add(key);
        keepHidden(this.hidden);
        changed();
      };
      return el("label", {}, el("input", { type: "checkbox", checked: !this.hidden.has(key), onchange: flip }), title);
    });
    return el("details", { class: "columns-chosen" }, el("summary", {}, "Columns"), el("div", {}, ...boxes));
  }

  /** @param {Set<string>} chosen @param {Map<string, number>} colourOf */
  paint(chosen, colourOf) {
    for (const [name, { swatch }] of this.rows) paint(swatch, chosen.has(name) ? colourOf.get(name) : undefined);
  }

  /** @param {RunRow} shown */
  newRow({ name }) {
    const { on } = this;
    /** @type {HTMLInputElement} */
    const box = el("input", {
      type: "checkbox",
      "aria-label": `Choose ${name}`,
      onchange: () => on.toggle(name, box.checked),
    });
    const named = link(name, () => on.open(name), { title: "Open in Train", "aria-label": name });
    const tags = el("span", { class: "tags" }), badge = el("span", { class: "badge" });
    const swatch = el("i", { class: "swatch", hidden: true });
    const cells = COLUMNS.map(({ key, numeric }) => {
      if (key === "name") return el("th", { scope: "row" }, el("span", { class: "named" }, swatch, named, tags));
      return el("td", { class: numeric ? "number" : key }, key === "state" ? badge : null);
    });
    /** @type {HTMLButtonElement} */
    const button = el("button", {
      type: "button",
      class: "row-menu",
      "aria-label": `Actions of ${name}`,
      "aria-haspopup": "menu",
      "aria-expanded": "false",
      title: "What can be done with it",
      onclick: () => openMenu(button, `Actions of ${name}`, on.items(row.run)),
    }, "⋯");
    const node = el("tr", {}, el("td", { class: "choose" }, box), ...cells, el("td", {}, button));
    /** @type {Drawn} */
    const row = { box, named, swatch, tags, badge, cells, node, run: /** @type {any} */ ({ name }) };
    this.rows.set(name, row);
    return row;
  }

  /** @param {Drawn} row @param {RunRow} run what it shows @param {boolean} isChosen */
  fill(row, run, isChosen) {
    row.run = run;
    row.box.checked = isChosen;
    row.node.classList.toggle("chosen", isChosen);
    const alarms = run.alarms ?? [];
    setText(row.badge, run.state);
    const isGone = alarms.some((text) => text.includes("has collapsed"));
    row.badge.className = `badge ${run.state === "unreadable" ? "failed" : isGone ? "check" : run.state}`;
    row.badge.title = [run.reason, run.problem].filter(Boolean).join("\n");
    const damage = run.corrupt ? [`${plural(run.corrupt, "damaged row")} of its metrics left out`] : [];
    COLUMNS.forEach(({ key, text }, i) => {
      const cell = row.cells[i];
      cell.hidden = this.hidden.has(key);
      if (key === "course") {
        const course = run.course ?? [];
        once(cell, course, () => cell.replaceChildren(course.length > 1 ? sparkline(course, [0, 1]) : NONE));
      } else if (key !== "state" && key !== "name") setText(cell, text(run));
      if (key === "reward") cell.title = run.reward_metric === "step_reward" ? "of steps" : "";
      if (key !== "warnings") return;
      cell.title = [...damage, ...alarms].join("\n");
      cell.classList.toggle("warn", alarms.length > 0);
    });
    once(row.tags, run.tags, () => row.tags.replaceChildren(...run.tags.map((tag) => el("i", {}, tag))));
    row.named.title = [run.note, "Open in Train"].filter(Boolean).join("\n\n");
  }
}
