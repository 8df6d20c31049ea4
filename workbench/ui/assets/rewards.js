// The rewards: their list, which owns what it holds, and the editor of the row that was chosen, in the place of the cards.

/** @import { CataloguePayload, FieldPayload, FormPayload, MadePayload, RowPayload } from "../../views/payloads.d.ts" */
/** @import { ReturnedPayload, RewardsPayload, RewardsServer, SaidPayload } from "../../views/payloads.d.ts" */
/** @import { Handles } from "./payloads.js" */
/** @typedef {{ rows: RowPayload[], outcome_weight: number | null, number: number }} Listed `number`: of the last change that it knows */

import { download, el } from "../../views/dom.js";
import { NONE, precise } from "../../views/numbers.js";
import { address } from "./address.js";
import { control } from "./fields.js";
import { menu } from "./menu.js";
import { drawNote, LineMark } from "./notes.js";
import { answerOf, follow, link, rootOf, whileVisible } from "./widget.js";

const STAYS = { __type__: "update" }; // what Gradio takes for: leave this output as it is
const PATIENCE = 500; // milliseconds after which what runs is said
const VALUES = "monte_carlo";
const FORMATS = /** @type {const} */ (["trl", "processbench"]);
const GOOD = /** @type {const} */ ([["any succeeds", "hard"], ["most succeed", "soft"]]);

/** @type {RewardList} The page's one list. */
let list;

/** @param {Handles<RewardsServer>} handles @param {CataloguePayload} catalogue The list of rewards. */
export function rewards(handles, catalogue) {
  list = new RewardList(handles, catalogue);
  follow(handles, (_, /** @type {Listed | null} */ value) => value && list.adopt(value));
}

/** @param {Handles} handles Holds what the rewards returned, for the list and the editor. */
export const rewardsSaid = (handles) =>
  follow(handles, (_, /** @type {RewardsPayload | null} */ value) => value && list.hear(value));

/** @param {Handles} handles Holds what came of a form. */
export const rewardMade = (handles) =>
  follow(handles, (_, /** @type {MadePayload | null} */ value) => value && list.take(value));

/** @param {Handles} handles The place of the editor, around its code. */
export const rewardEditor = (handles) => rootOf(handles).append(...list.editor.parts);

/** @param {RowPayload} [row] */
const hasCode = (row) => typeof row?.code === "string";

/** What the code editor is to show. */
export function codeShown() {
  list.coded = list.editing;
  return hasCode(list.edited) ? { ...STAYS, value: list.edited?.code, visible: true } : STAYS;
}

/** @param {string} code What somebody typed, or what was put there. */
export function codeTyped(code) {
  const row = list.row(list.coded); // the editor may be closed by now; it may drop the last line break
  if (typeof row?.code === "string" && code.trimEnd() !== row.code.trimEnd()) list.setCode(row, code);
}

/** @param {string} text @param {string} [level] */
const saying = (text, level = "info") => ({ text, level, line: null, detail: "" });

class RewardList {
  /** @param {Handles<RewardsServer>} handles @param {CataloguePayload} catalogue */
  constructor(handles, catalogue) {
    this.handles = handles;
    this.server = handles.server;
    this.catalogue = catalogue;
    this.rows = /** @type {RowPayload[]} */ ([]);
    this.lines = /** @type {ReturnType<RewardList["line"]>[]} */ ([]);
    this.outcomeWeight = /** @type {number | null} */ (0);
    this.editing = ""; // key of the row in the editor, or the part whose form is there
    this.number = this.waiting = 0; // of changes sent; since when an answer is awaited
    this.running = this.sent = this.coded = ""; // the last: key of the row whose code the editor was given
    /** @type {RewardsPayload} What was said last; of a row that could not be scored since, what it returned before. */
    this.said = { rows: {}, editor: null, listed: {}, weighs: true, number: 0 };
    this.body = el("div", { class: "slots" });
    this.all = this.weightField((weight) => this.outcomeWeight = weight);
    this.overall = el(
      "label",
      { class: "slot-all", id: "outcome-weight" },
      "Final answer: all its rewards ×",
      this.all,
    );
    this.note = el("div", { class: "drawn" });
    const cancel = link("Cancel", () => void this.server.cancel_rewards({ tab: address.tab }));
    this.runs = el("span");
    this.status = el("p", { class: "busy", role: "status", hidden: true }, this.runs, " · ", cancel);
    this.editor = new RewardEditor(this);
    const items = catalogue.adds.map(([choice, label]) => ({ label, chosen: () => this.add(choice) }));
    rootOf(handles).append(this.body, this.overall, this.status, this.note, menu("Add a reward", items, "add-reward"));
    whileVisible(handles.element, () => this.tellRunning(), () => PATIENCE);
  }

