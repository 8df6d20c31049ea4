// Train's form: the fields of the chosen method, drawn of what the sections say of them (handlers/run_fields.py). Also
// other forms of such fields, without methods.
// @ts-check
//
// The element's value holds every method's settings, by path; only those of the chosen method are on screen. Fields are
// made once, so that what has the focus keeps it whatever the server sets.

/** @import { FieldPayload, NotePayload, RunFormPayload } from "../../../views/payloads.d.ts" */
/** @import { Handles } from "../payloads.js" */

import { el, say } from "../../../views/dom.js";
import { follow, rootOf } from "../widget.js";

const METHOD = "method.name";
const DATA = "task.data";

/** @typedef {HTMLInputElement | HTMLSelectElement} Input */
/** @typedef {Record<string, string | number | boolean | null>} Values */

/** @param {Handles} handles @param {RunFormPayload} spec */
export function runForm(handles, spec) {
  const { props, watch } = handles;
  /** @type {Values} */
  let values = {};
  const parts = spec.fields.map((field) => new Part(field, changed));
  const summary = el("p", { class: "about", id: "method-summary" });
  const rows = el("p", { id: "rows-found", role: "status", hidden: true });
  const more = el("details", { class: "fold-details", id: "more-settings" }, el("summary", {}, "More settings"));
  const further = el("div", { class: "run-fields" });
  more.append(further);
  layOut(rootOf(handles), parts, { summary, rows, more, further });

  /** @type {string | undefined} which of the server's values was drawn last */
  let told;

  function changed() {
    for (const part of parts) if (part.isTouched) values[part.field.path] = part.read();
    tell();
    draw();
  }

  function tell() {
    props.value = JSON.stringify({ [spec.form]: values }); // which tells Gradio of a change
  }

  function draw() {
    const method = String(values[METHOD]);
    for (const part of parts) part.show(values[part.field.path], method);
    summary.textContent = spec.methods[method] ?? "";
    rows.hidden = !shows(spec.fields.find((field) => field.path === DATA), method);
    more.hidden = !parts.some((part) => part.field.folded && !part.node.hidden);
  }

  function tellRows() {
    /** @type {NotePayload | null} */
    const note = props.rows ? JSON.parse(props.rows) : null;
    rows.className = note?.level ?? "";
    say(rows, note?.text);
  }

  follow(handles, (_, value) => {
    if (!isNews(value, told)) return tell();
    told = value?.told;
    values = { ...value?.[spec.form] };
    draw();
  });
  watch("rows", tellRows);
  tellRows();
}

/**
 * Whether the server tells a form anything: Gradio, mounting a part of the page, may give it its first value once more
 * when somebody has changed a field already.
 * @param {{ told?: string } | null} value @param {string | undefined} told what it was told last
 */
export const isNews = (value, told) => told === undefined || value?.told !== told;

/** Whether a field is in the form of a method. @param {FieldPayload | undefined} field @param {string} method */
export const shows = (field, method) => !field?.methods || field.methods.includes(method);

/**
 * What a field's text stands for: a number field that is empty, or holds none yet, is null.
 * @param {FieldPayload["kind"]} kind @param {string} text
 */
export function valueOf(kind, text) {
  if (kind !== "number") return text;
  const number = Number(text);
  return text.trim() && Number.isFinite(number) ? number : null;
}

/**
 * @param {HTMLElement} root @param {Part[]} parts
 * @param {{ summary: HTMLElement, rows: HTMLElement, more: HTMLElement, further: HTMLElement }} extra
 */
function layOut(root, parts, { summary, rows, more, further }) {
  const plain = el("div", { class: "run-fields" });
  for (const part of parts) {
    if (part.field.path === METHOD) root.append(part.node, summary);
    else if (part.field.path === DATA) root.append(part.node, rows);
    else (part.field.folded ? further : plain).append(part.node);
  }
  root.append(plain, ...(further.hasChildNodes() ? [more] : []));
}

/** A field: its label, its input, and its help, which is shown while it has the focus. */
class Part {
  /** @param {FieldPayload} field @param {() => void} changed */
  constructor(field, changed) {
    this.field = field;
    this.isTouched = false;
    this.input = inputOf(field);
    this.input.addEventListener("input", () => {
      this.isTouched = true;
      changed();
      this.isTouched = false;
    });
    const label = el("label", { for: this.input.id, title: field.help }, field.label);
    const help = el("p", { class: "help", id: `${field.id}-help` }, field.help);
    const inOrder = field.kind === "switch" ? [this.input, label] : [label, this.input];
    this.node = el("div", { id: field.id, class: `run-field ${field.kind}` }, ...inOrder, help);
  }

  read() {
    return this.input instanceof HTMLInputElement && this.field.kind === "switch"
      ? this.input.checked
      : valueOf(this.field.kind, this.input.value);
  }

  /** @param {Values[string]} value @param {string} method the chosen one */
  show(value, method) {
    this.node.hidden = !shows(this.field, method);
    if (this.read() === value) return; // what is being typed may be written in another way
    if (this.input instanceof HTMLInputElement && this.field.kind === "switch") this.input.checked = Boolean(value);
    else this.input.value = String(value ?? "");
  }
}

/** @param {FieldPayload} field @returns {Input} */
function inputOf({ id, kind, choices, optional, placeholder, whole, help }) {
  const attributes = { id: `${id}-input`, "aria-describedby": help ? `${id}-help` : null };
  if (kind === "choice") {
    const listed = [...(optional ? [["", "none"]] : []), ...choices.map((choice) => [choice, choice])];
    return el("select", attributes, ...listed.map(([value, text]) => el("option", { value }, text)));
  }
  if (kind === "switch") return el("input", { ...attributes, type: "checkbox" });
  if (kind === "text") return el("input", { ...attributes, type: "text", placeholder, spellcheck: "false" });
  return el("input", { ...attributes, type: "number", step: whole ? 1 : "any", placeholder: optional ? "none" : null });
}