  // ── what it holds ──────────────────────────────────────────────────────────────────────────────────────────────

  /** @param {Listed} value What replaces the list; a row that it has stays as it is. */
  adopt(value) {
    if (this.handles.props.value === this.sent) return;
    const before = this.rows, editing = this.editing, place = before.findIndex(({ key }) => key === this.editing);
    this.rows = value.rows.map((row) => this.row(row.key) ?? row);
    this.outcomeWeight = value.outcome_weight;
    if (place >= 0 && !this.edited) { // the editor follows its row to the one that took its place
      const there = this.rows.length === before.length ? this.rows[place] : undefined;
      this.open((this.rows.find(({ name }) => name === before[place].name) ?? there)?.key ?? "", false);
    }
    this.draw();
    const isKnown = value.number === this.number && editing === this.editing &&
      JSON.stringify(this.rows) === JSON.stringify(value.rows);
    if (before.length && !isKnown) this.tell();
  }

  /** Sends what it holds. */
  tell() {
    this.waiting ||= Date.now();
    const { rows, outcomeWeight: outcome_weight, editing } = this;
    this.handles.props.value = this.sent = JSON.stringify({ rows, outcome_weight, editing, number: ++this.number });
    this.handles.trigger("input", {});
    this.refresh();
  }

  /** @param {RewardsPayload} value Shows what the last change came to; an answer to an older one is dropped. */
  hear(value) {
    if (value.number < this.number) return;
    this.waiting = 0;
    this.tellOf("");
    this.said = { ...value, rows: { ...this.said.rows, ...value.rows } };
    this.refresh();
  }

  /** @param {string} key */
  row(key) {
    return this.rows.find((row) => row.key === key);
  }

  get edited() {
    return this.row(this.editing);
  }

  /** @param {RowPayload} row @param {string} code The old error goes, and what the old code still runs. */
  setCode(row, code) {
    row.code = code;
    delete this.said.rows[row.key];
    this.said.editor = null;
    drawNote(this.editor.saved, null);
    if (this.running) void this.server.cancel_rewards({ tab: address.tab, judges: false });
    this.tell();
  }

  /** @param {string} said What is done, beside a button that undoes it. @param {() => void} change */
  undoably(said, change) {
    const { rows, outcomeWeight } = this, before = structuredClone({ rows, outcomeWeight });
    const done = (/** @type {() => void} */ change, /** @type {Node[]} */ ...buttons) => {
      change();
      this.note.replaceChildren(...buttons);
      this.draw();
      this.tell();
    };
    const undo = () => {
      done(() => Object.assign(this, before));
      this.editor.draw();
    };
    done(change, el("p", {}, said, " ", link("Undo", undo)));
  }

  /** @param {string} choice Adds a reward, or opens the form that does. */
  add(choice) {
    drawNote(this.note, null);
    if (choice in this.catalogue.forms) return this.open(choice);
    const row = this.catalogue.rows[choice], taken = this.rows.map((one) => this.now(one).name);
    if (row.is_builtin && taken.includes(row.name)) {
      return drawNote(this.note, saying(`${row.name} is in the list already.`));
    }
    let name = row.name;
    for (let number = 2; taken.includes(name); number++) name = `${row.name}_${number}`;
    const key = crypto.getRandomValues(new Uint32Array(2)).join("-");
    this.put({ ...JSON.parse(JSON.stringify(row).replaceAll(row.name, name)), key });
    if (!row.is_builtin) this.open(key); // what is to be written is there to write in
  }

  /** @param {RowPayload} row @param {string} [instead] key of the row whose place it takes */
  put(row, instead) {
    const place = this.rows.findIndex(({ key }) => key === instead);
    this.rows = place < 0 ? [...this.rows, row] : this.rows.with(place, row);
    this.draw();
    this.tell();
  }

  /** @param {MadePayload} made What a form came to: how far it is, or a row. */
  take({ note, running, row, instead }) {
    this.editor.hear(note, running);
    if (!row) return;
    this.open("", false);
    this.put(row, instead);
    if (row.part === VALUES) this.open(row.key);
    if (row.part === VALUES) this.editor.hear(note, false);
  }

  // ── the rows ───────────────────────────────────────────────────────────────────────────────────────────────────

  draw() {
    const focused = this.body.contains(document.activeElement) ? document.activeElement?.id : "";
    this.lines = this.rows.map((row, place) => this.line(row, place));
    this.body.replaceChildren(...this.lines.map(({ node }) => node));
    this.refresh();
    if (focused) (document.getElementById(focused) ?? document.getElementById("add-reward"))?.focus();
  }

  /** @param {RowPayload} row @param {number} place */
  line(row, place) {
    const on = () => {
      Object.assign(row, { on: box.checked, unfed: false });
      this.tell();
    };
    const remove = () => {
      const { name } = this.now(row);
      if (this.editing === row.key) this.open("", false);
      this.undoably(`Removed ${name}`, () => this.rows = this.rows.filter((one) => one !== row));
    };
    const box = el("input", { type: "checkbox", id: `reward-box-${place}`, onchange: on }), label = el("span");
    const name = el("label", { id: `reward-on-${place}` }, box, label), note = el("div");
    const weight = this.weightField((value) => {
      if (row === this.weighted) this.outcomeWeight = value;
      else row.weight = value;
    });
    const edit = button("Edit", () => this.open(row.key), `reward-edit-${place}`);
    const drop = button("×", remove, `reward-remove-${place}`);
    const head = [name, el("span", { id: `reward-weight-${place}` }, weight), edit, drop];
    const under = el("div", { class: "note", id: `reward-note-${place}` }, note);
    const node = el("div", { class: "slot", id: `reward-${place}` }, el("div", { class: "slot-head" }, ...head), under);
    return { row, node, box, label, name, weight, note, drop };
  }

  /** @param {RowPayload} row What it is by now, as far as the last answer says. */
  now(row) {
    return this.said.listed[row.key] ?? row;
  }

  /** @param {(weight: number | null) => void} set */
  weightField(set) {
    const input = el("input", { type: "number", step: 0.1 });
    input.addEventListener("input", () => {
      set(Number.isNaN(input.valueAsNumber) ? null : input.valueAsNumber);
      this.tell();
    });
    return input;
  }

  /** The rewards of the final answer that are on, or all where none is. */
  get outcomes() {
    const all = this.rows.filter((row) => this.now(row).kind === "outcome");
    return all.some(({ on }) => on) ? all.filter(({ on }) => on) : all;
  }

  /** The row in which the one weight of the final answer stands: its own would be normalised away. */
  get weighted() {
    const [first, ...more] = this.outcomes;
    return this.said.weighs && first && !more.length && !first.schedule ? first : null;
  }

  /** Shows what the rows are by now, and what was said of them. */
  refresh() {
    const { weighted } = this;
    for (const { row, box, label, name, weight, note, drop } of this.lines) {
      const now = this.now(row);
      name.className = now.kind;
      box.checked = row.on;
      label.textContent = now.label;
      weight.disabled = Boolean(row.schedule);
      weight.ariaLabel = `Weight of ${now.name}`;
      drop.ariaLabel = `Remove ${now.name}`;
      weight.title = row === weighted ? "Weight of the final answer beside the steps; 0 shows it, uncounted" : "";
      setNumber(weight, row === weighted ? this.outcomeWeight : row.schedule ? now.weight : row.weight);
      drawNote(note, this.said.rows[row.key] ?? null);
    }
    this.overall.hidden = !this.said.weighs || Boolean(weighted) || !this.outcomes.length;
    setNumber(this.all, this.outcomeWeight);
    this.editor.refresh();
  }

  /** Says what runs once it takes a moment, with a way to end it. */
  async tellRunning() {
    const asks = this.rows.some(({ part, is_builtin }) => !is_builtin && part !== VALUES);
    if (!asks && !(this.waiting && Date.now() - this.waiting > PATIENCE)) return;
    this.tellOf(await answerOf(this.server.rewards_running({ tab: address.tab })).catch(() => "")); // the header says why
  }

  /** @param {string} running */
  tellOf(running) {
    this.running = this.runs.textContent = running;
    this.status.hidden = !running;
    if (running && this.waiting && hasCode(this.edited)) drawNote(this.editor.said, saying(running));
  }

  /** @param {string} editing a key or a part; "" closes the editor @param {boolean} [asked] by a person */
  open(editing, asked = true) {
    const place = this.rows.findIndex(({ key }) => key === this.editing), was = this.editing;
    this.editing = editing;
    this.editor.draw();
    if (hasCode(this.edited)) this.handles.trigger("select", {});
    if (!asked) return;
    if (editing) this.editor.focus();
    else if (was) document.getElementById(place < 0 ? "add-reward" : `reward-edit-${place}`)?.focus();
    this.tell();
  }
}

/** @param {HTMLInputElement} input @param {number | null} value What is being typed stays. */
function setNumber(input, value) {
  if (document.activeElement !== input && input.value !== String(value ?? "")) input.value = String(value ?? "");
}

/** @param {string} text @param {() => void} onclick @param {string} id @param {string} [look] */
const button = (text, onclick, id, look = "small") => el("button", { type: "button", class: look, id, onclick }, text);

class RewardEditor {
  /** @param {RewardList} list */
  constructor(list) {
    this.list = list;
    this.mark = new LineMark();
    this.opened = { key: "", code: "", scores: /** @type {string | null} */ (null) };
    this.said = el("div");
    this.saved = el("div");
    this.note = el("div");
    this.results = el("div", { id: "editor-results", tabindex: 0, role: "region", "aria-label": "What it returned" });
    this.head = el("div", { id: "editor-head" });
    this.foot = el("div", { id: "editor-foot" });
    this.parts = [this.head, this.results, this.foot];
    this.facts = el("p", { id: "values-facts" });
    this.go = this.stop = /** @type {HTMLButtonElement | null} */ (null);
  }

  focus() {
    const code = document.body.dataset.editing === "code";
    whenThere(code ? "#reward-code .cm-content" : "#editor-foot :is(input, select, textarea)", (node) => {
      if (node.getBoundingClientRect().top > innerHeight / 2) this.head.scrollIntoView(); // on a phone it is far below
      node.focus({ preventScroll: true });
      return document.activeElement === node; // not while it fades in (page.css, made)
    });
  }

  /** Draws the editor of what is chosen now. */
  draw() {
    const { list } = this, row = list.edited, part = row ? row.part : list.editing, form = list.catalogue.forms[part];
    document.body.dataset.editing = hasCode(row) ? "code" : form ? "form" : "";
    this.results.replaceChildren();
    drawNote(this.saved, null);
    if (row && this.opened.key !== row.key) this.opened = { key: row.key, code: row.code ?? "", scores: null };
    const title = row ? el("div", { id: "editor-said", class: "note" }, this.said) : el("h2", {}, form?.title);
    const done = button(row ? "Done" : "Close", () => list.open(""), "editor-done", form ? "small" : "primary");
    const saved = el("div", { id: "editor-saved", class: "note" }, this.saved);
    this.head.replaceChildren(title, ...(row && hasCode(row) ? this.tools(row) : []), done, saved);
    this.foot.replaceChildren(...(form ? this.form(part, form, row) : []), ...(row ? [this.schedule(row)] : []));
    this.refresh();
  }

  /** @param {RowPayload} row Buttons for its code; a page that takes none of one's own has none. */
  tools(row) {
    const { rows, adds } = this.list.catalogue, own = adds.filter(([choice]) => rows[choice]?.is_builtin === false);
    if (!own.length) return [];
    const put = (/** @type {string} */ code) => {
      this.list.setCode(row, code);
      this.list.handles.trigger("select", {});
    };
    const from = (/** @type {string} */ choice) => () =>
      put((rows[choice].code ?? "").replaceAll(rows[choice].name, this.list.now(row).name));
    const save = async () => {
      const asked = this.list.server.save_code({ name: this.list.now(row).name, code: row.code ?? "" });
      drawNote(this.saved, await answerOf(asked).catch(({ message }) => saying(message, "error")));
    };
    const items = own.map(([choice, label]) => ({ label, chosen: from(choice) }));
    const undo = button("Undo edits", () => put(this.opened.code), "editor-undo");
    return [menu("Start from a template", items, "editor-template"), undo, button("Save to file", save, "editor-save")];
  }

  /** @param {RowPayload} row The field of its weights by step of training, read once it is written. */
  schedule(row) {
    const label = "Weight schedule (optional)", placeholder = "e.g. 0:1, 60:0 fades out over 60 steps";
    const { node, input } = control("reward", { ...PLAIN, name: "schedule", label, value: row.schedule, placeholder });
    input.addEventListener("change", () => {
      const change = () => row.schedule = input.value.trim();
      this.list.undoably(`Changed the weight schedule of ${this.list.now(row).name}`, change);
    });
    return node;
  }

  /** @param {string} part @param {FormPayload} form @param {RowPayload} [row] */
  form(part, form, row) {
    const { list } = this, { server } = list, own = list.rows.filter(({ kind }) => kind === "outcome");
    const outcomes = [...new Set([...own.map(({ name }) => name), ...form.outcomes])];
    /** @type {Record<string, () => unknown>} */
    const read = {};
    const fieldOf = (/** @type {FieldPayload} */ field) => {
      const made = control(part, { ...field, value: row?.form?.[field.name] ?? field.value }, outcomes);
      read[field.name] = made.value;
      if (field.kind === "saved") void this.offer(made.input);
      if (row?.part === VALUES && field.kind === "switch") {
        made.input.addEventListener("change", () => this.switched(row, field.name, made.input.checked));
      }
      return made.node;
    };
    const drawn = (/** @type {readonly FieldPayload[][]} */ rows) =>
      rows.map((fields) => el("div", { class: "form-row" }, ...fields.map(fieldOf)));
    const submit = () => {
      const values = Object.fromEntries(Object.entries(read).map(([name, value]) => [name, value()]));
      // As a text: Gradio takes what has a path for a file.
      list.handles.trigger("submit", { asked: JSON.stringify({ part, values, key: row?.key ?? "" }) });
    };
    this.go = button(row ? form.change : form.add, submit, `${part}-add`, "primary");
    this.stop = button("Cancel", () => void server.cancel_form({ tab: address.tab }), `${part}-cancel`);
    this.hear(null, false);
    const note = el("div", { id: `${part}-note`, class: "note" }, this.note), folded = drawn(form.folded);
    const more = el("details", { class: "fold-details", hidden: !folded.length }, el("summary", {}, "More"), ...folded);
    const labels = row?.part === VALUES ? [this.facts, this.labels(row)] : [];
    const foot = el("div", { class: "slot-foot" }, this.go, this.stop, note);
    return [el("p", {}, form.text), ...drawn(form.rows), more, foot, ...labels];
  }

  /** @param {RowPayload} row @param {string} name @param {boolean} on Switches of step values count at once. */
  switched(row, name, on) {
    if (name === "in_run") row.in_run = on;
    else row.fields = { ...row.fields, [VALUES]: { ...row.fields[VALUES], [name]: on } };
    this.list.tell();
  }

  /** @param {HTMLInputElement} input Offers what is saved in the workspace. */
  async offer(input) {
    const names = await answerOf(this.list.server.saved_names({})).catch(() => /** @type {string[]} */ ([]));
    input.after(el("datalist", { id: "saved-rewards" }, ...names.map((value) => el("option", { value }))));
    input.setAttribute("list", "saved-rewards");
    input.value ||= names[0] ?? "";
  }

  /** @param {RowPayload} row Saves the estimated steps as labels to train on. */
  labels(row) {
    const said = el("span", { id: "labels-note", role: "status" });
    const items = FORMATS.flatMap((form) =>
      GOOD.map(([good, estimation]) => ({
        label: `As ${form}, a step is good if ${good}`,
        chosen: async () => {
          const asked = this.list.server.step_labels({ tab: address.tab, key: row.key, form, estimation });
          const { name, text, said: told } = await answerOf(asked).catch(({ message }) => ({
            said: message,
            name: "",
            text: "",
          }));
          said.textContent = told;
          if (name) download(name, new Blob([text], { type: "application/jsonl" }));
        },
      }))
    );
    return el("div", { class: "slot-foot" }, menu("Save labels", items, "labels-save"), said);
  }

  /** @param {SaidPayload | null} note @param {boolean} running How far what a form began is. */
  hear(note, running) {
    drawNote(this.note, note);
    if (this.go) this.go.disabled = running;
    if (this.stop) this.stop.hidden = !running;
  }

  /** Shows what the reward returned: a sentence, or what is wrong at which line; and beside its code, step by step. */
  refresh() {
    const { list } = this, editor = list.edited && list.said.editor?.key === list.editing ? list.said.editor : null;
    this.mark.set("reward-code", editor?.wrong?.line ?? 0);
    if (!editor) return drawNote(this.said, list.said.rows[list.editing] ?? null);
    const scores = editor.rollouts.flatMap(({ steps }) => steps.map(([, score]) => score));
    if (editor.wrong) drawNote(this.said, editor.wrong);
    else {
      const before = JSON.parse(this.opened.scores ??= JSON.stringify(scores));
      const changed = scores.filter((score, i) => score !== before[i]).length;
      const since = changed ? `${changed} changed since you opened it` : "none changed";
      drawNote(this.said, saying(`${editor.said}; ${since}`, "said"));
    }
    this.facts.textContent = editor.facts.map(([name, text]) => `${name}: ${text}`).join(" · ");
    const all = editor.printed
      ? [el("h3", {}, "Printed, for all rollouts at once"), el("pre", {}, editor.printed)]
      : [];
    const rollouts = editor.wrong ? editor.rollouts.toReversed() : editor.rollouts; // the one that failed comes first
    const now = [...all, ...rollouts.flatMap(resultsOf)];
    this.results.classList.toggle("is-stale", Boolean(editor.wrong));
    if (!editor.wrong) return this.results.replaceChildren(...now);
    const before = [...this.results.querySelectorAll(":scope > :not(.before-error)")];
    const printed = el("div", { class: "before-error" }, el("p", {}, "Printed before the error"), ...now);
    this.results.replaceChildren(...(now.length ? [printed] : []), ...before);
  }
}

const PLAIN = { help: "", kind: "text", choices: [] };

/** @param {string} selector @param {(node: HTMLElement) => boolean} done Tries until it is: Gradio draws its own a moment later. */
function whenThere(selector, done, tries = 600) {
  const node = /** @type {HTMLElement | null} */ (document.querySelector(selector));
  if (!(node?.offsetParent && done(node)) && tries) requestAnimationFrame(() => whenThere(selector, done, tries - 1));
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
